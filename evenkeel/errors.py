"""Every error that evenkeel raises on purpose, and the command's exit code for each.

    EvenkeelError               1
    ├── RegressionError         1   a gate or objective was breached
    ├── ConfigurationError      2   a setting, file or argument is wrong
    │   ├── MissingPartError    2   an optional part is not installed
    │   └── UnusableFileError   2   a file that evenkeel keeps cannot be read or written
    └── CannotMeasureError      3   the requested value could not be measured
        ├── KeyRefusedError     3   a model server answers, and refuses the key
        └── StoreError          3   the store did not answer, or refused the query
            └── StoreLoginError 3   it answers, and asks for another login

Each message says in one line what failed, the value seen, and what to do.
"""

from __future__ import annotations

import os
from pathlib import Path


class EvenkeelError(Exception):
    """Base of all expected errors; printed as one line, never as a traceback."""

    exit_code = 1


class RegressionError(EvenkeelError):
    """A gate failed or an objective was breached."""

    exit_code = 1


class ConfigurationError(EvenkeelError):
    """A setting, file or argument is wrong; nothing was started."""

    exit_code = 2


class MissingPartError(ConfigurationError):
    """A command needs an extra that is not installed."""


class UnusableFileError(ConfigurationError):
    """A file that evenkeel keeps cannot be read or written: a full disk, permissions, a lock."""


class CannotMeasureError(EvenkeelError):
    """The requested value could not be measured; no verdict was reached."""

    exit_code = 3


class KeyRefusedError(CannotMeasureError):
    """A model server answers, but does not accept the key; waiting does not help."""


class StoreError(CannotMeasureError):
    """The store could not be reached, or refused a query."""


class StoreLoginError(StoreError):
    """The store answers, but does not accept the user, password or token."""


def first_line(
    error: BaseException, max_chars: int | None = None, folder: Path | None = None
) -> str:
    """Return the first line of an error's message, or its type's name if it has no message.

    For an OSError, return only the reason, because callers name the file themselves. Redact a line
    that may contain a secret before truncating it.

    Args:
        error: The error.
        max_chars: Truncate the line to this length.
        folder: The path that the caller names; if an OSError is about another one, such as a file
            in the folder, its path precedes the reason.
    """
    message = (error.strerror if isinstance(error, OSError) else None) or str(error)
    if folder is not None and isinstance(error, OSError) and error.strerror and error.filename:
        path = Path(os.fsdecode(error.filename))
        message = message if path == folder else f"{path}: {message}"
    lines = message.strip().splitlines() or [type(error).__name__]
    return lines[0][:max_chars]
