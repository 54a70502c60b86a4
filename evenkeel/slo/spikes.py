"""Compares a window of requests with its cohort's own past: tokens per request, or a share of them.

A window is unusual if it differs enough to matter and too much for chance. The size is measured
against the highest of three levels: the windows just before it, the same time on the days before,
and the same time a week ago. Chance is judged by the signed root of the deviance (Wilks 1938) of a
binomial count: how many of the window's requests are above the usual quantile, or have the
property. Past windows that were unusual as well raise the limit, so that traffic that comes in
bursts needs a larger burst.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import inf, log, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from evenkeel.durations import format_duration
from evenkeel.slo.spike_measures import SPIKE_MEASURES, SpikeKind, SpikeMeasure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Floats = NDArray[np.float64]
# The quantiles of a window's tokens that are read: its distribution, in 40 steps.
LEVELS = tuple(number / 40 for number in range(1, 40))
# Those of past windows: what a rule may compare.
PAST_LEVELS = (0.5, 0.9)
# One false alarm in a million windows of independent requests (bench/anomalies.py).
LEAST_Z = 4.75
# A change that is too small for one window is looked for in so many of them at once.
WIDTHS = (1, 2, 4)
NUM_RECENT = 24
_LEAST_RECENT = 12
_NUM_DAYS = 7
_DAY_S = 86400
# Daily work may begin this much earlier or later.
_DRIFT_S = 1800
# A past window with fewer requests says nothing about tokens.
_LEAST_PAST = 8
# A deviation that this share of past windows reaches is usual.
_USUAL_SHARE = 0.01
_MOST_DEVIANCE = 16.0
_SPREADS = 4.0
# The days before are smoothed over so many windows: the highest of noisy values is too high.
_SMOOTHED = 3


@dataclass(frozen=True, slots=True)
class Spike:
    """Holds if a cohort's window is above its own past.

    Attributes:
        measure: One of `SPIKE_MEASURES`.
        over_s: The window.
        by: The columns whose values make a cohort; empty: everything selected is one.
        min_effect: The least increase: relative for tokens, absolute for a share.
        min_requests: With fewer in the window, the result is unknown.
        quantile: Of tokens, the quantile that is compared.
        above: Of `repeated_share`, the share of repeated 4-grams above which an answer counts.
        most: Only so many cohorts, the busiest, are judged.
    """

    measure: str
    over_s: Fraction
    by: tuple[str, ...] = ("model", "tenant", "route")
    min_effect: float = 0.5
    min_requests: int = 30
    quantile: float = 0.5
    above: float = 0.5
    most: int = 200

    def __str__(self) -> str:
        more = f"{self.min_effect:.0%}" if self.is_tokens else f"{100 * self.min_effect:g} points"
        cohort = f" of a {' × '.join(self.by)}" if self.by else ""
        return (
            f"{self.about.words}{cohort} rise by {more} above their own past within "
            f"{format_duration(self.over_s)}"
        )

    @property
    def about(self) -> SpikeMeasure:
        """The measure."""
        return SPIKE_MEASURES[self.measure]

    @property
    def is_tokens(self) -> bool:
        """Whether tokens are compared, not shares."""
        return self.about.kind is SpikeKind.TOKENS

    @property
    def knows_days(self) -> bool:
        """Whether a window is also compared with the same time on other days."""
        return self.over_s >= 150

    @property
    def num_past(self) -> int:
        """How many past windows are compared with: eight days, or 288 of less than 150 seconds."""
        return int(_DAY_S * (_NUM_DAYS + 1) / self.over_s) if self.knows_days else 288

    @property
    def drift(self) -> int:
        """By how many windows daily work may begin earlier or later."""
        return max(int(_DRIFT_S / self.over_s), 1)


@dataclass(frozen=True, slots=True)
class SpikeWindow:
    """The newest requests of one cohort.

    Attributes:
        width: How many times the rule's window it covers, one of `WIDTHS`.
        requests: That have the measure.
        levels: The tokens at `LEVELS`; empty for a share.
        share: The share of the requests with the property; None for tokens.
    """

    width: int
    requests: float
    levels: Sequence[float] = ()
    share: float | None = None


@dataclass(frozen=True, slots=True)
class SpikePast:
    """The cohort's windows before, oldest first, the last one just before the window judged.

    Attributes:
        requests: That have the measure; 0 in an empty window.
        values: Their quantile of tokens, or their share; NaN in an empty window.
    """

    requests: Floats
    values: Floats


@dataclass(frozen=True, slots=True)
class SpikeResult:
    """Whether a window is above its past; None: unknown.

    Attributes:
        holds: The verdict.
        value: The window's quantile of tokens, or share.
        usual: The level it is compared with.
        requests: In the window.
        width: Of the window judged.
        score: How many standard deviations of chance it is above.
        usual_range: Between which values nine of ten windows just before were; None: not looked at.
    """

    holds: bool | None
    value: float | None = None
    usual: float | None = None
    requests: float = 0.0
    width: int = 1
    score: float = 0.0
    usual_range: tuple[float, float] | None = None


def judge_spike(test: Spike, windows: Sequence[SpikeWindow], past: SpikePast) -> SpikeResult:
    """Return whether one of a cohort's windows is above its own past, the shortest such.

    Unknown if each window has fewer than `min_requests`, or with fewer than twelve of the last 24
    windows to compare with; then the window with most requests is returned.
    """
    recent = _usual_now(test, past)
    levels = cache(lambda: _usual_levels(test, past))
    found = [_judge(test, window, past, recent, levels) for window in windows]
    for verdict in (True, False):
        for each in found:
            if each.holds is verdict:
                return each
    return max(found, key=lambda each: each.requests, default=SpikeResult(None))


def _judge(
    test: Spike,
    window: SpikeWindow,
    past: SpikePast,
    recent: float | None,
    levels: Callable[[], Floats],
) -> SpikeResult:
    num = window.requests
    if num < test.min_requests:
        return SpikeResult(None, requests=num, width=window.width)
    value = _value(test, window)
    if recent is None:
        return SpikeResult(None, value, requests=num, width=window.width)
    if not _is_larger(test, value, recent):
        return SpikeResult(False, value, recent, num, window.width)
    # Only now, as it is rare, is all of the past looked at.
    usual_then = levels()
    usual = float(usual_then[-1])
    score = _score(test, window, usual)
    holds = (
        _is_larger(test, value, usual)
        and score >= LEAST_Z
        and _is_beyond_bursts(test, value, score, window.width, past, usual_then)
    )
    before = past.values[-NUM_RECENT:][_is_usable(test, past)[-NUM_RECENT:]]
    low, high = (float(each) for each in np.quantile(before, (0.05, 0.95)))
    return SpikeResult(holds, value, usual, num, window.width, score, (low, high))


def _value(test: Spike, window: SpikeWindow) -> float:
    if not test.is_tokens:
        assert window.share is not None
        return window.share
    return float(np.interp(test.quantile, LEVELS, window.levels))


def _is_larger(test: Spike, value: float, usual: float) -> bool:
    least = usual * (1 + test.min_effect) if test.is_tokens else usual + test.min_effect
    return value >= least and value > usual


def _is_usable(test: Spike, past: SpikePast) -> NDArray[np.bool_]:
    least = max(_LEAST_PAST, test.min_requests // 4) if test.is_tokens else 1
    return past.requests >= least


def _usual_now(test: Spike, past: SpikePast) -> float | None:
    """Return the level of the windows just before; None if there are too few."""
    usable = _is_usable(test, past)[-NUM_RECENT:]
    if usable.sum() < _LEAST_RECENT:
        return None
    values, requests = past.values[-NUM_RECENT:][usable], past.requests[-NUM_RECENT:][usable]
    if test.is_tokens:
        return float(np.median(values))
    if requests.sum() < 5 * test.min_requests:
        return None
    return float((values * requests).sum() / requests.sum())


def _usual_levels(test: Spike, past: SpikePast) -> Floats:
    """Return the usual level at each past window, and at the one judged; NaN if unknown.

    The highest of: the windows just before, the same time on the days before (the highest within
    half an hour, the median of the days), and the same time a week ago.
    """
    num = len(past.values)
    usable = _is_usable(test, past)
    values = np.where(usable, past.values, np.nan)
    weights = np.where(usable, past.requests, 0.0)
    if test.is_tokens:
        before = _windows(values, NUM_RECENT, np.nan)[: num + 1]
        counted = np.isfinite(before).sum(axis=1)
        recent = np.full(num + 1, np.nan)
        enough = counted >= _LEAST_RECENT
        recent[enough] = np.nanmedian(before[enough], axis=1)
        around = np.exp(_mean_of(np.log(np.maximum(values, 1.0)), _SMOOTHED))
    else:
        sums = _sums(np.nan_to_num(values) * weights, NUM_RECENT)
        totals = _sums(weights, NUM_RECENT)
        recent = np.where(totals >= 5 * test.min_requests, sums / np.maximum(totals, 1.0), np.nan)
        # One window's share is noisy: the days before are compared in blocks.
        width = 5
        blocks = _sums(np.nan_to_num(values) * weights, width)[1:]
        block_totals = _sums(weights, width)[1:]
        around = np.where(
            block_totals >= test.min_requests, blocks / np.maximum(block_totals, 1.0), np.nan
        )
    level: Floats = np.fmax(recent, _same_time(test, around, num))
    return level


def _same_time(test: Spike, around: Floats, num: int) -> Floats:
    """Return the level at the same time on the days before, and a week ago, whichever is higher."""
    drift = test.drift
    # The highest within the drift to both sides.
    padded = np.concatenate([np.full(drift, -inf), np.nan_to_num(around, nan=-inf)])
    padded = np.concatenate([padded, np.full(drift, -inf)])
    highest = np.lib.stride_tricks.sliding_window_view(padded, 2 * drift + 1).max(axis=1)
    highest = np.where(np.isfinite(highest), highest, np.nan)
    days = np.full((_NUM_DAYS, num + 1), np.nan)
    for day in range(1, _NUM_DAYS + 1):
        # A day need not be a whole number of windows.
        back = round(day * _DAY_S / test.over_s)
        if back <= num:
            days[day - 1, back:] = highest[: num + 1 - back]
    known = np.isfinite(days).any(axis=0)
    level = np.full(num + 1, np.nan)
    level[known] = np.nanmedian(days[:, known], axis=0)
    highest_level: Floats = np.fmax(level, days[_NUM_DAYS - 1])
    return highest_level


def _windows(values: Floats, width: int, fill: float) -> Floats:
    """Return, for each place and one more, the `width` values before it."""
    padded = np.concatenate([np.full(width, fill), values])
    return np.lib.stride_tricks.sliding_window_view(padded, width)


def _sums(values: Floats, width: int) -> Floats:
    """Return, for each place and one more, the sum of the `width` values before it."""
    total = np.concatenate([np.zeros(width + 1), np.cumsum(values)])
    sums: Floats = total[width:] - total[:-width]
    return sums


def _score(test: Spike, window: SpikeWindow, usual: float) -> float:
    """Return the signed root of the deviance of what is seen against what is usual."""
    if test.is_tokens:
        above = float((np.asarray(window.levels) > usual).mean())
        return deviation(window.requests, above, 1 - test.quantile)
    assert window.share is not None
    return deviation(window.requests, window.share, max(usual, _least_share(test)))


def _least_share(test: Spike) -> float:
    # A past without any is no proof that there are none.
    return 1 / (5 * test.min_requests)


def deviation(num: float, seen: float, expected: float) -> float:
    """Return how unlikely a share is, as a standard normal deviate; negative if below expected.

    sign × √(2 n KL(seen ‖ expected)), the signed root of the binomial deviance.
    """
    return float(_deviations(np.array([num]), np.array([seen]), np.array([expected]))[0])


def _deviations(num: Floats, seen: Floats, expected: Floats) -> Floats:
    expected = np.clip(expected, 1e-9, 1 - 1e-9)
    divergence = np.zeros(len(seen))
    for share, other in ((seen, expected), (1 - seen, 1 - expected)):
        divergence += np.where(share > 0, share * np.log(np.where(share > 0, share, 1) / other), 0)
    deviates: Floats = np.sqrt(np.maximum(2 * num * divergence, 0))
    return np.where(seen > expected, deviates, -deviates)


def _is_beyond_bursts(
    test: Spike, value: float, score: float, width: int, past: SpikePast, usual_then: Floats
) -> bool:
    """Return whether the past has no such deviations of its own, over windows of the same width."""
    usable, usual = _is_usable(test, past), usual_then[:-1]
    known = usable & np.isfinite(usual)
    if test.is_tokens:
        strayed = np.full(len(usual), np.nan)
        strayed[known] = np.log(np.maximum(past.values[known], 1.0) / np.maximum(usual[known], 1.0))
        strayed = _mean_of(strayed, width)
        strayed = strayed[np.isfinite(strayed)]
        if not len(strayed):
            return True
        here = log(max(value, 1.0) / max(float(usual_then[-1]), 1.0))
        spread = 1.4826 * float(np.median(np.abs(strayed - np.median(strayed))))
        return here > max(_SPREADS * spread, _high(strayed))
    requests = np.where(known, past.requests, 0.0)
    sums = _sums(np.nan_to_num(past.values) * requests, width)[1:]
    totals = _sums(requests, width)[1:]
    counted = known & (totals > 0)
    if not counted.any():
        return True
    levels = np.maximum(usual[counted], _least_share(test))
    scores = _deviations(totals[counted], sums[counted] / totals[counted], levels)
    spread = sqrt(max(float(np.minimum(scores**2, _MOST_DEVIANCE).mean()), 1.0))
    return score > max(LEAST_Z * spread, _high(scores))


def _mean_of(values: Floats, width: int) -> Floats:
    """Return the mean of each value and those before it, `width` in all; NaN is left out."""
    known = np.isfinite(values)
    counts = _sums(known.astype(float), width)[1:]
    sums = _sums(np.where(known, values, 0.0), width)[1:]
    return np.where(known, sums / np.maximum(counts, 1.0), np.nan)


def _high(values: Floats) -> float:
    return float(np.quantile(values, 1 - _USUAL_SHARE, method="lower"))


def spike_text(test: Spike, found: SpikeResult) -> str:
    """Describe a window against its past, in plain English."""
    if found.value is None or found.usual is None:
        return "no data"
    over = format_duration(test.over_s * found.width)
    if test.is_tokens:
        which = "median" if test.quantile == 0.5 else f"{test.quantile:.0%} quantile"
        times = "" if found.usual < 1 else f", {found.value / found.usual:.1f} times as many"
        return (
            f"{found.value:.0f} {test.about.words} ({which} of {found.requests:.0f} in {over}), "
            f"usually {found.usual:.0f}{times}"
        )
    return (
        f"{found.value:.0%} of {found.requests:.0f} requests in {over} are "
        f"{test.about.words}, usually {found.usual:.1%}"
    )


def range_text(test: Spike, found: SpikeResult) -> str:
    """Say between which values the windows just before were; '' if unknown."""
    if found.usual_range is None:
        return ""
    low, high = (f"{each:.0f}" if test.is_tokens else f"{each:.1%}" for each in found.usual_range)
    before = format_duration(NUM_RECENT * test.over_s)
    return f"{low} to {high} in nine of ten windows of the {before} before"
