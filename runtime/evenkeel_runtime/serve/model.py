"""Resolve the MODEL argument before anything slow starts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError, MissingPartError

DEMO = "demo"
DEMO_SERVED_NAME = "support"
SPECULATE_AUTO = "auto"
SPECULATE_DRAFT = "draft"
_HUB_ID = re.compile(r"[\w-][\w.-]*(/[\w-][\w.-]*)?")
# One token ahead a draft step costs little; beyond 4 the tiny draft model is rarely right.
_NUM_DRAFT_TOKENS = 4


@dataclass(frozen=True, slots=True)
class ModelSource:
    """A model as vLLM expects it.

    Attributes:
        model: A folder, or a name on the Hugging Face hub.
        is_local: Whether it is a folder, so nothing needs to be downloaded.
        flags: vLLM flags for it; the user's own flags come later and win.
    """

    model: str
    is_local: bool
    flags: tuple[str, ...] = ()


def find_model(word: str, speculate: str | None = None) -> ModelSource:
    """Return the model that `word` names: `demo`, a folder, or a name on the hub.

    Args:
        word: What the user wrote.
        speculate: `draft` for the demo model's draft model, which is its default; any other value
            leaves the model's own speculation out.

    Raises:
        ConfigurationError: If there is no such folder, or it holds no model.
        MissingPartError: If the demo model is not part of this installation.
    """
    if word == DEMO:
        return _demo(speculate)
    if speculate == SPECULATE_DRAFT:
        raise ConfigurationError(
            "--speculate draft works with the demo model only; for other models give `--speculate "
            "auto` or vLLM's --speculative-config"
        )
    path = Path(word).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file() and not list(path.glob("*.gguf")):
            raise ConfigurationError(f"{word} is not a model folder: config.json is missing")
        return ModelSource(str(path), is_local=True)
    if path.is_file():
        return ModelSource(str(path), is_local=True)
    if _HUB_ID.fullmatch(word) and not path.is_absolute():
        return _hub(word)
    if "://" in word or ":" in word:
        return ModelSource(word, is_local=False)
    raise ConfigurationError(
        f"no model at {word!r}: give a folder with a config.json, a name on the Hugging Face hub, "
        f"or `{DEMO}`; MODEL comes before vLLM's own flags"
    )


def _hub(name: str) -> ModelSource:
    """Return a hub model; fail at once if it is neither cached nor on the hub."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import RepositoryNotFoundError

    if isinstance(try_to_load_from_cache(name, "config.json"), str):
        return ModelSource(name, is_local=False)
    try:
        HfApi().model_info(name, timeout=5)
    except RepositoryNotFoundError as error:
        reason = "the Hugging Face hub has no such model, or shows it only with a token"
        raise ConfigurationError(
            f"no model {name!r}: no such folder, and {reason}; check the name, or set HF_TOKEN"
        ) from error
    except Exception as error:
        reason = f"the Hugging Face hub is not responding ({type(error).__name__})"
        raise ConfigurationError(
            f"no model {name!r}: no such folder, it is not in the cache, and {reason}; "
            "MODEL comes before vLLM's own flags"
        ) from error
    return ModelSource(name, is_local=False)


def _demo(speculate: str | None) -> ModelSource:
    try:
        from evenkeel_runtime.demo_model.checkpoint import draft_path, target_path
    except ModuleNotFoundError as error:
        raise MissingPartError("the demo model is not part of this installation") from error
    flags: Sequence[str] = ("--served-model-name", DEMO_SERVED_NAME, "--enforce-eager")
    if speculate in (None, SPECULATE_DRAFT):
        flags = (
            *flags,
            "--speculative-config.method",
            "draft_model",
            "--speculative-config.model",
            str(draft_path()),
            "--speculative-config.num_speculative_tokens",
            str(_NUM_DRAFT_TOKENS),
        )
    return ModelSource(str(target_path()), is_local=True, flags=tuple(flags))
