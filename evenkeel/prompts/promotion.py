"""Moves a prompt's label by the same rules for `evenkeel prompts` and the operators' API."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.audit import AuditEntry
from evenkeel.errors import ConfigurationError, UnusableFileError
from evenkeel.prompts.gate_verdict import JudgedRun
from evenkeel.prompts.registry import DRAFT, Move, PromptRegistry, PromptVersion

LOCK_NAME = ".lock"
# Moves take milliseconds; a longer wait means another process hangs.
_LONGEST_WAIT_S = 10.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Promotion:
    """A request to point a label at another text.

    Attributes:
        prompt: The text.
        label: Which label.
        author: Who requests it.
        run: The run that justifies it; None if a reason does.
        reason: The justification without a run.
    """

    prompt: PromptVersion
    label: str
    author: str
    run: JudgedRun | None = None
    reason: str = ""

    def to_entry(self, now_ns: int) -> AuditEntry:
        """Return the audit entry, without the result, for callers that need no token."""
        details = {
            "prompt": self.prompt.name,
            "version": self.prompt.version,
            "label": self.label,
            "run_id": None if self.run is None else self.run.run_id,
            "reason": self.reason,
        }
        return AuditEntry(now_ns, self.author, "", "promote", details)


@dataclass(frozen=True, slots=True)
class Reversal:
    """A request to point a label back at its previous version.

    Attributes:
        name: The prompt's name.
        label: Which label.
        author: Who requests it.
        reason: The reason; stored in the history.
    """

    name: str
    label: str
    author: str
    reason: str = ""

    def to_entry(self, now_ns: int) -> AuditEntry:
        """Return the audit entry, without the result, for callers that need no token."""
        details = {"prompt": self.name, "label": self.label, "reason": self.reason}
        return AuditEntry(now_ns, self.author, "", "rollback", details)


@dataclass(frozen=True, slots=True)
class LabelMove:
    """The result of a promotion or a rollback.

    Attributes:
        label: Which label.
        version: The version it now points at.
        before: The version it pointed at; None if it is new, `version` if nothing changed.
        why: The reason in the history; "" if nothing changed.
    """

    label: str
    version: str
    before: str | None
    why: str = ""

    def to_record(self) -> dict[str, Any]:
        """Return the result for the audit and the API's response."""
        return {"label": self.label, "is": self.version, "was": self.before}


def find_text(registry: PromptRegistry, name: str, version: str) -> PromptVersion:
    """Return a stored version, or the draft if it is that version.

    Raises:
        ConfigurationError: If it is neither.
    """
    if version in registry.versions(name):
        return registry.resolve(f"{name}@{version}")
    draft = registry.resolve(f"{name}@{DRAFT}")
    if draft.version != version:
        raise ConfigurationError(
            f"{name}@{version} is neither a stored version nor the draft, which is {draft.version}"
        )
    return draft


def promote(registry: PromptRegistry, wanted: Promotion, now_ns: int) -> LabelMove:
    """Move a label forward: after a run that passed with these texts, or for a reason.

    A label that already points at the text is left unchanged, as is its history.

    Raises:
        ConfigurationError: If promotion is frozen, the run had other texts or compared more than
            the texts, or there is neither a run nor a reason.
        RegressionError: If the run regressed.
        CannotMeasureError: If the run was inconclusive.
    """
    prompt, label = wanted.prompt, wanted.label
    with _moving(registry.folder):
        current = registry.labels(prompt.name).get(label)
        if current == prompt.version:
            return LabelMove(label, current, current)
        if wanted.run is not None:
            registry.check_not_frozen(prompt.name)
            wanted.run.check_passed()
            _check_texts(wanted.run, prompt, current)
            why = f"passed run {wanted.run.run_id}"
        elif wanted.reason.strip():
            why = f"forced: {wanted.reason.strip()}"
        else:
            raise ConfigurationError("a promotion needs a passing run or a reason")
        why = f"{why} ({wanted.author})"
        run_id = wanted.run.run_id if wanted.run is not None else None
        registry.keep(prompt)
        registry.move(prompt.name, Move(now_ns // 10**9, label, prompt.version, why, run_id))
    return LabelMove(label, prompt.version, current, why)


def roll_back(registry: PromptRegistry, wanted: Reversal, now_ns: int) -> LabelMove:
    """Move a label back.

    Raises:
        ConfigurationError: If it has no earlier version.
    """
    name, label = wanted.name, wanted.label
    with _moving(registry.folder):
        current = registry.labels(name).get(label)
        previous = registry.previous(name, label)
        if current is None or previous is None:
            raise ConfigurationError(f"{name}@{label} has no earlier version to roll back to")
        registry.resolve(f"{name}@{previous}")
        why = f"{wanted.reason.strip() or 'rolled back'} ({wanted.author})"
        move = Move(now_ns // 10**9, label, previous, why, None, is_rollback=True)
        registry.move(name, move)
    return LabelMove(label, previous, current, why)


def _check_texts(run: JudgedRun, prompt: PromptVersion, current: str | None) -> None:
    if run.candidate != prompt.version:
        raise ConfigurationError(
            f"run {run.run_id} evaluated a candidate other than {prompt.label}"
        )
    if run.other_changes:
        raise ConfigurationError(
            f"run {run.run_id} compared more than the text: its sides also differ in "
            f"{run.other_changes}; run it again with those the same, or give a reason instead"
        )
    if current is not None and run.baseline != current:
        raise ConfigurationError(
            f"run {run.run_id} was not compared against {prompt.name}@{current}, which is in use"
        )


@contextmanager
def _moving(folder: Path) -> Iterator[None]:
    """Lock the folder's labels against moves by other processes and threads.

    A label file is read, then replaced: of two concurrent moves one would be lost.
    """
    path = folder / LOCK_NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise UnusableFileError(f"{path} cannot be locked: {error.strerror}") from error
    try:
        _lock(fd, path)
        yield
    finally:
        # This releases the lock.
        os.close(fd)


def _lock(fd: int, path: Path) -> None:
    give_up_s = time.monotonic() + _LONGEST_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= give_up_s:
                raise UnusableFileError(
                    f"another process has held the label lock for {_LONGEST_WAIT_S:g} s ({path}); "
                    "stop it, or try again"
                ) from error
            time.sleep(_POLL_S)
        except OSError as error:
            raise UnusableFileError(f"{path} cannot be locked: {error.strerror}") from error
        else:
            return
