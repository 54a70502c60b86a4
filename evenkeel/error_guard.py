"""An error boundary: counts every error and logs the first in a series."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock


@dataclass(slots=True)
class ErrorGuard:
    """Counts the errors caught at one boundary, and logs the first until `clear`; thread-safe.

    Attributes:
        log: Such as `logger.error`; `message` has a placeholder for the error.
        expected: Error types that are not our bugs, logged without a traceback.
        count: Called for each error, such as a metric's `inc`.
        num_errors: Total number of errors; `clear` does not reset it.
    """

    log: Callable[..., object]
    message: str
    expected: type[Exception] | tuple[type[Exception], ...] = ()
    count: Callable[[], object] | None = None
    num_errors: int = field(default=0, init=False)
    _is_failing: bool = field(default=False, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def record(self, error: BaseException) -> None:
        """Count an error; log it if none was recorded since the start or the last `clear`."""
        with self._lock:
            self.num_errors += 1
            is_first, self._is_failing = not self._is_failing, True
        if self.count is not None:
            self.count()
        if is_first:
            trace = None if isinstance(error, self.expected) else error
            self.log(self.message, error, exc_info=trace, stacklevel=2)

    def clear(self) -> bool:
        """Log the next error again; return whether there was one since the last call."""
        with self._lock:
            was_failing, self._is_failing = self._is_failing, False
        return was_failing
