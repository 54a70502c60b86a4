"""Says which name may be meant by one that is not known."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_MOST_LISTED = 10


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return what ends a message about an unknown name: the closest name, else those there are.

    `did you mean 'acme'?`, or `there are acme, globex and 3 more`; "" if none is known.
    """
    names = [each for each in known if each]
    by_lower = {each.lower(): each for each in names}
    close = get_close_matches(name.lower(), by_lower, n=1)
    if close:
        return f"did you mean {by_lower[close[0]]!r}?"
    if not names:
        return ""
    left = len(names) - _MOST_LISTED
    listed = ", ".join(names[:_MOST_LISTED])
    return f"there are {listed} and {left} more" if left > 0 else f"there are {listed}"
