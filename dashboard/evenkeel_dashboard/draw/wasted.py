"""Tokens that an engine computed for nothing, by cause."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.escaping import escape
from evenkeel_dashboard.draw.markup import key, phase_bar

Row = Mapping[str, Any]

_CAUSES = {
    "rejected_drafts": "rejected drafts",
    "client_left": "generated after the client left",
    "evicted": "prompts computed again after eviction",
    "failed": "answers that failed",
}
# Not part of the request's own tokens.
_EXTRA = ("rejected_drafts", "client_left")


@dataclass(frozen=True, slots=True)
class WastedTokens:
    """Wasted tokens of a range.

    Attributes:
        by_cause: Tokens by cause in words, most first; causes without tokens are left out.
        computed: All tokens computed, the wasted ones included.
    """

    by_cause: Mapping[str, float]
    computed: float

    @property
    def total(self) -> float:
        """Their sum."""
        return sum(self.by_cause.values())

    def words(self) -> str:
        """Return the sum, its share of all computed tokens, and the causes."""
        if not self.by_cause:
            return f"Wasted tokens: {'none' if self.computed else formats.NO_DATA}."
        causes = ", ".join(f"{formats.count(n)} {cause}" for cause, n in self.by_cause.items())
        share = formats.percent(self.total / self.computed if self.computed else None)
        return f"Wasted tokens: {formats.count(self.total)} ({share} of all computed): {causes}."


def wasted_tokens(row: Row) -> WastedTokens:
    """Return a row of the query `wasted_tokens` by cause."""
    found = {words: float(row[column] or 0) for column, words in _CAUSES.items()}
    present = sorted(((n, words) for words, n in found.items() if n > 0), reverse=True)
    extra = sum(float(row[column] or 0) for column in _EXTRA)
    return WastedTokens(
        {words: n for n, words in present}, float(row["useful_and_failed"] or 0) + extra
    )


def wasted_markup(found: WastedTokens, colours: Palette) -> str:
    """Return the wasted tokens as a bar with its legend, or as one line if there are none."""
    words = f'<div class="ek-remark" data-wasted>{escape(found.words())}</div>'
    if not found.by_cause:
        return words
    parts = [
        (cause, colours.categories[i % len(colours.categories)], n)
        for i, (cause, n) in enumerate(found.by_cause.items())
    ]
    legend = key([(f"{cause} {formats.count(n)}", colour) for cause, colour, n in parts])
    bar = phase_bar(parts, found.total, formats.count)
    return f"{words}{bar}{legend}"
