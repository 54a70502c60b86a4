"""The notifications to deliver, and the results of their delivery."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Integer,
    Select,
    Table,
    and_,
    bindparam,
    case,
    exists,
    func,
    null,
    or_,
    select,
    true,
    union,
    union_all,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from evenkeel.slo.receiver import place_of
from evenkeel_collector.alerts.database import AlertDatabase
from evenkeel_collector.alerts.notification import Notification, NotifiedAlert
from evenkeel_collector.alerts.state import State
from evenkeel_collector.alerts.tables import (
    IS_DEAD,
    IS_WAITING,
    alerts,
    as_row,
    group_members,
    outbox,
    was_accepted,
)

_S = 10**9
# The longest Retry-After that is followed.
_LONGEST_WAIT_NS = 3600 * _S
# How long a notification that cannot be updated later waits for evidence.
HOLD_NS = 5 * _S
# An undelivered firing is retried for this long after its alert has ended: after a short outage a
# receiver gets every change, after a long one only the current state.
GRACE_NS = 300 * _S
# Others are retried for this long after their first failure, and once more if muted meanwhile.
LONGEST_NS = 24 * 3600 * _S
# A receiver counts as failing for this long after some of its recipients refused a notification.
PART_NS = 3600 * _S

_NOTIFICATION = [outbox.c[f.name] for f in fields(Notification) if f.name in outbox.c]
_INSERT = {table: insert(table) for table in (outbox, group_members)}
_QUEUED = {table: set(table.c.keys()) - {"number"} for table in _INSERT}
_AGAIN: Mapping[str, Any] = {
    "state": "waiting",
    "num_attempts": 0,
    "is_refused": False,
    "give_up_ns": None,
    "ended_ns": None,
}
_later = outbox.alias("later")
# A later notification of the same alert to the same receiver exists: an end must not be followed
# by an earlier firing.
IS_OVERTAKEN = (_later.c.receiver == outbox.c.receiver) & (
    (_later.c.fingerprint == outbox.c.fingerprint) & (_later.c.number > outbox.c.number)
)


def _due(*which: ColumnElement[bool]) -> Select[Any]:
    """Return the query for due notifications: only the first waiting one per alert and receiver."""
    first = (
        select(func.min(outbox.c.number))
        .where(IS_WAITING, *which)
        .group_by(outbox.c.receiver, outbox.c.fingerprint)
        .correlate(None)
    )
    next_ns, now_ns = outbox.c.next_attempt_ns, bindparam("now_ns", type_=Integer)
    longest_ns = case((outbox.c.num_attempts > 0, _LONGEST_WAIT_NS), else_=HOLD_NS)
    is_due = or_(next_ns <= now_ns, next_ns > now_ns + longest_ns)
    query = select(*_NOTIFICATION).where(outbox.c.number.in_(first), is_due)
    return query.order_by(outbox.c.num_attempts > 0, outbox.c.number).limit(bindparam("limit"))


_DUE = _due()
_DUE_TO_ONE = _due(outbox.c.receiver == bindparam("receiver"))
_LAST = (
    select(outbox.c.state, func.coalesce(outbox.c.ended_ns, outbox.c.created_ns))
    .where(
        outbox.c.receiver == bindparam("receiver"),
        outbox.c.fingerprint == bindparam("fingerprint"),
    )
    .order_by(outbox.c.number.desc())
    .limit(1)
)
_OVERDUE = (
    select(*_NOTIFICATION)
    .where(
        IS_WAITING,
        outbox.c.receiver == bindparam("receiver"),
        outbox.c.give_up_ns <= bindparam("now_ns"),
        or_(outbox.c.status == "firing", outbox.c.next_attempt_ns > outbox.c.give_up_ns),
    )
    .order_by(outbox.c.number)
    .limit(100)
)
_REPETITIONS = select(outbox.c.number, outbox.c.alert_id).where(IS_WAITING, outbox.c.is_repetition)


@dataclass(frozen=True, slots=True)
class FailingReceiver:
    """Undelivered notifications of a failing receiver; `since_ns` is the age of the oldest."""

    num_notifications: int
    since_ns: int
    error: str | None


class Outbox(AlertDatabase):
    """The notifications of an alert book."""

    def write_notifications(
        self, notifications: Sequence[Notification], now_ns: int, or_ignore: bool = False
    ) -> int:
        """Add notifications, within the caller's transaction; return how many are new.

        Those of a group become members of it and are sent with the others.
        """
        return sum(
            self._write(outbox if n.group is None else group_members, n, now_ns, or_ignore)
            for n in notifications
        )

    def queue(self, notification: Notification, now_ns: int) -> None:
        """Add a notification directly to the outbox, within the caller's transaction."""
        self._write(outbox, notification, now_ns)

    def _write(
        self,
        table: Table,
        n: Notification,
        now_ns: int,
        or_ignore: bool = False,
        is_told: bool = False,
    ) -> int:
        values = as_row(n) | {
            "status": n.status,
            "created_ns": now_ns,
            "next_attempt_ns": now_ns + n.hold_ns,
            "group_labels": n.group and n.group.labels,
            "is_told": is_told,
        }
        values = {name: value for name, value in values.items() if name in _QUEUED[table]}
        statement = _INSERT[table].on_conflict_do_nothing() if or_ignore else _INSERT[table]
        return self.connection.execute(statement, values).rowcount

    def select_unqueued(
        self, notifications: Sequence[Notification], now_ns: int
    ) -> list[Notification]:
        """Return the notifications of one firing that were neither delivered nor queued.

        A dead letter is made due again: its receiver may have been missing from the file. What was
        sent before its receiver had groups becomes a member of its group, which repeats it.
        """
        queued: set[str] = set()
        for notification_id in {n.notification_id for n in notifications}:
            for table, is_queued in ((outbox, ~IS_DEAD), (group_members, true())):
                names = select(table.c.receiver).where(
                    table.c.notification_id == notification_id, is_queued
                )
                queued |= {place_of(name) for name in self.connection.scalars(names)}
        missing = [n for n in notifications if place_of(n.receiver) not in queued]
        for n in missing:
            self.connection.execute(
                update(outbox)
                .where(
                    IS_DEAD,
                    outbox.c.notification_id == n.notification_id,
                    outbox.c.receiver == n.receiver,
                )
                .values(**_AGAIN, next_attempt_ns=now_ns)
            )
        for n in notifications:
            if n.group is not None and n not in missing:
                self._write(group_members, n, now_ns, or_ignore=True, is_told=True)
        return missing

    def receivers_told(self, alert_id: str) -> set[str]:
        """Return the names of the receivers that got the firing of an alert, or still wait for it.

        Those whose notification was withdrawn or is a dead letter are left out.
        """
        of_firing = (outbox.c.alert_id == alert_id) & (outbox.c.status == "firing")
        told = select(outbox.c.receiver).where(
            of_firing, outbox.c.state.in_(["waiting", "delivered"])
        )
        in_groups = select(group_members.c.receiver).where(group_members.c.alert_id == alert_id)
        return set(self.connection.scalars(union(told, in_groups)))

    def due(self, now_ns: int, limit: int = 100, receiver: str | None = None) -> list[Notification]:
        """Return the notifications to send now, oldest first, retries last, to one receiver or all.

        Only the oldest waiting notification per alert and receiver is due, so that "resolved" never
        arrives before "firing". A due time further ahead than any wait comes from a clock that has
        been set back and counts as due.
        """
        if receiver is None:
            return self._read(_DUE, now_ns=now_ns, limit=limit)
        return self._read(_DUE_TO_ONE, now_ns=now_ns, limit=limit, receiver=receiver)

    def overdue(self, receiver: str, now_ns: int) -> list[Notification]:
        """Return the waiting notifications whose retries have expired, ends only after the last."""
        return self._read(_OVERDUE, receiver=receiver, now_ns=now_ns)

    def dead(self) -> list[Notification]:
        """Return the dead letters, oldest first."""
        return self._read(select(*_NOTIFICATION).where(IS_DEAD).order_by(outbox.c.number))

    def _read(self, query: Select[Any], **values: object) -> list[Notification]:
        return [Notification(*row) for row in self.connection.execute(query, values)]

    def waiting_receivers(self) -> list[str]:
        """Return the names of the receivers with waiting notifications."""
        return list(self.connection.scalars(select(outbox.c.receiver).where(IS_WAITING).distinct()))

    def _change(self, number: int, **values: Any) -> None:
        """Change one notification if it is still waiting."""
        self.connection.execute(
            update(outbox).where(outbox.c.number == number, IS_WAITING).values(**values)
        )

    def mark_delivered(
        self,
        number: int,
        now_ns: int,
        sent: tuple[NotifiedAlert, ...] | None = None,
        error: str | None = None,
    ) -> None:
        """Record a delivery, with the alerts as sent: evidence may have been added since.

        With an error, some of the receiver's recipients refused it.
        """
        values: dict[str, Any] = {} if sent is None else {"alerts": sent}
        self.connection.execute(
            update(outbox)
            .where(outbox.c.number == number)
            .values(
                state="delivered",
                ended_ns=now_ns,
                last_error=error,
                is_refused=error is not None,
                num_attempts=outbox.c.num_attempts + (error is not None),
                **values,
            )
        )

    def mark_failed(
        self,
        number: int,
        error: str,
        next_attempt_ns: int,
        now_ns: int | None = None,
        is_refused: bool = False,
    ) -> None:
        """Record a failed attempt and schedule the next, unless it was withdrawn meanwhile.

        A notification not about a firing alert is retried for a day after its first failure.
        """
        is_firing = exists().where(
            alerts.c.alert_id == outbox.c.alert_id, alerts.c.state == State.FIRING
        )
        give_up_ns = case(
            (outbox.c.give_up_ns.is_not(None), outbox.c.give_up_ns),
            (
                and_(outbox.c.status == "firing", outbox.c.group.is_not(None) | is_firing),
                null(),
            ),
            else_=(next_attempt_ns if now_ns is None else now_ns) + LONGEST_NS,
        )
        self._change(
            number,
            num_attempts=outbox.c.num_attempts + 1,
            last_error=error,
            next_attempt_ns=next_attempt_ns,
            is_refused=is_refused,
            give_up_ns=give_up_ns,
        )

    def mark_dead(self, number: int, error: str, now_ns: int) -> None:
        """Make it a dead letter: it is not attempted again until it is replayed."""
        num_attempts = outbox.c.num_attempts + 1
        self._change(
            number, state="dead", num_attempts=num_attempts, last_error=error, ended_ns=now_ns
        )

    def give_up(self, notification: Notification, now_ns: int) -> str:
        """End an overdue notification; return its final state.

        A firing is withdrawn, because its end is sent; anything else becomes a dead letter.
        """
        state = "withdrawn" if notification.status == "firing" else "dead"
        self._change(notification.number, state=state, ended_ns=now_ns)
        return state

    def make_due(self, receiver: str, now_ns: int) -> None:
        """Make all waiting notifications of a receiver due now."""
        self.connection.execute(
            update(outbox)
            .where(IS_WAITING, outbox.c.receiver == receiver, outbox.c.next_attempt_ns > now_ns)
            .values(next_attempt_ns=now_ns)
        )

    def failing(self, now_ns: int, failing_after_ns: int) -> dict[str, FailingReceiver]:
        """Return the receivers that reject notifications, or accept none for too long, by name.

        Also those of which some recipients rejected the newest within an hour.
        """
        to_all, in_part = (
            exists().where(
                was_accepted(_later, by_all),
                _later.c.receiver == outbox.c.receiver,
                _later.c.ended_ns >= outbox.c.ended_ns,
            )
            for by_all in (True, False)
        )
        is_late = outbox.c.is_refused | (outbox.c.created_ns <= now_ns - failing_after_ns)
        is_recent = outbox.c.ended_ns > now_ns - PART_NS
        return self._tried(
            IS_WAITING & is_late,
            IS_DEAD & outbox.c.is_refused & ~to_all & ~in_part,
            was_accepted(outbox, by_all=False) & is_recent & ~to_all,
        )

    def retried(self) -> dict[str, FailingReceiver]:
        """Return the receivers whose waiting notifications have failed so far, by name.

        Dead letters do not count: their receiver may have been removed since.
        """
        return self._tried(IS_WAITING)

    def _tried(self, *conditions: ColumnElement[bool]) -> dict[str, FailingReceiver]:
        # Each condition has its own index, which a disjunction of them would not use.
        numbers = union_all(*(select(outbox.c.number).where(each) for each in conditions))
        query = (
            select(
                outbox.c.receiver,
                func.count(),
                func.min(outbox.c.created_ns),
                func.max(outbox.c.last_error),
            )
            .where(outbox.c.num_attempts > 0, outbox.c.number.in_(numbers))
            .group_by(outbox.c.receiver)
        )
        return {name: FailingReceiver(*found) for name, *found in self.connection.execute(query)}

    def replay(self, now_ns: int, number: int | None = None) -> int:
        """Make one or all dead letters due again, with unchanged ids; return how many.

        A dead letter stays dead if its receiver got a later notification of the same alert, so that
        "firing" never arrives after "resolved".
        """
        has_later = exists().where(_later.c.state == "delivered", IS_OVERTAKEN)
        statement = update(outbox).where(IS_DEAD, ~has_later)
        if number is not None:
            statement = statement.where(outbox.c.number == number)
        return self.connection.execute(statement.values(**_AGAIN, next_attempt_ns=now_ns)).rowcount

    def end_firing(self, alert_id: str, now_ns: int) -> None:
        """Withdraw repetitions of an ended firing; retry its other notifications only briefly."""
        of_alert = update(outbox).where(IS_WAITING, outbox.c.alert_id == alert_id)
        self.connection.execute(
            of_alert.where(outbox.c.is_repetition).values(state="withdrawn", ended_ns=now_ns)
        )
        self.connection.execute(
            of_alert.where(outbox.c.status == "firing", outbox.c.give_up_ns.is_(None)).values(
                give_up_ns=now_ns + GRACE_NS
            )
        )

    def withdraw_repetitions(self, unwanted: Collection[str], now_ns: int) -> None:
        """Withdraw waiting repetitions of these alerts, except those of groups."""
        for number, alert_id in self.connection.execute(_REPETITIONS).all():
            if alert_id in unwanted:
                self._change(number, state="withdrawn", ended_ns=now_ns)

    def limit_retries(self, number: int, is_firing: bool, now_ns: int, grace_ns: int) -> None:
        """Retry a group's waiting firing without limit while it fires, then for `grace_ns`."""
        end_ns = case((outbox.c.is_repetition, now_ns), else_=now_ns + grace_ns)
        give_up_ns = None if is_firing else func.coalesce(outbox.c.give_up_ns, end_ns)
        self._change(number, give_up_ns=give_up_ns)

    def find_last(self, receiver: str, fingerprint: str) -> tuple[bool, int] | None:
        """Return whether an alert's newest notification waits, and when it was queued or ended."""
        values = {"receiver": receiver, "fingerprint": fingerprint}
        row = self.connection.execute(_LAST, values).first()
        return None if row is None else (row[0] == "waiting", int(row[1]))
