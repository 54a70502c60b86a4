"""What identifies the weights that answer: the model's, and those of a request's LoRA adapter.

A name or a path is not enough: an adapter may be loaded anew under its name, a folder may get other
files, and entries in Redis or Qdrant outlive the server.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any
from uuid import uuid4

_SUFFIXES = frozenset(".safetensors .bin .pt .pth .gguf .json .jinja .model .txt".split())
# A file of gigabytes is told from another by pieces all over it: training changes nearly all
# weights. Files up to 256 KiB are read as a whole.
_NUM_PIECES = 64
_PIECE_BYTES = 4096


class Weights:
    """The weights of one server.

    Args:
        engine: vLLM's engine client.

    Attributes:
        model: Identifies the model.
        num_changes: How often its weights changed.
    """

    def __init__(self, engine: Any) -> None:
        self.model = self._loaded = describe_model(engine)
        self.num_changes = 0
        self._adapters: dict[str, tuple[Any, str]] = {}

    def change(self) -> None:
        """Take all weights for others that no file describes."""
        self.model = f"{self._loaded}|{uuid4().hex}"
        self.num_changes += 1
        self._adapters.clear()

    def have_changed_since(self, num_changes: int) -> bool:
        """Return whether they have since this many changes; evidence has started over then."""
        return self.num_changes != num_changes

    def describe(self, adapter: Any) -> str:
        """Return what identifies the weights of a request.

        Args:
            adapter: Its `LoRARequest`, if any; vLLM makes a new one whenever it loads an adapter.
        """
        if adapter is None:
            return self.model
        known = self._adapters.get(adapter.lora_name)
        if known is None or known[0] is not adapter:
            # The files of one that is not local cannot be told from those loaded next.
            files = hash_files(Path(adapter.lora_path)) or uuid4().hex
            known = adapter, f"{self.model}|{adapter.lora_path}|{files}"
            self._adapters[adapter.lora_name] = known
        return known[1]


def describe_model(engine: Any) -> str:
    """Return what identifies the weights behind the served name."""
    config = getattr(engine, "model_config", None)
    names = ("model", "revision", "dtype", "quantization")
    parts = [getattr(config, name, None) for name in names]
    for source in dict.fromkeys((parts[0], getattr(config, "tokenizer", None))):
        files = None if source is None else hash_files(Path(source))
        if files is not None:
            parts.append(files)
    # Of a model from a hub; a revision such as `main` moves.
    commit = getattr(getattr(config, "hf_config", None), "_commit_hash", None)
    parts += [commit] if commit else []
    # Flags with which the same weights answer otherwise.
    parts += [
        f"{name}={value}"
        for name in ("hf_overrides", "logits_processors")
        if (value := getattr(config, name, None))
    ]
    return "|".join(map(str, parts))


def hash_files(path: Path) -> str | None:
    """Return a hash of a file, or of a folder's weights and settings; None if it is neither.

    The same content on another machine has the same hash.
    """
    digest = hashlib.sha256()
    try:
        files = [path] if path.is_file() else sorted(path.iterdir())
        for each in files:
            if each.suffix in _SUFFIXES and each.is_file():
                with each.open("rb") as file:
                    size = file.seek(0, 2)
                    digest.update(f"{each.name} {size}\n".encode())
                    step = max(size // _NUM_PIECES, _PIECE_BYTES)
                    for start in range(0, size, step):
                        file.seek(start)
                        digest.update(file.read(_PIECE_BYTES))
    except OSError:
        return None
    return digest.hexdigest()[:16]
