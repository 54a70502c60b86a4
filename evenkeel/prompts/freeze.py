"""Which prompts may not be promoted, since an SLO has spent its error budget.

The collector writes the file `frozen.json` into the folder of prompts; who promotes reads it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel.synced_text import replace_text
from evenkeel.times import minute_text

FILE_NAME = "frozen.json"


@dataclass(frozen=True, slots=True)
class Freeze:
    """One SLO's freeze.

    Attributes:
        slo: The SLO whose budget is spent.
        prompt: Which prompt; '' for all of them.
        since_s: Unix seconds.
    """

    slo: str
    prompt: str
    since_s: int


def read_freezes(folder: Path) -> list[Freeze]:
    """Return what is frozen.

    Raises:
        ConfigurationError: If the file is damaged.
    """
    path = folder / FILE_NAME
    try:
        return [Freeze(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"{path} is damaged: {error}") from error


def write_freezes(folder: Path, freezes: Sequence[Freeze]) -> None:
    """Replace what is frozen; without any there is no file.

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
        raise ConfigurationError(f"{path} cannot be removed: {error.strerror}") from error


def check_not_frozen(folder: Path, prompt: str) -> None:
    """Refuse a promotion while an SLO freezes it.

    Raises:
        ConfigurationError: If one does; names it and since when.
    """
    for freeze in read_freezes(folder):
        if freeze.prompt in ("", prompt):
            since = f"{minute_text(freeze.since_s * 10**9)} UTC"
            raise ConfigurationError(
                f"promotion is frozen: SLO {freeze.slo!r} has spent its error budget, since {since}"
            )
