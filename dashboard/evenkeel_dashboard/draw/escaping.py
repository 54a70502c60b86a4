"""Makes users' text safe to put into HTML, and safe to read: names come from anybody's spans."""

from __future__ import annotations

import html
import re

# More of a text than this is not drawn: it would slow the browser down, and nobody reads it.
MAX_TEXT = 10_000
# Characters that nobody sees, but that make two names look alike or reverse the text around them:
# control characters, zero-width ones, overrides of the direction, and tags.
_UNSEEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u200b\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f]"
)


def visible(text: str, most: int = MAX_TEXT) -> str:
    """Return a text with its invisible characters as [U+202E], cut if it is very long.

    Joiners and marks that scripts and emoji need stay as they are.

    Args:
        text: Any text.
        most: Characters to keep.
    """
    if len(text) > most:
        text = f"{text[:most]}… ({len(text):,} characters)"
    return _UNSEEN.sub(lambda found: f"[U+{ord(found[0]):04X}]", text)


def escape(text: str) -> str:
    """Return a text for HTML, as content or within a quoted attribute, with nothing hidden in it.

    An attribute whose exact text matters, such as what a button copies, needs `exactly`.
    """
    return html.escape(visible(text))


def exactly(text: str) -> str:
    """Return a text for an HTML attribute that keeps each of its characters."""
    return html.escape(text)
