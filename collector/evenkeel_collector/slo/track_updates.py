"""Keeps the counts of all SLOs up to date: in one query normally, separately if one fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from evenkeel.errors import first_line
from evenkeel.slo.model import SESSIONS, Metric, Slo
from evenkeel.slo.query import MAX_REQUEST_NS, Span
from evenkeel_collector.slo.arrivals import Arrivals, RecentArrivals
from evenkeel_collector.slo.corrections import Correction, corrections_of
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.slo.track import LATE_NS, LONG_LATE_NS, SECOND_NS, Track

# Rows are found by start time: a short read misses requests that lasted longer, and an occasional
# long read finds them.
SHORT_LOOK_NS = 600 * SECOND_NS
LONG_LOOK_EVERY_NS = 300 * SECOND_NS
# How long after it was judged a session that goes on still takes its verdict back.
SESSION_LATE_NS = 86_400 * SECOND_NS
# A failed SLO is retried after 5 s, doubling up to a minute.
_RETRY_NS = 5 * SECOND_NS
_MOST_RETRY_NS = 60 * SECOND_NS
# Failed SLOs together may take this much of a cycle.
_RETRIES_S = 5.0


@dataclass(frozen=True, slots=True)
class TrackFailure:
    """Why an SLO cannot be evaluated; it is retried at `next_ns`."""

    reason: str
    num: int
    next_ns: int


@dataclass(frozen=True, slots=True)
class _Reach:
    """How far back a cycle reads requests and answers, and how long requests may last.

    `is_looked` and `is_long`: recent arrivals, or all of them, were checked.
    """

    late_ns: int = LATE_NS
    look_ns: int = SHORT_LOOK_NS
    answers_late_ns: int = LATE_NS
    is_looked: bool = False
    is_long: bool = False


class Tracks:
    """One track per SLO.

    Args:
        store: Where requests are counted.
        record_failure: Called for each SLO that could not be read, and if the store is gone.
        long_read: Entered around slow reads of whole periods.
    """

    def __init__(
        self,
        store: SloStore,
        record_failure: Callable[[Exception], None],
        long_read: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._store = store
        self._record_failure = record_failure
        self._long_read = long_read
        self._arrivals = Arrivals(store)
        self._recent = RecentArrivals(store)
        self._tracks: list[Track] = []
        self._failures: dict[str, TrackFailure] = {}
        self._looked_long_ns = 0
        self._is_gone: bool | None = None

    @property
    def all(self) -> Sequence[Track]:
        """The tracks, in the file's order."""
        return self._tracks

    @property
    def failures(self) -> Mapping[str, str]:
        """Why SLOs cannot be evaluated, by name."""
        return {name: failure.reason for name, failure in self._failures.items()}

    @property
    def is_store_gone(self) -> bool:
        """Whether no SLO can be read at all."""
        return bool(self._is_gone)

    def follow(self, slos: Sequence[Slo], corrections: Sequence[Correction], now_ns: int) -> None:
        """Track these SLOs; restart tracking where the SLO or its corrections changed."""
        kept = {track.slo.name: track for track in self._tracks}
        tracks = []
        for slo in slos:
            in_force = corrections_of(slo.name, corrections)
            track = kept.get(slo.name)
            try:
                if track is None or track.slo != slo or track.corrections != in_force:
                    track = Track(slo, in_force, now_ns)
                    self._failures.pop(slo.name, None)
            except Exception as error:
                self.fail(slo.name, error, now_ns)
                continue
            tracks.append(track)
        self._tracks = tracks
        names = {slo.name for slo in slos}
        self._failures = {n: f for n, f in self._failures.items() if n in names}

    def refresh(self, now_ns: int) -> list[Track]:
        """Update the counts; return the tracks that are up to date.

        Tracks that need only the newest buckets share one query. Failed ones come last, singly.
        """
        self._is_gone = None
        well = [track for track in self._tracks if track.slo.name not in self._failures]
        reach = self._reach(now_ns)
        warm = [track for track in well if not track.is_cold]
        fresh = self._read_cold([track for track in well if track.is_cold], now_ns)
        of_answers = [
            track for track in warm if _counts_answers(track) and not _counts_sessions(track)
        ]
        of_sessions = [track for track in warm if _counts_sessions(track)]
        of_costs = [track for track in warm if track.slo.indicator.budget is not None]
        apart = {track.slo.name for track in (*of_answers, *of_sessions, *of_costs)}
        of_requests = [track for track in warm if track.slo.name not in apart]
        fresh += self._read_apart(of_requests, now_ns, reach.late_ns, reach.look_ns)
        fresh += self._read_apart(of_answers, now_ns, reach.answers_late_ns, reach.look_ns)
        # A session that goes on after it was judged is judged again, at another time.
        late_ns = SESSION_LATE_NS if reach.is_long else reach.answers_late_ns
        fresh += self._read_apart(of_sessions, now_ns, late_ns, reach.look_ns)
        # By arrival: a cost belongs to the minute in which its request began.
        late_ns = max(reach.late_ns, LONG_LATE_NS)
        fresh += self._read_apart(of_costs, now_ns, late_ns, reach.look_ns)
        if not self._is_gone and reach.is_looked:
            self._recent.commit()
            if reach.is_long:
                self._looked_long_ns = now_ns
                self._arrivals.commit()
        fresh += self._retry(now_ns)
        names = {track.slo.name for track in fresh}
        return [track for track in self._tracks if track.slo.name in names]

    def _read_cold(self, tracks: Sequence[Track], now_ns: int) -> list[Track]:
        if not tracks:
            return []
        with self._long_read():
            return self._read_apart(tracks, now_ns, LATE_NS, MAX_REQUEST_NS)

    def _retry(self, now_ns: int) -> list[Track]:
        fresh: list[Track] = []
        began_s = time.monotonic()
        for track in self._tracks:
            failure = self._failures.get(track.slo.name)
            if failure is None or now_ns < failure.next_ns or self._is_gone:
                continue
            if time.monotonic() - began_s > _RETRIES_S:
                break
            fresh += self._read_apart([track], now_ns, LONG_LATE_NS, MAX_REQUEST_NS)
        return fresh

    def _reach(self, now_ns: int) -> _Reach:
        """Return how far back this cycle must read.

        Arrivals are checked before the counts are read, so that the next check sees rows that
        arrive in between.
        """
        is_long = now_ns - self._looked_long_ns >= LONG_LOOK_EVERY_NS
        if not is_long and not self._recent.is_due(now_ns):
            return _Reach()
        try:
            late_since_ns = self._recent.since(now_ns, LATE_NS)
            if not is_long:
                if late_since_ns is None:
                    return _Reach(answers_late_ns=LONG_LATE_NS, is_looked=True)
                late_ns = max(LATE_NS, now_ns - late_since_ns)
                return _Reach(late_ns, MAX_REQUEST_NS, LONG_LATE_NS, is_looked=True)
            oldest_ns = min((track.oldest_ns(now_ns) for track in self._tracks), default=now_ns)
            since_ns = self._arrivals.since(oldest_ns, now_ns)
        except Exception as error:
            self._record_failure(error)
            return _Reach(LONG_LATE_NS, MAX_REQUEST_NS, LONG_LATE_NS) if is_long else _Reach()
        late_ns = max(LONG_LATE_NS, now_ns - (since_ns or now_ns))
        return _Reach(late_ns, MAX_REQUEST_NS, late_ns, is_looked=True, is_long=True)

    def _read_apart(
        self, tracks: Sequence[Track], now_ns: int, late_ns: int, look_ns: int
    ) -> list[Track]:
        """Read tracks in one query; if that fails, split in halves to isolate the failures."""
        if not tracks or self._is_gone:
            return []
        try:
            return self._read(tracks, now_ns, late_ns, look_ns)
        except Exception as error:
            if self.check_store(now_ns):
                self._record_failure(error)
                return []
            if len(tracks) == 1:
                self.fail(tracks[0].slo.name, error, now_ns)
                return []
        middle = len(tracks) // 2
        return [
            track
            for half in (tracks[:middle], tracks[middle:])
            for track in self._read_apart(half, now_ns, late_ns, look_ns)
        ]

    def _read(
        self, tracks: Sequence[Track], now_ns: int, late_ns: int, look_ns: int
    ) -> list[Track]:
        first = {track.slo.name: track.first_bucket(now_ns, late_ns) for track in tracks}
        from_ns = min(first[track.slo.name] * track.width_ns for track in tracks)
        parts = [part for track in tracks for part in track.parts]
        counts = self._store.counts(parts, Span(from_ns, now_ns + 1, look_ns))
        at = 0
        fresh = []
        for track in tracks:
            num_parts = len(track.slo.indicator.parts)
            of_track = counts[at : at + num_parts]
            at += num_parts
            try:
                track.take(first[track.slo.name], now_ns, of_track)
            except Exception as error:
                self.fail(track.slo.name, error, now_ns)
                self.forget(track)
            else:
                fresh.append(track)
        return fresh

    def check_store(self, now_ns: int) -> bool:
        """Return whether the store is unavailable for every SLO; checked once per cycle."""
        if self._is_gone is None:
            try:
                self._store.check(now_ns)
            except Exception:
                self._is_gone = True
            else:
                self._is_gone = False
        return self._is_gone

    def forget(self, track: Track) -> None:
        """Restart a track whose counts cannot be trusted."""
        self._tracks = [kept for kept in self._tracks if kept is not track]

    def fail(self, name: str, error: Exception, now_ns: int) -> None:
        """Mark an SLO as failed; the others go on."""
        self._record_failure(error)
        before = self._failures.get(name)
        num = 0 if before is None else before.num + 1
        wait_ns = min(_RETRY_NS * 2 ** min(num, 10), _MOST_RETRY_NS)
        self._failures[name] = TrackFailure(first_line(error, max_chars=500), num, now_ns + wait_ns)

    def clear(self, name: str) -> None:
        """Mark an SLO as evaluated."""
        self._failures.pop(name, None)


def _counts_sessions(track: Track) -> bool:
    return any(part.indicator.metric in SESSIONS for part in track.slo.indicator.parts)


def _counts_answers(track: Track) -> bool:
    scored = (Metric.EVAL_PASS, Metric.FEEDBACK)
    return any(part.indicator.metric in scored for part in track.slo.indicator.parts)
