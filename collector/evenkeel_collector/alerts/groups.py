"""Tells a receiver of several alerts at once: puts the members of a group into one notification.

A flush moves what a group has to say into the outbox in one transaction: killed before, it is made
again; killed after, it is delivered under the id it got. While an earlier notification of a group
waits to be delivered, the group collects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from sqlalchemy import Row, bindparam, delete, func, select, update

from evenkeel.slo.receiver import AlertGrouping, Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.notification import (
    Notification,
    NotifiedAlert,
    NotifiedGroup,
    fingerprint,
)
from evenkeel_collector.alerts.outbox import GRACE_NS, LONGEST_NS
from evenkeel_collector.alerts.silence import is_silenced
from evenkeel_collector.alerts.state import State
from evenkeel_collector.alerts.tables import alerts, group_members, outbox

GROUP_ID = "group"
# More alerts than this are counted and not listed.
_MOST_ALERTS = 100
_SECOND_NS = 10**9
_NUMBER = group_members.c.number
_OF_GROUP = (group_members.c.receiver == bindparam("receiver")) & (
    group_members.c.group_labels == bindparam("labels")
)
_GROUPS = select(group_members.c.receiver, group_members.c.group_labels).distinct()
_MEMBERS = (
    select(*(column for column in group_members.c if column.name != "alerts"))
    .where(_OF_GROUP)
    .order_by(_NUMBER)
)
_TOLD = select(_NUMBER, group_members.c.alerts).where(_OF_GROUP)
# The newest notification of a group, but for what it says.
_LAST = (
    select(*(column for column in outbox.c if column.name not in ("alerts", "group")))
    .where(
        outbox.c.receiver == bindparam("receiver"), outbox.c.fingerprint == bindparam("group_id")
    )
    .order_by(outbox.c.number.desc())
    .limit(1)
)


class Grouper:
    """The groups of an alert book; belongs to the thread that opened the book."""

    def __init__(self, book: AlertBook) -> None:
        self._book = book
        self._connection = book.connection

    def flush(self, receivers: Mapping[str, Receiver], now_ns: int) -> int:
        """Owe the receivers what is due of their groups; return how many notifications.

        New changes of a group are told `wait` after the first of them, and not before `interval`
        has passed since the group was told, while anything in it fires. Of one alert the newest
        state is told: one that fired and ended in between is told once, as resolved. Alerts of
        the group that still fire are told along. Without changes a group that fires is told
        again after the receiver's `repeat`, unless everything that fires in it was taken on or is
        silenced.
        """
        groups = self._connection.execute(_GROUPS).all()
        return sum(
            self._flush(name, labels, receivers.get(name), now_ns) for name, labels in groups
        )

    def num_untold(self) -> int:
        """Return how many changes wait in groups."""
        untold = select(func.count()).where(~group_members.c.is_told)
        return self._connection.scalar(untold) or 0

    def _flush(
        self, name: str, labels: dict[str, str], receiver: Receiver | None, now_ns: int
    ) -> int:
        if receiver is not None and receiver.is_muted(now_ns):
            return 0
        grouping = None if receiver is None else receiver.group
        if grouping is not None and sorted(labels) != sorted(grouping.by):
            grouping = None
        members = self._members(name, labels)
        ended: set[int] = set()
        if receiver is not None and not receiver.sends_resolved:
            ended = _ended(members)
            members = [member for member in members if member.number not in ended]
        of_group = {"receiver": name, "group_id": _group_id(labels)}
        last = self._connection.execute(_LAST, of_group).first()
        newest = {member.fingerprint: member for member in members}
        is_waiting = last is not None and last.state == "waiting"
        if last is not None and is_waiting and last.status == "firing":
            # What ends is no member of a group that the file has no more: the book knows it.
            is_kept = any(member.status == "firing" for member in newest.values())
            if grouping is None:
                is_kept = self._is_any_firing(members)
            if last.is_repetition:
                is_kept = is_kept and self._is_anybody_wanted(members, now_ns)
            # Of a group that the file has no more the end is told elsewhere, maybe before this.
            grace_ns = self._grace_ns(last.number) if grouping is not None else 0
            self._book.settle_group(last.number, is_kept, now_ns, grace_ns)
        # Last of all: without members nobody would look at what waits again.
        for number in ended:
            self._connection.execute(delete(group_members).where(_NUMBER == number))
        if grouping is None and all(member.is_told for member in members):
            # The file has no such group any more: what ends is told elsewhere.
            if not is_waiting:
                self._keep_what_fires(members, {})
            return 0
        is_due = self._is_due(members, last, grouping, now_ns)
        if not is_due and (
            grouping is None or not self._is_to_repeat(members, last, receiver, now_ns)
        ):
            return 0
        told = self._told(list(newest.values()))
        notification = replace(
            group_notification(name, labels, told),
            dashboard_url=members[0].dashboard_url,
            is_repetition=not is_due,
        )
        # Members that come in meanwhile are not among those that were read, and stay untold.
        with self._book.transaction():
            self._book.queue(notification, now_ns)
            self._keep_what_fires(members, newest)
        return 1

    def _members(self, receiver: str, labels: Mapping[str, str]) -> list[Row[Any]]:
        group = {"receiver": receiver, "labels": labels}
        return list(self._connection.execute(_MEMBERS, group))

    def _told(self, members: Sequence[Row[Any]]) -> list[NotifiedAlert]:
        """Return what members of one group report; it is not read before it is wanted."""
        group = {"receiver": members[0].receiver, "labels": members[0].group_labels}
        told = {number: alert for number, (alert,) in self._connection.execute(_TOLD, group)}
        return [told[member.number] for member in members]

    def _grace_ns(self, number: int) -> int:
        """Return how long a group's notification is tried when nothing in it fires any more.

        What it says of ends is said nowhere else, so it is tried as long as any end.
        """
        told = self._connection.scalar(select(outbox.c.alerts).where(outbox.c.number == number))
        return LONGEST_NS if any(a.status == "resolved" for a in told or ()) else GRACE_NS

    def _is_any_firing(self, members: Sequence[Row[Any]]) -> bool:
        firing = select(alerts.c.alert_id).where(alerts.c.state == State.FIRING)
        return not {m.alert_id for m in members}.isdisjoint(self._connection.scalars(firing))

    def _is_due(
        self,
        members: Sequence[Row[Any]],
        last: Row[Any] | None,
        grouping: AlertGrouping | None,
        now_ns: int,
    ) -> bool:
        untold = [member for member in members if not member.is_told]
        if not untold or (last is not None and last.state == "waiting"):
            return False
        # What has no group any more is told at once: nothing is kept back.
        grouping = grouping or AlertGrouping(())
        due_ns = int(untold[0].created_ns + grouping.wait_s * _SECOND_NS)
        if last is not None and last.status == "firing":
            due_ns = max(due_ns, last.created_ns + int(grouping.interval_s * _SECOND_NS))
        longest_ns = int(max(grouping.wait_s, grouping.interval_s) * _SECOND_NS)
        # What lies further ahead was written by a clock that has been set back.
        return now_ns >= due_ns or due_ns - now_ns > longest_ns

    def _is_to_repeat(
        self,
        members: Sequence[Row[Any]],
        last: Row[Any] | None,
        receiver: Receiver | None,
        now_ns: int,
    ) -> bool:
        if last is None or last.state == "waiting" or receiver is None or not receiver.repeat_s:
            return False
        if not all(member.is_told for member in members):
            return False
        told_ns = max(int(last.created_ns), int(last.ended_ns or 0))
        is_time = now_ns - told_ns >= int(receiver.repeat_s * _SECOND_NS)
        return is_time and self._is_anybody_wanted(members, now_ns)

    def _is_anybody_wanted(self, members: Sequence[Row[Any]], now_ns: int) -> bool:
        """Return whether an alert fires that nobody took on and that is not silenced."""
        unwanted = self._book.acknowledged().keys() | self._book.withheld()
        silences = self._book.silences(now_ns)
        wanted = [member for member in members if member.alert_id not in unwanted]
        return any(
            not is_silenced(silences, alert.labels.get("slo", ""), alert.labels)
            for alert in (self._told(wanted) if wanted else ())
        )

    def _keep_what_fires(self, members: Sequence[Row[Any]], newest: Mapping[str, Row[Any]]) -> None:
        kept = {member.number for member in newest.values() if member.status == "firing"}
        for member in members:
            if member.number in kept:
                told = update(group_members).values(is_told=True)
                self._connection.execute(told.where(_NUMBER == member.number))
            else:
                self._connection.execute(delete(group_members).where(_NUMBER == member.number))


def _ended(members: Sequence[Row[Any]]) -> set[int]:
    """Return what is about alerts that have ended, for a receiver that is not told of ends."""
    newest = {member.fingerprint: member.status for member in members}
    return {m.number for m in members if newest[m.fingerprint] == "resolved"}


def _group_id(labels: Mapping[str, str]) -> str:
    return f"{GROUP_ID}{fingerprint(labels)}"


def group_notification(
    receiver: str, labels: Mapping[str, str], told: Sequence[NotifiedAlert]
) -> Notification:
    """Return what a group has to say, those that fire first."""
    ordered = sorted(told, key=lambda alert: (alert.status != "firing", alert.starts_at_ns))
    group = NotifiedGroup(
        labels,
        _common([alert.labels for alert in ordered]),
        _common([alert.annotations for alert in ordered]),
        max(len(ordered) - _MOST_ALERTS, 0),
    )
    group_id = _group_id(labels)
    notification_id = f"{group_id}-{uuid4().hex[:16]}-{ordered[0].status}"
    listed = tuple(ordered[:_MOST_ALERTS])
    return Notification(notification_id, receiver, group_id, group_id, listed, group)


def _common(texts: Sequence[Mapping[str, str]]) -> dict[str, str]:
    first, *others = texts
    return {
        name: text
        for name, text in first.items()
        if all(other.get(name) == text for other in others)
    }
