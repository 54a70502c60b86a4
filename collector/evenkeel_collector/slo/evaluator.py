"""Evaluates the SLOs of a file in cycles, from counts kept in memory.

A cycle reads only the newest buckets; after a restart, the whole period is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any

from evenkeel.errors import StoreError
from evenkeel.slo.burn_rates import Counts, Severity
from evenkeel.slo.model import Slo, SloFile
from evenkeel.slo.series import SloStatus, WindowBurn
from evenkeel_collector.alerts.alert import Transition
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.delivery_health import delivery_conditions, delivery_key
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.evidence_requests import EvidenceQueue
from evenkeel_collector.alerts.state import Condition, Delays, State
from evenkeel_collector.slo.absence import no_data_condition, no_data_key
from evenkeel_collector.slo.budget_steps import budget_conditions, budget_keys, budget_labels
from evenkeel_collector.slo.corrections import Corrections
from evenkeel_collector.slo.evidence import describe, gather
from evenkeel_collector.slo.failure import failure_conditions, failure_keys
from evenkeel_collector.slo.groups import Groups
from evenkeel_collector.slo.rule_evaluator import RuleEvaluator
from evenkeel_collector.slo.store import SloStore, status_row, unknown_row
from evenkeel_collector.slo.track import SECOND_NS
from evenkeel_collector.slo.track_updates import Tracks
from evenkeel_collector.slo.watchdog import STALLED

ALERT_NAME = "SloBudgetBurn"
_SET_BACK_NS = 60 * SECOND_NS


class Evaluator:
    """Evaluates SLOs and rules; belongs to one thread.

    Args:
        file: The current SLO file.
        store: Reads requests and writes verdicts.
        book: Keeps the alerts.
        dashboard_url: What notifications link to, or None.
        record_failure: Called for each SLO that could not be read, and alert not updated.
        evidence_queue: Accepts requests for evidence on firing alerts.
        long_read: Entered around slow reads of whole periods.
        has_file: Whether `file` is the user's.
    """

    def __init__(
        self,
        file: SloFile,
        store: SloStore,
        book: AlertBook,
        dashboard_url: str | None = None,
        record_failure: Callable[[Exception], None] = lambda error: None,
        evidence_queue: EvidenceQueue | None = None,
        long_read: Callable[[], AbstractContextManager[object]] = nullcontext,
        has_file: bool = True,
    ) -> None:
        self._store = store
        self._book = book
        self._dashboard_url = dashboard_url
        self._record_failure = record_failure
        self._engine = AlertEngine(
            book,
            dashboard_url,
            evidence_queue,
            lambda slo: slo != STALLED,
            has_file,
            record_failure,
        )
        self._corrections = Corrections(book)
        self._long_read = long_read
        self._currency = ""
        self._start_over()
        self.use_file(file)

    def _start_over(self) -> None:
        """Forget what was read, as a restart would; alerts stay."""
        store, record_failure = self._store, self._record_failure
        self._tracks = Tracks(store, record_failure, self._long_read)
        self._groups = Groups(store, record_failure)
        self._rules = RuleEvaluator(store, record_failure, self._dashboard_url)
        self._latest_ns = 0

    def use_file(self, file: SloFile) -> None:
        """Switch to another file; unchanged SLOs keep their counts."""
        self._written = self._file = file
        self._use_subjects()

    def _use_subjects(self) -> None:
        file = self._file
        names = [slo.name for slo in file.slos] + [rule.name for rule in file.all_rules]
        self._book.set_subjects(names)

    def _expand(self, now_ns: int) -> None:
        """Replace each grouped SLO by the SLOs of its groups."""
        slos = self._groups.expand(self._written.slos, now_ns)
        if slos != self._file.slos:
            self._file = replace(self._written, slos=slos)
            self._use_subjects()

    @property
    def slos(self) -> Sequence[Slo]:
        """The SLOs being evaluated, including those of groups."""
        return self._file.slos

    @property
    def unknown_definitions(self) -> frozenset[str]:
        """The grouped definitions whose groups could not be read since the start."""
        return self._groups.unknown

    @property
    def groups_left_out(self) -> Mapping[str, int]:
        """The number of groups per definition that are not evaluated because there are too many."""
        return self._groups.left_out

    @property
    def num_cohorts(self) -> int:
        """How many cohorts the rules on spikes compare with their past."""
        return self._rules.num_cohorts

    def cycle(self, now_ns: int) -> Mapping[str, SloStatus]:
        """Evaluate once: read, judge, alert, write; return the verdicts by SLO.

        An SLO whose requests cannot be read, or that has none, keeps its alerts. An SLO that fails
        alone becomes `unknown`, and an alert reports it.

        Raises:
            StoreError: If the verdicts cannot be written; the alerts are committed before.
        """
        if now_ns < self._latest_ns - _SET_BACK_NS:
            # The clock was ahead, maybe by hours: nothing would alert until it is there again.
            self._start_over()
        # If it was ahead by less, time stands still here: buckets only move forward.
        now_ns = self._latest_ns = max(now_ns, self._latest_ns)
        self._expand(now_ns)
        self._tracks.follow(self._file.slos, self._corrections.all(), now_ns)
        self._currency = self._read_currency()
        verdicts: dict[str, SloStatus] = {}
        conditions: list[Condition] = []
        for track in self._tracks.refresh(now_ns):
            try:
                verdict = _finite(track.verdict(now_ns))
                found = self._conditions(track.slo, verdict, now_ns)
                found += budget_conditions(track.slo, verdict, self._currency)
                found.append(no_data_condition(track, now_ns))
            except Exception as error:
                self._tracks.fail(track.slo.name, error, now_ns)
                self._tracks.forget(track)
                continue
            verdicts[track.slo.name] = verdict
            conditions += found
        conditions += self._rules.conditions(self._file.all_rules, self._active_labels(), now_ns)
        conditions += self._failure_conditions(now_ns)
        conditions += delivery_conditions(self._book, self._file.receivers, now_ns)
        self._engine.set_inhibitions(self._file.inhibitions, self._file.maintenance)
        self._engine.observe(conditions, self._file.receivers, now_ns)
        self._engine.repeat(self._file.receivers, now_ns)
        self._engine.resolve_absent(self._present(), self._file.receivers, now_ns)
        if not self.is_store_gone:
            self._write_status(verdicts, now_ns)
        self.store_transitions()
        return verdicts

    def _present(self) -> set[tuple[str, str]]:
        """Return the keys of the alerts that the file has."""
        present = {(slo.name, s.value) for slo in self._file.slos for s in slo.severities}
        present |= {no_data_key(slo) for slo in self._file.slos}
        present |= {key for slo in self._file.slos for key in budget_keys(slo)}
        present |= self._present_rules()
        present |= {delivery_key(receiver.name) for receiver in self._file.receivers}
        present |= failure_keys(self._file)
        unknown = self._groups.unknown
        return present | {key for key in self._engine.alerts if key[0].partition("/")[0] in unknown}

    def _read_currency(self) -> str:
        if all(slo.indicator.budget is None for slo in self._file.slos):
            return ""
        try:
            return self._store.currency()
        except StoreError:
            # The reads of costs say what is wrong.
            return self._currency

    def _active_labels(self) -> Mapping[str, Mapping[str, str]]:
        return {
            alert.slo: alert.details.labels
            for alert in self._engine.alerts.values()
            if alert.life.state in (State.PENDING, State.FIRING)
        }

    def _present_rules(self) -> set[tuple[str, str]]:
        """Return the keys of rules, and of the alerts of those that have several."""
        rules = {(rule.name, rule.severity.value) for rule in self._file.all_rules}
        several = {
            (rule.name, rule.severity.value)
            for rule in self._file.all_rules
            if rule.has_many_alerts
        }
        return rules | {
            key for key in self._engine.alerts if (key[0].partition("/")[0], key[1]) in several
        }

    @property
    def is_store_gone(self) -> bool:
        """Whether the last cycle could read nothing at all, and so does not count as finished."""
        return self._tracks.is_store_gone

    def _failure_conditions(self, now_ns: int) -> list[Condition]:
        failures = {**self._tracks.failures, **self._rules.failures}
        is_gone = bool(failures) and self._tracks.check_store(now_ns)
        alerting = {
            alert.slo
            for alert in self._engine.alerts.values()
            if alert.life.state in (State.PENDING, State.FIRING)
        }
        return failure_conditions(self._file, failures, alerting, is_gone or self.is_store_gone)

    def _conditions(self, slo: Slo, verdict: SloStatus, now_ns: int) -> list[Condition]:
        delays = Delays(
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
                    delays=delays,
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
                        describe, slo, verdict, shown, now_ns, self._dashboard_url, self._currency
                    ),
                    gather=partial(
                        gather,
                        slo,
                        now_ns - int(shown.window.long_s * SECOND_NS),
                        now_ns,
                        self._dashboard_url,
                    ),
                )
            )
        return conditions

    @property
    def counted(self) -> Mapping[str, Counts]:
        """Events of each SLO since its tracking began; never decreases."""
        return {track.slo.name: track.counted for track in self._tracks.all if not track.is_cold}

    def _write_status(self, verdicts: Mapping[str, SloStatus], now_ns: int) -> None:
        rows = []
        for slo in self._file.slos:
            verdict = verdicts.get(slo.name)
            if verdict is not None:
                state, severity = self._state(slo, verdict)
                rows.append(status_row(slo, verdict, state, severity, now_ns))
            elif slo.name in self._tracks.failures:
                rows.append(unknown_row(slo, now_ns))
        for name in self._write_rows(rows, now_ns):
            if name in verdicts:
                self._tracks.clear(name)

    def _write_rows(self, rows: Sequence[Mapping[str, Any]], now_ns: int) -> list[str]:
        """Write rows in one batch, or in halves if that fails; return the SLOs that were written.

        Raises:
            StoreError: If the store is unavailable or rejects them.
        """
        if not rows:
            return []
        try:
            self._store.write_status(rows)
        except Exception as error:
            if isinstance(error, StoreError):
                raise
            # Not rejected by the store: the row contains something that cannot be sent.
            if len(rows) == 1:
                self._tracks.fail(rows[0]["slo"], error, now_ns)
                return []
            middle = len(rows) // 2
            return self._write_rows(rows[:middle], now_ns) + self._write_rows(rows[middle:], now_ns)
        return [row["slo"] for row in rows]

    def _state(self, slo: Slo, verdict: SloStatus) -> tuple[str, str | None]:
        """Return the most urgent state and severity, as shown in `slo_status`."""
        if not verdict.has_data:
            return "no_data", None
        for state in (State.FIRING, State.PENDING):
            for severity in slo.severities:
                alert = self._engine.alerts.get((slo.name, severity.value))
                if alert is not None and alert.life.state is state:
                    return state.value, severity.value
        return "ok", None

    def store_transitions(self) -> list[Transition]:
        """Copy transitions missing from `alert_history`, each under its own token.

        Raises:
            StoreError: If the store is unavailable; they are copied later.
        """
        transitions = self._book.transitions_to_store()
        for transition in transitions:
            try:
                self._store.write_transition(transition)
            except StoreError:
                raise
            except Exception as error:
                # It cannot be sent; later transitions must not wait for it forever.
                self._record_failure(error)
            self._book.mark_stored(transition.id)
        return transitions


def _finite(verdict: SloStatus) -> SloStatus:
    """Return the verdict.

    Raises:
        StoreError: If its counts are not finite.
    """
    if not (isfinite(verdict.counts.total) and isfinite(verdict.counts.bad)):
        raise StoreError(f"counts are {verdict.counts.bad} bad of {verdict.counts.total} requests")
    return verdict


def _closest(verdict: SloStatus, severity: Severity) -> WindowBurn:
    of_severity = [burn for burn in verdict.burns if burn.window.severity is severity]
    return max(of_severity, key=lambda burn: burn.excess)


def _figures(verdict: SloStatus, burn: WindowBurn) -> dict[str, float | None]:
    return {
        "sli": verdict.sli,
        "budget_left_ratio": verdict.budget_left_ratio,
        "factor": float(burn.window.factor),
        "long_s": float(burn.window.long_s),
        "short_s": float(burn.window.short_s),
        "burn_long": burn.burn_long,
        "burn_short": burn.burn_short,
    }
