"""The prompt registry on disk: drafts, content-addressed versions, labels with their history.

    prompts/
      support.toml                       the draft, edited by people
      versions/support/3f2a….toml        one file per version, never changed
      labels/support.json                the version each label points at, with its history

A version is the first 12 hex digits of the SHA-256 of the text, so the same text has the same
version everywhere, and a label always points at exactly one text.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from evenkeel.errors import ConfigurationError
from evenkeel.prompts.freeze import check_not_frozen
from evenkeel.synced_text import replace_text
from evenkeel.toml_file import read_toml_file

DRAFT = "draft"
LABELS = ("production", "canary")
DIGITS = 12
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_VERSION = re.compile(rf"[0-9a-f]{{{DIGITS}}}")


class _PromptFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    system: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class PromptVersion:
    """One text under one name.

    Attributes:
        name: The prompt's name.
        version: Digest of the text.
        system: The text, used as the system message.
    """

    name: str
    version: str
    system: str

    @property
    def label(self) -> str:
        """Return `name@version`, as spans carry it."""
        return f"{self.name}@{self.version}"


@dataclass(frozen=True, slots=True)
class Move:
    """One move of a label: an entry of its history.

    Attributes:
        time_s: Unix seconds.
        label: Which label.
        version: The version it points at since.
        reason: The run that passed, or the reason it was forced or rolled back.
        run_id: The run that passed; None if none did.
        is_rollback: Whether the label was rolled back.
    """

    time_s: int
    label: str
    version: str
    reason: str
    run_id: str | None
    is_rollback: bool = False


def digest(system: str) -> str:
    """Return the version of a text."""
    return hashlib.sha256(system.encode()).hexdigest()[:DIGITS]


class PromptRegistry:
    """Reads and writes a folder of prompts.

    Args:
        folder: The folder, such as `prompts`.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def folder(self) -> Path:
        """Return the folder."""
        return self._folder

    def check_not_frozen(self, name: str) -> None:
        """Raise an error if an SLO freezes this promotion.

        Raises:
            ConfigurationError: If one does; names it and the start.
        """
        check_not_frozen(self._folder, name)

    def names(self) -> list[str]:
        """Return the prompts that have a draft or a label, sorted; other files are no prompts."""
        files = (*self._folder.glob("*.toml"), *(self._folder / "labels").glob("*.json"))
        return sorted({path.stem for path in files if _NAME.fullmatch(path.stem)})

    def versions(self, name: str) -> list[str]:
        """Return the stored versions, oldest first."""
        found = (self._folder / "versions" / name).glob("*.toml")
        return [p.stem for p in sorted(found, key=lambda p: (p.stat().st_mtime_ns, p.stem))]

    def draft(self, name: str) -> PromptVersion:
        """Return the draft.

        Raises:
            ConfigurationError: If there is none, or its file is wrong.
        """
        return self._read(name, self._folder / f"{_checked(name)}.toml")

    def resolve(self, reference: str) -> PromptVersion:
        """Resolve `name@label`, `name@version`, `name@draft` or `name` (production).

        Raises:
            ConfigurationError: If there is no such prompt, or the stored text does not match its
                version.
        """
        name, _, selector = reference.partition("@")
        selector = selector or LABELS[0]
        if selector == DRAFT:
            return self.draft(name)
        version = selector
        if _VERSION.fullmatch(selector) is None:
            labels = self.labels(name)
            if selector not in labels:
                if name not in self.names():
                    # It has neither a label nor a draft: the draft's error lists the prompts.
                    self.draft(name)
                known = ", ".join([*labels, DRAFT])
                raise ConfigurationError(f"prompt {name!r} has no {selector!r}; it has {known}")
            version = labels[selector]
        path = self._folder / "versions" / _checked(name) / f"{version}.toml"
        found = self._read(name, path)
        if found.version != version:
            raise ConfigurationError(f"{path} was changed: its text is version {found.version}")
        return found

    def keep(self, prompt: PromptVersion) -> None:
        """Store a text as a version; does nothing if it is already stored."""
        path = self._folder / "versions" / _checked(prompt.name) / f"{prompt.version}.toml"
        if not path.exists():
            # TOML's strings are JSON's, but for DEL, which TOML wants escaped.
            text = json.dumps(prompt.system, ensure_ascii=False).replace("\x7f", "\\u007f")
            replace_text(path, f"system = {text}\n")

    def labels(self, name: str) -> dict[str, str]:
        """Return the version each label points at."""
        return {move.label: move.version for move in self.history(name)}

    def history(self, name: str) -> list[Move]:
        """Return every move of a label, oldest first.

        Raises:
            ConfigurationError: If the file is damaged.
        """
        path = self._folder / "labels" / f"{_checked(name)}.json"
        if not path.exists():
            return []
        try:
            return [Move(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]
        except (OSError, ValueError, RecursionError, TypeError) as error:
            raise ConfigurationError(f"{path} is damaged: {error}") from error

    def move(self, name: str, move: Move) -> None:
        """Set a label; the file is replaced atomically, so readers see the old one or the new one.

        Raises:
            ConfigurationError: If the folder cannot be written.
        """
        moves = [asdict(entry) for entry in [*self.history(name), move]]
        path = self._folder / "labels" / f"{_checked(name)}.json"
        replace_text(path, json.dumps(moves, indent=1, ensure_ascii=False) + "\n")

    def previous(self, name: str, label: str) -> str | None:
        """Return the version a label rolls back to; None if there is none.

        Rolling back twice goes back two versions, never forward to the bad one.
        """
        stack: list[str] = []
        for move in self.history(name):
            if move.label == label and move.is_rollback:
                stack.pop()
            elif move.label == label:
                stack.append(move.version)
        return stack[-2] if len(stack) > 1 else None

    def _read(self, name: str, path: Path) -> PromptVersion:
        if not path.exists():
            known = ", ".join(self.names()) or "none"
            raise ConfigurationError(f"{path} is not there; prompts here: {known}")
        prompt = read_toml_file(path, _PromptFile)
        return PromptVersion(name, digest(prompt.system), prompt.system)


def _checked(name: str) -> str:
    if _NAME.fullmatch(name) is None:
        raise ConfigurationError(
            f"{name!r} is not a prompt name; use a-z, 0-9, - and _, such as support"
        )
    return name
