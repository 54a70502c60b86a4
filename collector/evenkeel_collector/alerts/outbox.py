"""What receivers are still owed, and what became of it."""

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
)

_S = 10**9
# A receiver may ask for an hour.
_LONGEST_WAIT_NS = 3600 * _S
# What cannot be updated later may wait this long for its evidence.
HOLD_NS = 5 * _S
# A firing that is not delivered yet is still tried for so long after its alert has ended: through
# a short outage a receiver hears of every change, after a long one only how things stand.
GRACE_NS = 300 * _S
# What is no longer about something that fires is tried for so long after its first failure.
LONGEST_NS = 24 * 3600 * _S

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
# Nobody shall hear of a firing after its end.
IS_OVERTAKEN = (_later.c.receiver == outbox.c.receiver) & (
    (_later.c.fingerprint == outbox.c.fingerprint) & (_later.c.number > outbox.c.number)
)


def _due(*which: ColumnElement[bool]) -> Select[Any]:
    """Return what may be sent of the first that waits of each alert and receiver."""
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
    return query.order_by(outbox.c.number).limit(bindparam("limit"))


_DUE = _due()
_DUE_TO_ONE = _due(outbox.c.receiver == bindparam("receiver"))
_LAST_TOLD = (
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
    )
    .order_by(outbox.c.number)
    .limit(100)
)
_REPETITIONS = select(outbox.c.number, outbox.c.alert_id).where(IS_WAITING, outbox.c.is_repetition)


@dataclass(frozen=True, slots=True)
class Failing:
    """What one receiver does not take; `since_ns` is when the oldest of it was written."""

    num_notifications: int
    since_ns: int
    error: str | None


class Outbox(AlertDatabase):
    """The notifications of an alert book."""

    def write_notifications(
        self, notifications: Sequence[Notification], now_ns: int, or_ignore: bool = False
    ) -> int:
        """Owe receivers these, within a transaction of the caller's; return how many are new.

        What belongs to a group waits in it, and is told with its other members.
        """
        return sum(
            self._write(outbox if n.group is None else group_members, n, now_ns, or_ignore)
            for n in notifications
        )

    def queue(self, notification: Notification, now_ns: int) -> None:
        """Owe a receiver this at once, within a transaction of the caller's."""
        self._write(outbox, notification, now_ns)

    def _write(self, table: Table, n: Notification, now_ns: int, or_ignore: bool = False) -> int:
        values = as_row(n) | {
            "status": n.status,
            "created_ns": now_ns,
            "next_attempt_ns": now_ns + n.hold_ns,
            "group_labels": n.group and n.group.labels,
        }
        values = {name: value for name, value in values.items() if name in _QUEUED[table]}
        statement = _INSERT[table].on_conflict_do_nothing() if or_ignore else _INSERT[table]
        return self.connection.execute(statement, values).rowcount

    def not_told(self, notifications: Sequence[Notification], now_ns: int) -> list[Notification]:
        """Return those of one firing whose receiver neither got them nor is owed them.

        What is dead because its receiver was not in the file for a while is made due again.
        """
        told: set[str] = set()
        for notification_id in {n.notification_id for n in notifications}:
            for table, is_told in ((outbox, ~IS_DEAD), (group_members, true())):
                names = select(table.c.receiver).where(
                    table.c.notification_id == notification_id, is_told
                )
                told |= {place_of(name) for name in self.connection.scalars(names)}
        untold = [n for n in notifications if place_of(n.receiver) not in told]
        for n in untold:
            self.connection.execute(
                update(outbox)
                .where(
                    IS_DEAD,
                    outbox.c.notification_id == n.notification_id,
                    outbox.c.receiver == n.receiver,
                )
                .values(**_AGAIN, next_attempt_ns=now_ns)
            )
        return untold

    def due(self, now_ns: int, limit: int = 100, receiver: str | None = None) -> list[Notification]:
        """Return what may be sent now, oldest first: to one receiver, or to all.

        Of one alert and receiver only the oldest waiting notification is due, so that nobody
        hears «resolved» before «firing». What lies further ahead than anything ever waits was
        written by a clock that has been set back, and is due.
        """
        if receiver is None:
            return self._read(_DUE, now_ns=now_ns, limit=limit)
        return self._read(_DUE_TO_ONE, now_ns=now_ns, limit=limit, receiver=receiver)

    def overdue(self, receiver: str, now_ns: int) -> list[Notification]:
        """Return what is not tried any more: what fired has ended, or the time is over."""
        return self._read(_OVERDUE, receiver=receiver, now_ns=now_ns)

    def dead(self) -> list[Notification]:
        """Return the dead letters, oldest first."""
        return self._read(select(*_NOTIFICATION).where(IS_DEAD).order_by(outbox.c.number))

    def _read(self, query: Select[Any], **values: object) -> list[Notification]:
        return [Notification(*row) for row in self.connection.execute(query, values)]

    def owed_receivers(self) -> list[str]:
        """Return the names of those who are owed something."""
        return list(self.connection.scalars(select(outbox.c.receiver).where(IS_WAITING).distinct()))

    def _change(self, number: int, **values: Any) -> None:
        """Change one notification, unless it was ended meanwhile."""
        self.connection.execute(
            update(outbox).where(outbox.c.number == number, IS_WAITING).values(**values)
        )

    def mark_delivered(
        self, number: int, now_ns: int, told: tuple[NotifiedAlert, ...] | None = None
    ) -> None:
        """The receiver accepted it, as `told`: evidence may have completed it since."""
        values = {} if told is None else {"alerts": told}
        self.connection.execute(
            update(outbox)
            .where(outbox.c.number == number)
            .values(state="delivered", ended_ns=now_ns, last_error=None, is_refused=False, **values)
        )

    def mark_failed(
        self,
        number: int,
        error: str,
        next_attempt_ns: int,
        now_ns: int | None = None,
        is_refused: bool = False,
    ) -> None:
        """An attempt failed; another follows, unless it was withdrawn meanwhile.

        What is about no firing alert (any more) is tried for a day from its first failure on.
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
        """No further attempt: it stays as a dead letter until it is replayed."""
        num_attempts = outbox.c.num_attempts + 1
        self._change(
            number, state="dead", num_attempts=num_attempts, last_error=error, ended_ns=now_ns
        )

    def give_up(self, notification: Notification, now_ns: int) -> str:
        """End what is overdue; return the state it ends in.

        A firing is withdrawn, for its end is told; anything else is a dead letter.
        """
        state = "withdrawn" if notification.status == "firing" else "dead"
        self._change(notification.number, state=state, ended_ns=now_ns)
        return state

    def hasten(self, receiver: str, now_ns: int) -> None:
        """Make due what waits for a receiver that works again."""
        self.connection.execute(
            update(outbox)
            .where(IS_WAITING, outbox.c.receiver == receiver, outbox.c.next_attempt_ns > now_ns)
            .values(next_attempt_ns=now_ns)
        )

    def failing(self, now_ns: int, patience_ns: int) -> dict[str, Failing]:
        """Return the receivers that refuse, or that did not take something for long, by name."""
        works_again = exists().where(
            _later.c.receiver == outbox.c.receiver,
            _later.c.state == "delivered",
            _later.c.ended_ns >= outbox.c.ended_ns,
        )
        is_late = outbox.c.is_refused | (outbox.c.created_ns <= now_ns - patience_ns)
        query = (
            select(
                outbox.c.receiver,
                func.count(),
                func.min(outbox.c.created_ns),
                func.max(outbox.c.last_error),
            )
            .where(
                outbox.c.num_attempts > 0,
                (IS_WAITING & is_late) | (IS_DEAD & outbox.c.is_refused & ~works_again),
            )
            .group_by(outbox.c.receiver)
        )
        return {name: Failing(*found) for name, *found in self.connection.execute(query)}

    def replay(self, now_ns: int, number: int | None = None) -> int:
        """Make one or all dead letters due again, ids unchanged; return how many there were.

        Those stay dead whose receiver has heard a later one of the same alert: nobody shall hear
        «firing» after «resolved».
        """
        has_heard_later = exists().where(_later.c.state == "delivered", IS_OVERTAKEN)
        statement = update(outbox).where(IS_DEAD, ~has_heard_later)
        if number is not None:
            statement = statement.where(outbox.c.number == number)
        return self.connection.execute(statement.values(**_AGAIN, next_attempt_ns=now_ns)).rowcount

    def count_by_state(self) -> Mapping[str, int]:
        """Return how many notifications are waiting, delivered, dead, and withdrawn if any are."""
        rows = self.connection.execute(
            select(outbox.c.state, func.count()).group_by(outbox.c.state)
        )
        return {"waiting": 0, "delivered": 0, "dead": 0} | {state: num for state, num in rows}

    def end_firing(self, alert_id: str, now_ns: int) -> None:
        """A firing has ended: repetitions are withdrawn, the rest has little time left."""
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
        """Withdraw the waiting repetitions of these alerts; groups withdraw their own."""
        for number, alert_id in self.connection.execute(_REPETITIONS).all():
            if alert_id in unwanted:
                self._change(number, state="withdrawn", ended_ns=now_ns)

    def settle_group(self, number: int, is_firing: bool, now_ns: int, grace_ns: int) -> None:
        """Give a group's waiting notification of a firing time while anything in it fires."""
        end_ns = case((outbox.c.is_repetition, now_ns), else_=now_ns + grace_ns)
        give_up_ns = None if is_firing else func.coalesce(outbox.c.give_up_ns, end_ns)
        self._change(number, give_up_ns=give_up_ns)

    def last_told(self, receiver: str, fingerprint: str) -> tuple[bool, int] | None:
        """Return whether an alert's newest notification waits, and when it was made or ended."""
        told = {"receiver": receiver, "fingerprint": fingerprint}
        row = self.connection.execute(_LAST_TOLD, told).first()
        return None if row is None else (row[0] == "waiting", int(row[1]))
