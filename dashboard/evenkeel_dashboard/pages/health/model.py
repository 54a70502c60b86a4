"""Computes the health page's verdict and headline tiles from plain rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evenkeel.token_latency import zero_gap_note
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.slo_tiles import slo_state
from evenkeel_dashboard.draw.tiles import StateSummary, Tile

Row = Mapping[str, Any]

# A phase is named as the cause only if it accounts for this share of the growth of TTFT.
_MAIN_CAUSE_SHARE = 0.5
# TTFT growth below this ratio, or below this many seconds, is not reported.
_NOTABLE_GROWTH_RATIO = 1.25
_NOTABLE_GROWTH_S = 0.02
# Means of fewer requests are not compared.
_LEAST_COMPARED = 20
# A headline names this many SLOs, and counts the others.
MAX_NAMED = 5

_ITL = "ITL p95"
_TILES = (
    ("Requests", "requests_per_s", formats.rate, "requests that arrived, whatever their outcome"),
    ("Output tokens", "output_tokens_per_s", formats.rate, "generated for requests in this range"),
    (_ITL, "itl_p99_p95_s", formats.seconds, "p95 across requests of each request's p99 gap"),
    ("TPOT p95", "tpot_p95_s", formats.seconds, "(last − first token) / (output tokens − 1)"),
    ("Errors", "error_ratio", formats.percent, "requests that failed / all requests"),
    ("Aborts", "aborted_ratio", formats.percent, "requests abandoned by the client / all requests"),
    (
        "Cached tokens",
        "cached_token_ratio",
        formats.percent,
        "input tokens found in the prefix cache",
    ),
)
# Shown only where the feature is used: a value of 0 or none means that it is off.
_TILES_IN_USE = (
    ("Shed", "shed_ratio", formats.percent, "requests refused under load / all requests"),
    ("Acceptance", "acceptance_rate", formats.percent, "draft tokens accepted / drafted"),
)


def headline_tiles(summary: Row, previous: Row) -> list[Tile]:
    """Return the headline numbers with their change from the previous range."""
    tiles = [_tile(summary, previous, *tile) for tile in _TILES]
    if note := zero_gap_note(summary["itl_p99_p95_s"]):
        tiles = [
            replace(tile, meaning=f"{tile.meaning}; {note}") if tile.label == _ITL else tile
            for tile in tiles
        ]
    tiles.insert(2, _ttft_tile(summary, previous))
    return tiles + [
        _tile(summary, previous, *tile)
        for tile in _TILES_IN_USE
        if summary[tile[1]] or previous[tile[1]]
    ]


def _tile(
    summary: Row,
    previous: Row,
    label: str,
    column: str,
    words: Callable[[float | None], str],
    meaning: str,
) -> Tile:
    return Tile(
        label=label,
        value=words(summary[column]),
        change=formats.change(summary[column], previous[column]) or "",
        meaning=meaning,
    )


def _ttft_tile(summary: Row, previous: Row) -> Tile:
    """Return p50, p95 and p99 of TTFT in one tile; its change is that of p95."""
    values = [summary[f"ttft_{p}_s"] for p in ("p50", "p95", "p99")]
    has_none = any(value is None for value in values)
    change = formats.change(summary["ttft_p95_s"], previous["ttft_p95_s"])
    return Tile(
        label="TTFT p50 · p95 · p99",
        value=formats.NO_DATA if has_none else " · ".join(map(formats.seconds, values)),
        change=f"p95 {change}" if change else "",
        meaning="first token − arrival, queue included",
        is_wide=True,
    )


@dataclass(frozen=True, slots=True)
class Shown:
    """When and over what a verdict is given.

    Attributes:
        range_words: The range of its figures, such as "in the last hour".
        now_ms: The end of the range, Unix milliseconds.
        is_past: Whether that is in the past, so that the verdict says so.
        burned_ms: By SLO, when it last burned its budget faster than it lasts.
    """

    range_words: str
    now_ms: int
    is_past: bool
    burned_ms: Mapping[str, int | None]


def range_words(duration_s: float, *, is_fixed: bool) -> str:
    """Return a range in words, such as "in the last hour"."""
    if is_fixed:
        return "in this range"
    span = formats.span_of(duration_s)
    return f"in the last {'hour' if span == '1 h' else span}"


def verdict(slos: Sequence[Row], summary: Row, previous: Row, shown: Shown) -> StateSummary:
    """Return whether the service meets its SLOs, and where its time goes.

    An SLO that fires is burning only if its shortest window with events says so; otherwise it has
    recovered, and its alert is still open.
    """
    reason = _reason(summary, previous, shown.range_words)
    firing = [row for row in slos if row["state"] == "firing"]
    burning = [row for row in firing if (_recent(row)[0] or 0.0) > 1]
    at = f"At {formats.moment_ms(shown.now_ms)}, " if shown.is_past else ""
    if burning:
        return StateSummary("bad", f"{at}{_burning_words(burning, is_past=bool(at))}", reason)
    if firing:
        return StateSummary("warning", at + _recovered_words(firing, shown), reason)
    levels = [slo_state(row)[0] for row in slos]
    if "warning" in levels:
        return StateSummary("warning", at + _warned_words(slos, is_past=bool(at)), reason)
    if not slos:
        none = f"{at}no SLO was" if at else "No SLO is"
        return StateSummary("unknown", f"{none} evaluated, so health cannot be judged", reason)
    num_met = levels.count("good")
    stale = [row for row in slos if row["state"] == "stale"]
    failing = [row for row in slos if row["state"] == "unknown"]
    if failing or len(stale) == len(slos):
        words = _unjudged_words(slos, failing, num_met, is_past=bool(at))
        return StateSummary("unknown", at + words if at else words[0].upper() + words[1:], reason)
    if num_met == 0:
        none = f"{at}there was no" if at else "No"
        return StateSummary("unknown", f"{none} data to judge the SLOs", reason)
    words = f"ealthy: {num_met} of {len(slos) - len(stale)} SLOs met, none firing"
    if stale:
        # Others are evaluated: it was taken out of the file.
        verb = _verb(len(stale), is_past=bool(at))
        words += f"; {_listed([row['slo'] for row in stale])} {verb} no longer evaluated"
    return StateSummary("good", f"{at}{'h' if at else 'H'}{words}", reason)


def _warned_words(slos: Sequence[Row], *, is_past: bool) -> str:
    """Return which SLOs are about to fire, or have only spent their budget."""
    warned = [row for row in slos if slo_state(row)[0] == "warning"]
    if any(row["state"] == "pending" for row in warned):
        names = _listed([f"{row['slo']} ({slo_state(row)[1]})" for row in warned])
        return f"{'at' if is_past else 'At'} risk: {names}"
    no, is_ = ("no", "was") if is_past else ("No", "is")
    have, their = ("has", "its") if len(warned) == 1 else ("have", "their")
    have = "had" if is_past else have
    names = _listed([row["slo"] for row in warned])
    return f"{no} SLO {is_} firing, but {names} {have} spent {their} error budget"


def _verb(num: int, *, is_past: bool) -> str:
    if is_past:
        return "was" if num == 1 else "were"
    return "is" if num == 1 else "are"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMED:,} more" if len(names) > MAX_NAMED else ""
    return ", ".join(names[:MAX_NAMED]) + more


def _unjudged_words(
    slos: Sequence[Row], failing: Sequence[Row], num_met: int, *, is_past: bool
) -> str:
    """Return which SLOs cannot be evaluated, or since when none was."""
    if not failing:
        since_ms = max(row["time_ms"] for row in slos)
        if is_past:
            return f"no SLO had been evaluated since {formats.moment_ms(since_ms)}"
        return (
            f"no SLO has been evaluated since {formats.moment_ms(since_ms)}: does the collector "
            "run, with --slos?"
        )
    names = _listed([row["slo"] for row in failing])
    # Their alerts stay as they were, so that some may be firing.
    can = "could not" if is_past else "cannot"
    return f"{num_met} of {len(slos)} SLOs met, but {names} {can} be evaluated"


def newest_words(newest_ms: int | None, ahead_ms: int | None, now_ms: int) -> str:
    """Return when the store's newest request arrived, and that others are ahead of the clock.

    "" if the store has no request. A range that ends now does not reach those ahead.
    """
    said = []
    if newest_ms is not None:
        said.append(f"The store's newest request arrived {formats.moment_ms(newest_ms)}.")
    if ahead_ms is not None:
        ahead = formats.seconds((ahead_ms - now_ms) / 1000)
        said.append(
            f"Some requests are up to {ahead} in the future, until {formats.moment_ms(ahead_ms)}: "
            "their sender's clock is ahead, or the dashboard's is behind."
        )
    return " ".join(said)


def worst_firing(slos: Sequence[Row]) -> str:
    """Return the name of the SLO that burns fastest among those that fire; "" if none does."""
    firing = [row for row in slos if row["state"] == "firing"]
    worst = max(firing, key=lambda row: _recent(row)[0] or 0.0, default=None)
    return "" if worst is None else str(worst["slo"])


def _recent(row: Row) -> tuple[float | None, float]:
    """Return the burn rate over the shortest window that had events, and the window's length."""
    pairs = sorted(zip(row["window_short_s"], row["window_burn_short"], strict=True))
    found = [(burn, length_s) for length_s, burn in pairs if burn is not None]
    return found[0] if found else (None, pairs[0][0] if pairs else 0.0)


def _burning_words(burning: Sequence[Row], *, is_past: bool) -> str:
    names = _listed([row["slo"] for row in burning])
    burn, length_s = max((_recent(row) for row in burning), key=lambda found: found[0] or 0.0)
    is_one = len(burning) == 1
    is_, its = _verb(len(burning), is_past=is_past), "its" if is_one else "their"
    up_to = "" if is_one else "up to "
    return (
        f"{names} {is_} burning {its} error budget {up_to}{formats.factor(burn)} too fast "
        f"(last {formats.seconds(length_s)})"
    )


def _recovered_words(firing: Sequence[Row], shown: Shown) -> str:
    """Return since when the SLOs that still fire have recovered, and until when alerts stay."""
    names = _listed([row["slo"] for row in firing])
    times = [shown.burned_ms.get(row["slo"]) for row in firing]
    known = [time_ms for time_ms in times if time_ms is not None]
    severities = {row["severity"] or "alert" for row in firing}
    which = " and ".join(f"a {severity}" for severity in sorted(severities))
    is_one = len(severities) == 1
    if shown.is_past:
        since = f" at {formats.moment_ms(max(known))}" if known else ""
        return f"{names} had recovered{since}; {which} {'was' if is_one else 'were'} still open"
    which = f"{which[:1].upper()}{which[1:]} stay{'s' if is_one else ''} open"
    if not known:
        have, its = ("has", "its") if len(firing) == 1 else ("have", "their")
        return f"{names} {have} recovered. {which} until {its} windows are clear"
    since_ms = max(known)
    until_ms = since_ms + round(1000 * max(_slowest_s(row) for row in firing))
    ago = formats.seconds(max(0, shown.now_ms - since_ms) // 1000)
    until = f" until about {formats.clock_ms(until_ms)}" if until_ms > shown.now_ms else ""
    return f"{names} recovered {formats.clock_ms(since_ms)}, {ago} ago. {which}{until}"


def _slowest_s(row: Row) -> float:
    """Return the longest short window of the row's severity: its alert is open at most so long."""
    windows = zip(row["window_severity"], row["window_short_s"], strict=True)
    return max((s for severity, s in windows if severity == row["severity"]), default=0.0)


def _reason(summary: Row, previous: Row, when: str) -> str:
    queue_s, prefill_s = summary["queue_mean_s"], summary["prefill_mean_s"]
    if summary["ttft_p95_s"] is None or queue_s is None or prefill_s is None:
        return ""
    # Not the TTFT: vLLM's own traces count its API server's time in that, and in no phase.
    phases_s = queue_s + prefill_s
    share = queue_s / phases_s if phases_s > 0 else 0.0
    largest, largest_share = ("queue", share) if share >= 0.5 else ("prefill", 1 - share)
    text = (
        f"{when[:1].upper()}{when[1:]}, TTFT p95 was {formats.seconds(summary['ttft_p95_s'])}; on "
        f"average, queue and prefill took {formats.seconds(phases_s)}, "
        f"{formats.percent(largest_share)} of it {largest}."
    )
    return f"{text} {_growth(summary, previous)}".strip()


def _growth(summary: Row, previous: Row) -> str:
    """Return the phase that delayed first tokens compared with the previous range, if any."""
    phases = {"queue": "queue_mean_s", "prefill": "prefill_mean_s"}
    if any(previous[column] is None for column in phases.values()):
        return ""
    if min(summary["num_requests"], previous["num_requests"]) < _LEAST_COMPARED:
        return ""
    growth_s = {name: summary[column] - previous[column] for name, column in phases.items()}
    before_s = sum(previous[column] for column in phases.values())
    total_s = sum(growth_s.values())
    if total_s < _NOTABLE_GROWTH_S or total_s < (_NOTABLE_GROWTH_RATIO - 1) * before_s:
        return ""
    cause, cause_s = max(growth_s.items(), key=lambda item: item[1])
    if cause_s < _MAIN_CAUSE_SHARE * total_s:
        return ""
    return (
        f"They took {formats.seconds(before_s)} in the previous range: "
        f"{cause} grew by {formats.seconds(cause_s)}."
    )
