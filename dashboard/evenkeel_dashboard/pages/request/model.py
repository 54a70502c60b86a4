"""Explains one request from its row and its neighbours': phases, and concurrent prefills."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.engines.reported import silent_sources
from evenkeel.token_latency import zero_gap_note
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.frame.selection import END_MS
from evenkeel_dashboard.pages.request.token_model import STALL_FACTOR, Emission, untold_s

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RequestPhase:
    """A phase of a request, in seconds since the arrival of the request shown on the page."""

    name: str
    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """Length in seconds."""
        return self.end_s - self.start_s


def phases(row: Row, offset_s: float = 0.0) -> list[RequestPhase]:
    """Return the phases that the request reached, in order; prefill ends with the first token."""
    found, start_s = [], offset_s + untold_s(row)
    for name in ("queue", "prefill", "decode"):
        duration_s = row[f"{name}_s"]
        if duration_s is None:
            break
        found.append(RequestPhase(name, start_s, start_s + duration_s))
        start_s += duration_s
    return found


def nothing_drawn_words(row: Row) -> str:
    """Return why a request has no timeline."""
    silent = silent_sources([row["source"]], "queue_s")
    if silent:
        return f"When it was queued, prefilled and decoded is not reported by {silent[0]}."
    return "It reached neither the engine nor a cache, so there is nothing to draw."


def explanation(row: Row, series: Sequence[Emission], neighbours: Sequence[Row]) -> list[str]:
    """Return sentences on why the request took as long as it did, most important first."""
    sentences = []
    if row["ttft_s"] is not None:
        sentences.append(_first_token_words(row))
    elif row["status"] != "ok":
        sentences.append(_no_token_words(row))
    sentences += _crowd_words(row, neighbours)
    stalls = [token for token in series if token.is_stall]
    if stalls:
        sentences.append(_stall_words(stalls, neighbours))
    return sentences


def _first_token_words(row: Row) -> str:
    found = ""
    if row["input_tokens"] and row["cached_tokens"] is not None:
        missing = row["input_tokens"] - row["cached_tokens"]
        found = (
            f" It had {formats.count(row['input_tokens'])} input tokens, "
            f"{formats.count(missing)} of them not cached."
        )
    came = f"The first token came after {formats.seconds(row['ttft_s'])}"
    if row["queue_s"] is None and row["prefill_s"] is None:
        return f"{came}.{found}"
    return f"{came}, {_longest_phase(row, row['ttft_s'])}.{found}"


def _no_token_words(row: Row) -> str:
    ended = f"It ended without a token after {formats.seconds(row['e2e_s'])}"
    if not row["queue_s"] and not row["prefill_s"]:
        return f"{ended}: {row['status']}."
    return f"{ended}, {_longest_phase(row, row['e2e_s'])}: {row['status']}."


def _longest_phase(row: Row, total_s: float | None) -> str:
    queue_s, prefill_s = row["queue_s"] or 0.0, row["prefill_s"] or 0.0
    spent = [("queue", queue_s), ("prefill", prefill_s), ("outside its engine", untold_s(row))]
    name, spent_s = max(spent, key=lambda item: item[1])
    share = spent_s / total_s if total_s else 0.0
    return f"{formats.percent(share)} of it {name} ({formats.seconds(spent_s)})"


def _crowd_words(row: Row, neighbours: Sequence[Row]) -> list[str]:
    """Return a sentence on the concurrent prefill before this request's first token, or its end."""
    until_s = row["ttft_s"] if row["ttft_s"] is not None else row["e2e_s"] or 0.0
    crowd = prefilling(neighbours, 0.0, until_s)
    if not crowd:
        return []
    total = sum(neighbour["prefilled_tokens"] or 0 for neighbour in crowd)
    largest = max(neighbour["prefilled_tokens"] or 0 for neighbour in crowd)
    verb = "prompt was" if len(crowd) == 1 else "prompts were"
    return [
        f"Meanwhile {len(crowd)} other {verb} being processed "
        f"({formats.count(total)} tokens); the largest had {formats.count(largest)}."
    ]


def _stall_words(stalls: Sequence[Emission], neighbours: Sequence[Row]) -> str:
    worst = max(stalls, key=lambda token: token.gap_s or 0.0)
    gap_s = worst.gap_s or 0.0
    during = prefilling(neighbours, worst.time_s - gap_s, worst.time_s)
    count = "One gap is" if len(stalls) == 1 else f"{len(stalls)} gaps are"
    who = (
        f", while {len(during)} other request{'s' if len(during) > 1 else ''} prefilled"
        if during
        else ""
    )
    return (
        f"{count} more than {STALL_FACTOR:.0f}× the median; the longest is "
        f"{formats.seconds(gap_s)}, {formats.seconds(worst.time_s - gap_s)} after arrival{who}."
    )


def prefilling(neighbours: Sequence[Row], start_s: float, end_s: float) -> list[Row]:
    """Return the neighbours in prefill at any time in a period, in seconds since our arrival."""
    found = []
    for neighbour in neighbours:
        for phase in phases(neighbour, neighbour["offset_s"]):
            if phase.name == "prefill" and phase.start_s < end_s and phase.end_s > start_s:
                found.append(neighbour)
    return found


def near_time_ms(text: str) -> int:
    """Return the URL's time near a request, Unix milliseconds; 0 if it has none."""
    at_ms = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0
    return at_ms if at_ms < END_MS else 0


def is_trace_id(text: str) -> bool:
    """Return whether a text is a trace id: 32 hexadecimal digits."""
    return len(text) == 32 and set(text.lower()) <= set("0123456789abcdef")


def ids_to_find(wanted: str) -> list[str]:
    """Return the ids to look a request up by: as typed, and a trace id as it is stored."""
    return list(dict.fromkeys((wanted, wanted.lower() if is_trace_id(wanted) else wanted)))


def gap_words(gap_s: float | None) -> str:
    """Return a percentile of the gaps between tokens in words; 0 needs a reason."""
    words, note = formats.seconds(gap_s), zero_gap_note(gap_s)
    return f"{words} ({note})" if note else words


def answer_facts(row: Row) -> list[tuple[str, str]]:
    """Return what the answer's tokens say of it, as far as it is known."""
    texts: dict[str, tuple[str, Callable[[Any], str]]] = {
        "first visible token": ("visible_ttft_s", formats.seconds),
        "reasoning tokens": ("reasoning_tokens", formats.count),
        "visible tokens": ("visible_tokens", _visible_words),
        "repeated": ("repeated_share", formats.percent),
        "tool calls that did not parse": ("tool_calls_failed", formats.count),
    }
    return [
        (name, words(row[column]))
        for name, (column, words) in texts.items()
        if row.get(column) is not None
    ]


def _visible_words(tokens: int) -> str:
    return formats.count(tokens) if tokens else "none: the answer is empty"
