"""How a label of a prompt moves: one rule, for `evenkeel prompts` and for the operators' API."""

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
from evenkeel.errors import ConfigurationError
from evenkeel.prompts.gate_verdict import JudgedRun
from evenkeel.prompts.registry import DRAFT, Move, PromptRegistry, PromptVersion

LOCK_NAME = ".lock"
# Moves take milliseconds; who waits longer waits for a process that hangs.
_LONGEST_WAIT_S = 10.0
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Promotion:
    """A label that is to mean another text.

    Attributes:
        prompt: The text.
        label: Which label.
        author: Who does it.
        run: The run that lets it go there; None if a reason does.
        reason: Why it goes there without a run.
    """

    prompt: PromptVersion
    label: str
    author: str
    run: JudgedRun | None = None
    reason: str = ""

    def to_entry(self, now_ns: int) -> AuditEntry:
        """Return what the audit keeps of it where no token is asked for, but for the result."""
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
    """A label that is to mean what it meant before.

    Attributes:
        name: The prompt's name.
        label: Which label.
        author: Who does it.
        reason: Why; kept in the history.
    """

    name: str
    label: str
    author: str
    reason: str = ""

    def to_entry(self, now_ns: int) -> AuditEntry:
        """Return what the audit keeps of it where no token is asked for, but for the result."""
        details = {"prompt": self.name, "label": self.label, "reason": self.reason}
        return AuditEntry(now_ns, self.author, "", "rollback", details)


@dataclass(frozen=True, slots=True)
class LabelMove:
    """What came of a promotion or a reversal.

    Attributes:
        label: Which label.
        version: What it means now.
        before: What it meant; None if it is new, `version` if nothing had to move.
        why: What the history says of it; "" if nothing had to move.
    """

    label: str
    version: str
    before: str | None
    why: str = ""

    def to_record(self) -> dict[str, Any]:
        """Return it for the audit and for the API's answer."""
        return {"label": self.label, "is": self.version, "was": self.before}


def find_text(registry: PromptRegistry, name: str, version: str) -> PromptVersion:
    """Return a kept version, or the draft if it is that version.

    Raises:
        ConfigurationError: If it is neither.
    """
    if version in registry.versions(name):
        return registry.resolve(f"{name}@{version}")
    draft = registry.resolve(f"{name}@{DRAFT}")
    if draft.version != version:
        raise ConfigurationError(
            f"{name}@{version} is neither kept nor the draft, which is {draft.version}"
        )
    return draft


def promote(registry: PromptRegistry, wanted: Promotion, now_ns: int) -> LabelMove:
    """Move a label forward: after a run that passed with these texts, or for a reason.

    A label that means the text already stays as it is, and its history too.

    Raises:
        ConfigurationError: If promotion is frozen, the run had other texts, or there is neither a
            run nor a reason.
        RegressionError: If the run regressed.
        CannotMeasureError: If the run could not tell.
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
            raise ConfigurationError("a promotion needs a run that passed, or a reason")
        why = f"{why} ({wanted.author})"
        run_id = wanted.run.run_id if wanted.run is not None else None
        registry.keep(prompt)
        registry.move(prompt.name, Move(now_ns // 10**9, label, prompt.version, why, run_id))
    return LabelMove(label, prompt.version, current, why)


def roll_back(registry: PromptRegistry, wanted: Reversal, now_ns: int) -> LabelMove:
    """Move a label back.

    Raises:
        ConfigurationError: If it has nothing to go back to.
    """
    name, label = wanted.name, wanted.label
    with _moving(registry.folder):
        current = registry.labels(name).get(label)
        previous = registry.previous(name, label)
        if current is None or previous is None:
            raise ConfigurationError(f"{name}@{label} has nothing to go back to")
        registry.resolve(f"{name}@{previous}")
        why = f"{wanted.reason.strip() or 'rolled back'} ({wanted.author})"
        move = Move(now_ns // 10**9, label, previous, why, None, is_rollback=True)
        registry.move(name, move)
    return LabelMove(label, previous, current, why)


def _check_texts(run: JudgedRun, prompt: PromptVersion, current: str | None) -> None:
    if run.candidate != prompt.version:
        raise ConfigurationError(
            f"run {run.run_id} had another text than {prompt.label} as candidate"
        )
    if current is not None and run.baseline != current:
        raise ConfigurationError(
            f"run {run.run_id} did not compare with {prompt.name}@{current}, which is in use"
        )


@contextmanager
def _moving(folder: Path) -> Iterator[None]:
    """Keep every other process and thread from moving labels of the folder meanwhile.

    A label file is read, then replaced: two moves at once would lose one.
    """
    path = folder / LOCK_NAME
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be locked: {error.strerror}") from error
    try:
        _lock(fd, path)
        yield
    finally:
        # The lock goes with it.
        os.close(fd)


def _lock(fd: int, path: Path) -> None:
    give_up_s = time.monotonic() + _LONGEST_WAIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= give_up_s:
                raise ConfigurationError(
                    f"another process has been moving labels for {_LONGEST_WAIT_S:g} s ({path}); "
                    "end it, or try again"
                ) from error
            time.sleep(_POLL_S)
        except OSError as error:
            raise ConfigurationError(f"{path} cannot be locked: {error.strerror}") from error
        else:
            return
