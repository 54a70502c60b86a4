"""How long to wait before trying again: as long as the receiver asks, else longer each time."""

from __future__ import annotations

import random
import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

LONGEST_ASKED_S = 86_400.0


def read_retry_after(text: str | None, now: datetime | None = None) -> float | None:
    """Return the seconds that a `Retry-After` header, a number or a date, asks to wait.

    From 0 to a day; None if the header is missing or unreadable (RFC 9110, 10.2.3).

    Args:
        text: The header.
        now: The current time, for dates.
    """
    text = (text or "").strip()
    if re.fullmatch(r"\d+(\.\d+)?", text, re.ASCII):
        return min(float(text), LONGEST_ASKED_S)
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    wait_s = (moment - (now or datetime.now(UTC))).total_seconds()
    return min(max(0.0, wait_s), LONGEST_ASKED_S)


class RetryDelay:
    """Delays that double from one failure to the next, each within 50% of that.

    The jitter keeps those who failed together from returning together.

    Args:
        first_s: The first delay, before jitter.
        longest_s: No delay is longer, whatever the receiver asks.
    """

    def __init__(self, first_s: float, longest_s: float) -> None:
        self._step_s = first_s
        self._longest_s = longest_s

    def next_s(self, asked_s: float | None = None) -> float:
        """Return the delay after one more failure.

        Args:
            asked_s: How long the receiver asked to wait, if it did.
        """
        longest_s = min(self._step_s * 1.5, self._longest_s)
        delay_s = asked_s or random.uniform(self._step_s * 0.5, longest_s)
        self._step_s = min(self._step_s * 2, self._longest_s)
        return min(delay_s, self._longest_s)
