"""Turn evaluated conditions into alert states, history and notifications."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from evenkeel.slo.receiver import Receiver
from evenkeel.slo.routing import Inhibitor, InhibitRule, Maintenance
from evenkeel_collector.alerts.alert import Alert, Details, Transition, Update
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.evidence_requests import (
    ANNOTATION,
    GATHERING,
    EvidenceQueue,
    complete,
    hold_ns,
)
from evenkeel_collector.alerts.notification import (
    Notification,
    NotifiedAlert,
    NotifiedGroup,
    fingerprint,
)
from evenkeel_collector.alerts.recipients import find_recipients
from evenkeel_collector.alerts.silence import Silence, is_silenced
from evenkeel_collector.alerts.state import Condition, Life, State, newest_ns, step

logger = logging.getLogger(__name__)


class AlertEngine:
    """Updates alerts and commits each change together with its notifications.

    Args:
        book: The alert book, opened by the calling thread.
        dashboard_url: Link target of notifications, or None.
        evidence_queue: Queue for evidence of firing alerts; None gathers no evidence.
        owns: Returns whether an alert belongs to this engine, by its `slo`.
        has_file: Whether there is an SLO file. What an earlier one began waits for it, and for its
            receivers, if there is none: a start without it may be a mistake.
        record_failure: Called for each alert that could not be updated.
    """

    def __init__(
        self,
        book: AlertBook,
        dashboard_url: str | None = None,
        evidence_queue: EvidenceQueue | None = None,
        owns: Callable[[str], bool] = lambda slo: True,
        has_file: bool = True,
        record_failure: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        self._record_failure = record_failure
        self._has_file = has_file
        self._book = book
        self._evidence_queue = evidence_queue
        self._dashboard_url = dashboard_url
        self._inhibitions: tuple[InhibitRule, ...] = ()
        self._maintenance: tuple[Maintenance, ...] = ()
        # The firings that were offered to these receivers.
        self._receivers: list[Receiver] = []
        self._offered: set[str] = set()
        # The alerts that were silenced or inhibited at the last observation.
        self._withheld: set[tuple[str, str]] = set()
        self._alerts = {
            (alert.slo, alert.severity): alert for alert in book.alerts() if owns(alert.slo)
        }

    @property
    def alerts(self) -> Mapping[tuple[str, str], Alert]:
        """Every alert that was ever pending or firing, by SLO and severity."""
        return self._alerts

    def set_inhibitions(
        self, inhibitions: Sequence[InhibitRule], maintenance: Sequence[Maintenance] = ()
    ) -> None:
        """Replace the inhibitions and maintenance windows."""
        self._inhibitions = tuple(inhibitions)
        self._maintenance = tuple(maintenance)

    def repeat(self, receivers: Sequence[Receiver], now_ns: int) -> int:
        """Queue repetitions of unacknowledged alerts; return how many notifications were queued.

        At most one repetition waits per receiver and alert: `repeat` counts from the last delivered
        notification. Waiting repetitions are withdrawn if the alert has ended or is acknowledged,
        silenced or inhibited. Receivers added to the file after an alert fired get their first
        notification of it.
        """
        acknowledged = self._book.acknowledged()
        silences = self._book.silences(now_ns)
        firing = [a for a in self._alerts.values() if a.life.state is State.FIRING]
        withheld = {
            a.alert_id
            for a in firing
            if (a.slo, a.severity) in self._withheld
            or self._is_silenced(silences, a.slo, a.details.labels, now_ns)
        }
        # The book also contains another engine's alerts.
        own = {a.alert_id for a in self._alerts.values()}
        if withheld != self._book.withheld() & own:
            self._book.set_withheld(withheld, own)
        wanted = [
            a
            for a in firing
            if a.is_notified and a.alert_id not in withheld and a.alert_id not in acknowledged
        ]
        # Groups are repeated as a whole: see groups.py.
        repeated = [receiver for receiver in receivers if receiver.repeat_s and not receiver.group]
        with self._book.transaction():
            unwanted = own - {a.alert_id for a in wanted}
            self._book.withdraw_repetitions(unwanted, now_ns)
        notifications = [
            again
            for alert in wanted
            for receiver in repeated
            if self._is_to_repeat(alert, receiver, now_ns)
            for again in self._repetitions(alert, receiver, now_ns)
        ]
        offered = self._offered if list(receivers) == self._receivers else set()
        notifications += [
            first
            for alert in wanted
            if alert.alert_id not in offered
            for first in self._book.select_unqueued(
                self._notifications(alert, receivers, None), now_ns
            )
        ]
        num_queued = self._book.add_notifications(notifications, now_ns) if notifications else 0
        self._receivers, self._offered = list(receivers), {a.alert_id for a in wanted}
        return num_queued

    def _is_to_repeat(self, alert: Alert, receiver: Receiver, now_ns: int) -> bool:
        labels = fingerprint(alert.details.labels)
        last = self._book.find_last(receiver.name, labels)
        is_waiting, last_ns = last or (False, 0)
        since_ns = newest_ns(now_ns, last_ns, alert.life.since_ns)
        return not is_waiting and now_ns - since_ns >= int(receiver.repeat_s * 10**9)

    def _repetitions(
        self, alert: Alert, receiver: Receiver, now_ns: int
    ) -> tuple[Notification, ...]:
        second = (now_ns - alert.life.since_ns) // 10**9
        return tuple(
            replace(
                notification,
                notification_id=f"{notification.notification_id}-{second}",
                is_repetition=True,
            )
            for notification in self._notifications(alert, [receiver], None)
        )

    def observe(
        self, conditions: Sequence[Condition], receivers: Sequence[Receiver], now_ns: int
    ) -> list[Transition]:
        """Update the alert of each condition; return the transitions, which are committed.

        If an alert cannot be updated, the error is logged and the alert stays unchanged.
        """
        self._take_evidence(now_ns)
        silences = self._book.silences(now_ns)
        inhibitor = Inhibitor(self._inhibitions, self._firing_labels(conditions, now_ns))
        updates = []
        for condition in conditions:
            alert = self._alert_of(condition)
            # What fires is sent, and silenced, by the labels that it began to fire with.
            is_firing = alert.life.state is State.FIRING
            said = alert.details.labels if is_firing else condition.labels
            labels = _identity(condition.slo, condition.severity, said)
            is_withheld = self._is_silenced(
                silences, condition.slo, labels, now_ns
            ) or inhibitor.withholds(labels)
            self._record_withheld((condition.slo, condition.severity), is_withheld)
            try:
                update = self._step(condition, receivers, now_ns, is_withheld)
            except Exception as error:
                # An error in one alert must not affect the others.
                logger.exception("cannot update alert slo=%s", condition.slo)
                self._record_failure(error)
                continue
            if update is not None:
                updates.append(update)
        transitions = self._commit(updates, now_ns)
        self._request_evidence(conditions)
        return transitions

    def _firing_labels(
        self, conditions: Sequence[Condition], now_ns: int
    ) -> Iterator[Mapping[str, str]]:
        """Yield the labels of the alerts that fire, and of those that begin to fire now."""
        for alert in self._alerts.values():
            if alert.life.state is State.FIRING:
                yield _identity(alert.slo, alert.severity, alert.details.labels)
        for condition in conditions:
            life = self._alert_of(condition).life
            if condition.holds and step(life, True, now_ns, condition.delays).state is State.FIRING:
                yield _identity(condition.slo, condition.severity, condition.labels)

    def _alert_of(self, condition: Condition) -> Alert:
        key = (condition.slo, condition.severity)
        return self._alerts.get(key) or Alert(*key, Life())

    def _take_evidence(self, now_ns: int) -> None:
        """Add newly gathered evidence to the alerts; the book already has it."""
        found = self._evidence_queue.take() if self._evidence_queue is not None else {}
        updates = []
        for alert in self._alerts.values():
            facts = found.get(alert.alert_id)
            if facts is not None:
                annotations = complete(alert.details.annotations, facts)
                details = replace(alert.details, annotations=annotations)
                updates.append(Update(replace(alert, details=details)))
        self._commit(updates, now_ns)

    def _request_evidence(self, conditions: Sequence[Condition]) -> None:
        """Request evidence for firing alerts without any, including those from before a restart."""
        if self._evidence_queue is None:
            return
        for condition in conditions:
            alert = self._alerts.get((condition.slo, condition.severity))
            if alert is None or condition.gather is None or not _awaits_evidence(alert):
                continue
            self._evidence_queue.request(alert.alert_id, alert.severity, condition.gather)

    def _record_withheld(self, key: tuple[str, str], is_withheld: bool) -> None:
        if is_withheld:
            self._withheld.add(key)
        else:
            self._withheld.discard(key)

    def _is_silenced(
        self, silences: Collection[Silence], subject: str, labels: Mapping[str, str], now_ns: int
    ) -> bool:
        return is_silenced(silences, subject, labels) or any(
            window.holds(labels, now_ns) for window in self._maintenance
        )

    def resolve_absent(
        self,
        present: Collection[tuple[str, str]],
        receivers: Sequence[Receiver],
        now_ns: int,
    ) -> list[Transition]:
        """Resolve alerts whose SLO is no longer in the file, so that none stays open forever."""
        if not self._has_file:
            return []
        updates = []
        for key, alert in self._alerts.items():
            if key in present or alert.life.state not in (State.PENDING, State.FIRING):
                continue
            note = {"resolved_because": "the SLO file no longer has this alert"}
            details = replace(alert.details, annotations={**alert.details.annotations, **note})
            fired = alert.life.state is State.FIRING
            life = replace(alert.life, state=State.RESOLVED) if fired else Life()
            updates.append(self._change(alert, life, details, receivers, now_ns, False))
        return self._commit(updates, now_ns)

    def _commit(self, updates: Sequence[Update], now_ns: int) -> list[Transition]:
        if updates:
            self._book.commit(updates, now_ns)
            self._alerts.update({(u.alert.slo, u.alert.severity): u.alert for u in updates})
        return [update.transition for update in updates if update.transition is not None]

    def _step(
        self,
        condition: Condition,
        receivers: Sequence[Receiver],
        now_ns: int,
        is_withheld: bool,
    ) -> Update | None:
        alert = self._alert_of(condition)
        life = alert.life
        if life.state is State.FIRING and self._awaits_file(alert):
            return None
        if condition.holds is not None:
            life = step(life, condition.holds, now_ns, condition.delays)
        if life.state is alert.life.state:
            return self._hold(alert, life, receivers, is_withheld)
        if life.state is State.FIRING:
            annotations = dict(condition.describe())
            if condition.gather is not None and self._evidence_queue is not None:
                annotations[ANNOTATION] = GATHERING
            details = Details(condition.labels, annotations, condition.figures)
        elif life.state is State.RESOLVED:
            # Keep the labels and evidence of the firing: they describe what has ended.
            details = replace(alert.details, figures=condition.figures)
        else:
            details = Details(condition.labels, {}, condition.figures)
        return self._change(alert, life, details, receivers, now_ns, is_withheld)

    def _awaits_file(self, alert: Alert) -> bool:
        return not self._has_file and bool(self._book.receivers_told(alert.alert_id))

    def _hold(
        self, alert: Alert, life: Life, receivers: Sequence[Receiver], is_withheld: bool
    ) -> Update | None:
        """Keep the state; notify receivers of a firing alert whose silence has ended."""
        if life.state is State.FIRING and not alert.is_notified and not is_withheld:
            alert = replace(alert, life=life, is_notified=True)
            return Update(alert, None, self._notifications(alert, receivers, None))
        return Update(replace(alert, life=life)) if life != alert.life else None

    def _change(
        self,
        alert: Alert,
        life: Life,
        details: Details,
        receivers: Sequence[Receiver],
        now_ns: int,
        is_withheld: bool,
    ) -> Update:
        before = alert.life.state
        is_new = before in (State.INACTIVE, State.RESOLVED)
        after = replace(
            alert,
            life=life,
            alert_id=uuid4().hex if is_new else alert.alert_id,
            details=details,
            is_notified=not is_withheld if life.state is State.FIRING else False,
        )
        transition = Transition(
            id=f"{after.alert_id}-{life.state.value}",
            time_ns=now_ns,
            slo=alert.slo,
            severity=alert.severity,
            alert_id=after.alert_id,
            from_state=before,
            state=life.state,
            starts_at_ns=life.since_ns or alert.life.since_ns,
            is_silenced=is_withheld,
            details=details,
        )
        notifications: tuple[Notification, ...] = ()
        if life.state is State.FIRING and after.is_notified:
            notifications = self._notifications(after, receivers, None)
        elif life.state is State.RESOLVED and alert.is_notified:
            # Even while silenced: a receiver notified of the firing must get its end.
            notifications = self._notifications(after, receivers, now_ns)
        return Update(after, transition, notifications, _awaits_evidence(after))

    def _notifications(
        self, alert: Alert, receivers: Sequence[Receiver], ends_at_ns: int | None
    ) -> tuple[Notification, ...]:
        labels = _identity(alert.slo, alert.severity, alert.details.labels)
        annotations = alert.details.annotations
        if ends_at_ns is not None:
            # The end of an alert does not wait for evidence.
            annotations = complete(annotations, {})
        told = None if ends_at_ns is None else self._book.receivers_told(alert.alert_id)
        notified = NotifiedAlert(alert.details.labels, annotations, alert.life.since_ns, ends_at_ns)
        return tuple(
            Notification(
                notification_id=f"{alert.alert_id}-{notified.status}",
                receiver=receiver.name,
                alert_id=alert.alert_id,
                fingerprint=fingerprint(notified.labels),
                alerts=(notified,),
                group=_group(receiver, notified),
                dashboard_url=self._dashboard_url or "",
                hold_ns=hold_ns(receiver) if _awaits_evidence(alert) else 0,
            )
            for receiver in find_recipients(alert, labels, receivers, told)
            # A group always gets the end, so that the alert leaves it, even if it is not sent.
            if ends_at_ns is None or receiver.sends_resolved or receiver.group is not None
        )


def _identity(slo: str, severity: str, labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of an alert, always including its SLO and severity."""
    return {"slo": slo, "severity": severity, **labels}


def _awaits_evidence(alert: Alert) -> bool:
    is_to_come = alert.details.annotations.get(ANNOTATION) == GATHERING
    return is_to_come and alert.life.state is State.FIRING


def _group(receiver: Receiver, alert: NotifiedAlert) -> NotifiedGroup | None:
    if receiver.group is None:
        return None
    labels = receiver.group.labels_of(alert.labels)
    return NotifiedGroup(labels, alert.labels, alert.sent_annotations)
