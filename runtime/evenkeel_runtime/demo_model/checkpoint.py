"""Where the demo model's checkpoints lie; importing this loads no torch."""

from __future__ import annotations

from pathlib import Path

from evenkeel.errors import MissingPartError

TARGET = "target"
DRAFT = "draft"
FOLDER = Path(__file__).parent


def target_path() -> Path:
    """Return the folder of the demo model, loadable by vLLM and transformers.

    Raises:
        MissingPartError: If the checkpoint is not installed.
    """
    return find(FOLDER, TARGET)


def draft_path() -> Path:
    """Return the folder of its draft model, which shares the tokenizer.

    Raises:
        MissingPartError: If the checkpoint is not installed.
    """
    return find(FOLDER, DRAFT)


def find(parent: Path, name: str) -> Path:
    """Return `parent`/`name` if a checkpoint is there.

    Raises:
        MissingPartError: If not; the message says how to train one.
    """
    folder = parent / name
    if not (folder / "model.safetensors").is_file():
        raise MissingPartError(
            f"the demo model's {name} checkpoint is missing at {folder}; "
            f"train it with: python -m tools.demo_model.train --output {parent}"
        )
    return folder
