"""Evaluates the SLOs of a file again and again from counts that it keeps in memory.

A cycle reads only the newest buckets from the store; a restart reads a whole period once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from collector.alert_book import AlertBook, Transition
from collector.alert_delivery_health import delivery_conditions, delivery_key
from collector.alert_engine import AlertEngine, Condition
from collector.alert_state import Patience, State
from collector.slo_absence import no_data_condition, no_data_key
from collector.slo_arrivals import Arrivals
from collector.slo_budget import budget_conditions, budget_keys, budget_labels
from collector.slo_corrections import Corrections, corrections_of
from collector.slo_evidence import describe
from collector.slo_rule_evaluator import RuleEvaluator
from collector.slo_store import SloStore, status_row
from collector.slo_track import LATE_NS, LONG_LATE_NS, SECOND_NS, Track
from evenkeel.errors import StoreError
from evenkeel.slo import Counts, Severity
from evenkeel.slo_model import Slo, SloFile
from evenkeel.slo_query import MAX_REQUEST_NS, Span
from evenkeel.slo_series import Verdict, WindowBurn

# Rows are found by their start: a short look misses requests that lasted longer, a long look,
# taken now and then, finds them.
SHORT_LOOK_NS = 600 * SECOND_NS
LONG_LOOK_EVERY_NS = 300 * SECOND_NS
ALERT_NAME = "SloBudgetBurn"


class Evaluator:
    """Everything that one thread needs to evaluate; not shared with another.

    Args:
        file: The SLO file in force.
        store: Where requests are read and verdicts written.
        book: Where alerts are kept.
        dashboard_url: Where notifications lead, or None.
        note_failure: Told of each SLO that could not be read.
    """

    def __init__(
        self,
        file: SloFile,
        store: SloStore,
        book: AlertBook,
        dashboard_url: str | None = None,
        note_failure: Callable[[StoreError], None] = lambda error: None,
    ) -> None:
        self._store = store
        self._book = book
        self._dashboard_url = dashboard_url
        self._note_failure = note_failure
        self._engine = AlertEngine(book, dashboard_url)
        self._corrections = Corrections(book)
        self._arrivals = Arrivals(store)
        self._rules = RuleEvaluator(store, note_failure, dashboard_url)
        self.use_file(file)
        self._tracks: list[Track] = []
        self._looked_long_ns = 0
        self._latest_ns = 0

    def use_file(self, file: SloFile) -> None:
        """Put another file in force; SLOs that did not change keep their counts."""
        self._file = file
        self._book.use_subjects([slo.name for slo in file.slos] + [r.name for r in file.rules])

    def _follow(self, now_ns: int) -> None:
        """Keep a track an SLO; what changed, the SLO or its corrections, begins anew."""
        in_force = self._corrections.all()
        kept = {(track.slo.name): track for track in self._tracks}
        tracks = []
        for slo in self._file.slos:
            corrections = corrections_of(slo.name, in_force)
            track = kept.get(slo.name)
            if track is None or track.slo != slo or track.corrections != corrections:
                track = Track(slo, corrections, now_ns)
            tracks.append(track)
        self._tracks = tracks

    def _refresh(self, now_ns: int) -> list[Track]:
        """Bring the counts up to date; return the tracks that are, those that cannot keep theirs.

        Tracks that only need the newest buckets share one query.
        """
        is_long = now_ns - self._looked_long_ns >= LONG_LOOK_EVERY_NS
        cold = [track for track in self._tracks if track.is_cold]
        warm = [track for track in self._tracks if not track.is_cold]
        late_ns, look_ns = LATE_NS, SHORT_LOOK_NS
        if is_long:
            late_ns, look_ns = self._late_ns(now_ns), MAX_REQUEST_NS
        fresh: list[Track] = []
        if self._read(cold, now_ns, LATE_NS, MAX_REQUEST_NS):
            fresh += cold
        if self._read(warm, now_ns, late_ns, look_ns):
            fresh += warm
            if is_long:
                self._looked_long_ns = now_ns
                self._arrivals.note()
        return [track for track in self._tracks if track in fresh]

    def _late_ns(self, now_ns: int) -> int:
        """Return how far back a long look reads: to the oldest request that came since the last.

        Looked at before the counts are read, so that a row in between is seen by the next one.
        """
        oldest_ns = min((track.oldest_ns(now_ns) for track in self._tracks), default=now_ns)
        try:
            late_since_ns = self._arrivals.since(oldest_ns, now_ns)
        except StoreError as error:
            self._note_failure(error)
            return LONG_LATE_NS
        return max(LONG_LATE_NS, now_ns - (late_since_ns or now_ns))

    def _read(self, tracks: Sequence[Track], now_ns: int, late_ns: int, look_ns: int) -> bool:
        if not tracks:
            return True
        first = {track.slo.name: track.first_bucket(now_ns, late_ns) for track in tracks}
        from_ns = min(first[track.slo.name] * track.width_ns for track in tracks)
        parts = [part for track in tracks for part in track.parts]
        try:
            counts = self._store.counts(parts, Span(from_ns, now_ns + 1, look_ns))
        except StoreError as error:
            self._note_failure(error)
            return False
        at = 0
        for track in tracks:
            num_parts = len(track.slo.indicator.parts)
            track.take(first[track.slo.name], now_ns, counts[at : at + num_parts])
            at += num_parts
        return True

    def cycle(self, now_ns: int) -> Mapping[str, Verdict]:
        """Evaluate once: read, judge, alert, write; return the verdicts by SLO.

        An SLO whose requests cannot be read, or that has none to tell by, keeps its alerts.

        Raises:
            StoreError: If the verdicts cannot be written; the alerts are committed before.
        """
        # A clock that is set back counts as standing still: buckets only ever move on.
        now_ns = self._latest_ns = max(now_ns, self._latest_ns)
        self._follow(now_ns)
        verdicts: dict[str, Verdict] = {}
        conditions: list[Condition] = []
        for track in self._refresh(now_ns):
            verdict = verdicts[track.slo.name] = track.verdict(now_ns)
            conditions += self._conditions(track.slo, verdict, now_ns)
            conditions += budget_conditions(track.slo, verdict)
            conditions.append(no_data_condition(track, now_ns, self._store))
        conditions += self._rules.conditions(self._file.rules, now_ns)
        conditions += delivery_conditions(self._book, self._file.receivers, now_ns)
        self._engine.use_inhibitions(self._file.inhibitions, self._file.maintenance)
        self._engine.observe(conditions, self._file.receivers, now_ns)
        self._engine.repeat(self._file.receivers, now_ns)
        present = {(slo.name, s.value) for slo in self._file.slos for s in slo.severities}
        present |= {no_data_key(slo) for slo in self._file.slos}
        present |= {key for slo in self._file.slos for key in budget_keys(slo)}
        present |= {(rule.name, rule.severity.value) for rule in self._file.rules}
        present |= {delivery_key(receiver.name) for receiver in self._file.receivers}
        self._engine.resolve_absent(present, self._file.receivers, now_ns)
        self._write_status(verdicts, now_ns)
        self.store_transitions()
        return verdicts

    def _conditions(self, slo: Slo, verdict: Verdict, now_ns: int) -> list[Condition]:
        patience = Patience(
            int(slo.pending_s * slo.scale * SECOND_NS),
            int(slo.keep_firing_s * slo.scale * SECOND_NS),
        )
        conditions = []
        for severity in slo.severities:
            burn = verdict.burning(severity)
            shown = burn or _closest(verdict, severity)
            conditions.append(
                Condition(
                    slo=slo.name,
                    severity=severity.value,
                    holds=verdict.holds(severity),
                    patience=patience,
                    labels={
                        **slo.indicator.select,
                        **slo.labels,
                        **budget_labels(slo, verdict),
                        "alertname": ALERT_NAME,
                        "slo": slo.name,
                        "severity": severity.value,
                        "objective": slo.indicator.metric.value,
                    },
                    figures=_figures(verdict, shown),
                    describe=partial(
                        describe, slo, verdict, shown, now_ns, self._store, self._dashboard_url
                    ),
                )
            )
        return conditions

    @property
    def counted(self) -> Mapping[str, Counts]:
        """Events of each SLO since it is followed; these never fall."""
        return {track.slo.name: track.counted for track in self._tracks if not track.is_cold}

    def _write_status(self, verdicts: Mapping[str, Verdict], now_ns: int) -> None:
        rows = []
        for slo in self._file.slos:
            verdict = verdicts.get(slo.name)
            if verdict is not None:
                state, severity = self._state(slo, verdict)
                rows.append(status_row(slo, verdict, state, severity, now_ns))
        if rows:
            self._store.write_status(rows)

    def _state(self, slo: Slo, verdict: Verdict) -> tuple[str, str | None]:
        """Return the state and severity that `slo_status` shows, the most urgent one."""
        if not verdict.has_data:
            return "no_data", None
        for state in (State.FIRING, State.PENDING):
            for severity in slo.severities:
                alert = self._engine.alerts.get((slo.name, severity.value))
                if alert is not None and alert.life.state is state:
                    return state.value, severity.value
        return "ok", None

    def store_transitions(self) -> list[Transition]:
        """Copy transitions that `alert_history` lacks, each under its own token.

        Raises:
            StoreError: If the store is gone; they are copied later.
        """
        transitions = self._book.transitions_to_store()
        for transition in transitions:
            self._store.write_transition(transition)
            self._book.mark_stored(transition.id)
        return transitions


def _closest(verdict: Verdict, severity: Severity) -> WindowBurn:
    of_severity = [burn for burn in verdict.burns if burn.window.severity is severity]
    return max(of_severity, key=lambda burn: burn.excess)


def _figures(verdict: Verdict, burn: WindowBurn) -> dict[str, float | None]:
    return {
        "sli": verdict.sli,
        "budget_left_ratio": verdict.budget_left_ratio,
        "factor": float(burn.window.factor),
        "long_s": float(burn.window.long_s),
        "short_s": float(burn.window.short_s),
        "burn_long": burn.burn_long,
        "burn_short": burn.burn_short,
    }
