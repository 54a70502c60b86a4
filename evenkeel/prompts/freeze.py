"""Promotion freezes: prompts that may not be promoted because an SLO has spent its error budget.

The collector writes `frozen.json` to the prompts folder; every promotion reads it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError, UnusableFileError
from evenkeel.synced_text import replace_text
from evenkeel.times import minute_text

FILE_NAME = "frozen.json"


@dataclass(frozen=True, slots=True)
class Freeze:
    """One SLO's freeze.

    Attributes:
        slo: The SLO whose budget is spent.
        prompt: The prompt; '' for all prompts.
        since_s: Unix seconds.
    """

    slo: str
    prompt: str
    since_s: int


def read_freezes(folder: Path) -> list[Freeze]:
    """Return the freezes in effect.

    Raises:
        ConfigurationError: If the file is damaged.
    """
    path = folder / FILE_NAME
    try:
        return [Freeze(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError, TypeError) as error:
        raise ConfigurationError(f"{path} is damaged: {error}") from error


def write_freezes(folder: Path, freezes: Sequence[Freeze]) -> None:
    """Replace the freezes in effect; without any, the file is removed.

    Raises:
        ConfigurationError: If the folder cannot be written.
    """
    path = folder / FILE_NAME
    if freezes:
        replace_text(path, json.dumps([asdict(freeze) for freeze in freezes], indent=1) + "\n")
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise UnusableFileError(f"{path} cannot be removed: {error.strerror}") from error


def check_not_frozen(folder: Path, prompt: str) -> None:
    """Raise an error if an SLO freezes this promotion.

    Raises:
        ConfigurationError: If one does; names it and the start.
    """
    for freeze in read_freezes(folder):
        if freeze.prompt in ("", prompt):
            since = f"{minute_text(freeze.since_s * 10**9)} UTC"
            raise ConfigurationError(
                f"promotion is frozen: SLO {freeze.slo!r} has spent its error budget, since {since}"
            )
