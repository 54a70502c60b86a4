"""Stops expressions of a dataset that would search one answer for hours."""

from __future__ import annotations

import signal
import threading
from types import FrameType

from evenkeel_evals.scorers.base import Judge, Score

# CPU time for one answer; a sound expression takes milliseconds for a megabyte.
LIMIT_S = 2.0


class _OutOfTimeError(Exception):
    """An answer takes too long to judge."""


def limited(judge: Judge) -> Judge:
    """Return the judge with a limit on its CPU time; an answer that exceeds it is unscored.

    `re` cannot be stopped from outside, but it looks for signals while it searches. Only the main
    thread receives them, so there is no limit in others.
    """

    def within_limit(answer: str) -> Score:
        if threading.current_thread() is not threading.main_thread():
            return judge(answer)
        before = signal.signal(signal.SIGVTALRM, _stop)
        signal.setitimer(signal.ITIMER_VIRTUAL, LIMIT_S)
        try:
            return judge(answer)
        except _OutOfTimeError:
            return Score.unscored(f"its expression takes over {LIMIT_S:g} s on this answer")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)

    return within_limit


def _stop(signal_number: int, frame: FrameType | None) -> None:
    raise _OutOfTimeError
