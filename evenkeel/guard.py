"""A boundary at which errors are caught: all are counted, the first of a row is logged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock


@dataclass(slots=True)
class ErrorGuard:
    """Counts the errors caught at one boundary, and logs the first until `clear`; thread-safe.

    Attributes:
        log: Such as `logger.error`; `message` has a place for the error.
        expected: Types that are no defect of ours, logged without a traceback.
        count: Called for each error, such as a metric's `inc`.
        num_errors: How many there were; `clear` does not set it back.
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
        """Have the next error logged again; return whether there was one since the last time."""
        with self._lock:
            was_failing, self._is_failing = self._is_failing, False
        return was_failing
