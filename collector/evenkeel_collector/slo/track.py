"""The in-memory counts of one SLO, updated incrementally from the store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from evenkeel.slo.burn_rates import Counts, budget_left_ratio
from evenkeel.slo.model import Slo
from evenkeel.slo.query import CountedIndicator, slo_parts
from evenkeel.slo.series import BucketSeries, SeriesEvaluator, SloStatus, buckets_in, choose_width_s
from evenkeel_collector.slo.corrections import Correction, is_corrected
from evenkeel_collector.slo.judgement import Buckets

SECOND_NS = 10**9
# Rows arrive after a request ends (exporter, log, insert), so buckets this old are read again.
LATE_NS = 60 * SECOND_NS
LONG_LATE_NS = 900 * SECOND_NS
# The machine or the store stood still, which takes longer than the evaluation does.
LEAST_GAP_NS = 60 * SECOND_NS
NO_COUNTS = Counts(0.0, 0.0)


class Track:
    """One SLO with its counts.

    Args:
        slo: The SLO.
        corrections: Time ranges whose events do not count.
        now_ns: When tracking begins.
    """

    def __init__(self, slo: Slo, corrections: Sequence[Correction], now_ns: int) -> None:
        self.slo = slo
        self.corrections = tuple(corrections)
        slice_s = None if slo.slicing is None else slo.slicing.length_s * slo.scale
        width_s = slice_s or choose_width_s(slo.windows)
        self.width_ns = int(width_s * SECOND_NS)
        self._judge = SeriesEvaluator(
            slo.target, slo.windows, slo.longest_period_s, width_s, slo.significance
        )
        self._num_no_data = buckets_in(slo.scaled_no_data_s, width_s)
        self._series = BucketSeries(max(self._judge.num_buckets, self._num_no_data))
        self._since_ns = now_ns
        self._gap_ns = max(int(slo.scaled_no_data_s * SECOND_NS) // 2, LEAST_GAP_NS)
        self._pause_ns = 0
        self._read_until_ns: int | None = None
        self._settled = self._counted = NO_COUNTS
        self._settled_until = now_ns // self.width_ns

    @property
    def parts(self) -> list[CountedIndicator]:
        """The parts to count."""
        return slo_parts(self.slo, self.width_ns)

    @property
    def is_cold(self) -> bool:
        """Whether nothing has been read yet."""
        return self._read_until_ns is None

    def oldest_ns(self, now_ns: int) -> int:
        """Return the start of the oldest bucket that matters at `now_ns`."""
        return (now_ns // self.width_ns - self._series.num_buckets + 1) * self.width_ns

    def first_bucket(self, now_ns: int, late_ns: int) -> int:
        """Return the oldest bucket to read to be up to date at `now_ns`."""
        oldest = self.oldest_ns(now_ns) // self.width_ns
        if self._read_until_ns is None:
            # A group has no events before its first request, but a tenant has its whole budget.
            is_new = self.slo.group is not None and self.slo.indicator.budget is None
            since_ns = self.slo.group.since_ns if is_new and self.slo.group else 0
            return max(oldest, since_ns // self.width_ns)
        return max((self._read_until_ns - late_ns) // self.width_ns, oldest)

    def take(self, first: int, now_ns: int, counts: Sequence[Buckets]) -> None:
        """Replace the buckets from `first` up to `now_ns` by `counts`, one element per part."""
        end = now_ns // self.width_ns
        total, bad = np.zeros(end - first + 1), np.zeros(end - first + 1)
        for member, of_part in zip(self.slo.indicator.parts, counts, strict=True):
            start = first - of_part.first
            total += of_part.total[start : start + len(total)] * float(member.weight)
            bad += of_part.bad[start : start + len(bad)] * float(member.weight)
        for correction in self.corrections:
            start = max(correction.from_ns // self.width_ns - first, 0)
            stop = max(-(-correction.until_ns // self.width_ns) - first, 0)
            total[start:stop] = bad[start:stop] = 0.0
        if self.slo.slicing is not None:
            for place in np.flatnonzero(total):
                events = self.slo.slicing.slice_of(Counts(float(total[place]), float(bad[place])))
                total[place], bad[place] = events.total, events.bad
        if self._read_until_ns is None:
            # Late rows may be older than the first read.
            num_before = max(first - self.oldest_ns(now_ns) // self.width_ns, 0)
            first -= num_before
            total, bad = (np.concatenate([np.zeros(num_before), each]) for each in (total, bad))
        self._series.replace_tail_arrays(first, total, bad)
        if self._read_until_ns is not None:
            pause_ns = now_ns - self._read_until_ns
            if pause_ns > max(self._gap_ns, 2 * self._pause_ns):
                # What was sent meanwhile may still be on its way, as after a start.
                self._since_ns = now_ns
            self._pause_ns = pause_ns
        self._read_until_ns = now_ns
        self._settle(end)

    def _settle(self, end: int) -> None:
        """Move buckets that late rows can no longer change into the running count."""
        until = max(end - LONG_LATE_NS // self.width_ns, self._settled_until)
        new = self._series.sum(until - self._settled_until, until)
        self._settled = Counts(self._settled.total + new.total, self._settled.bad + new.bad)
        self._settled_until = until
        tail = self._series.sum(end - until, end)
        # A counter never decreases, even when corrections are added.
        self._counted = Counts(
            max(self._counted.total, self._settled.total + tail.total),
            max(self._counted.bad, self._settled.bad + tail.bad),
        )

    @property
    def counted(self) -> Counts:
        """Events since tracking began; never decreases."""
        return self._counted

    def verdict(self, now_ns: int) -> SloStatus:
        """Return the verdict at `now_ns`."""
        end = now_ns // self.width_ns
        calendar, num_period = self.slo.calendar, None
        if calendar is not None:
            num_period = end - calendar.start_ns(now_ns) // self.width_ns + 1
        verdict = self._judge.verdict(self._series, end, num_period)
        if self.slo.indicator.budget is None:
            return verdict
        # All of the period's money, not only that of the time that has passed.
        counts = Counts(self.slo.indicator.budget, verdict.counts.bad)
        left = budget_left_ratio(counts, self.slo.target)
        return replace(verdict, counts=counts, sli=counts.sli, budget_left_ratio=left)

    def is_without_data(self, now_ns: int) -> bool | None:
        """Return whether there has been no event for longer than the SLO allows.

        None if unknown: nothing has arrived since this process started, or since the store or the
        machine stood still, which is not that long ago, or a correction covers some of that time.
        """
        if not self.slo.scaled_no_data_s:
            return False
        end = now_ns // self.width_ns
        if self._series.sum(self._num_no_data, end).total > 0:
            return False
        oldest_ns = (end - self._num_no_data + 1) * self.width_ns
        if is_corrected(self.corrections, oldest_ns, now_ns):
            return None
        is_watched = now_ns - self._since_ns >= int(self.slo.scaled_no_data_s * SECOND_NS)
        return True if is_watched else None
