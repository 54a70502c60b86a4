"""Combine the alerts of a group into one notification.

A flush moves the pending changes of a group into the outbox in one transaction: if killed before,
it is repeated; if killed after, the notification is delivered under the id it got. While an earlier
notification of a group waits for delivery, the group collects changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import uuid4

from sqlalchemy import Row, bindparam, delete, exists, func, select, update

from evenkeel.slo.receiver import AlertGrouping, Receiver, place_of, receiver_at
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.notification import (
    Notification,
    NotifiedAlert,
    NotifiedGroup,
    fingerprint,
)
from evenkeel_collector.alerts.outbox import GRACE_NS, LONGEST_NS
from evenkeel_collector.alerts.silence import is_silenced
from evenkeel_collector.alerts.state import State, newest_ns
from evenkeel_collector.alerts.tables import alerts, group_members, outbox

GROUP_ID = "group"
# Further alerts are only counted.
_MOST_ALERTS = 100
_SECOND_NS = 10**9
# States of a notification that the receiver has, or may still get.
_SENT = ("waiting", "delivered")
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
_MEMBER_ALERTS = select(_NUMBER, group_members.c.alerts).where(_OF_GROUP)
# The newest notification of a group, without its content.
_LAST = (
    select(*(column for column in outbox.c if column.name not in ("alerts", "group")))
    .where(
        outbox.c.receiver == bindparam("receiver"), outbox.c.fingerprint == bindparam("group_id")
    )
    .order_by(outbox.c.number.desc())
    .limit(1)
)
_LAST_SENT = _LAST.where(outbox.c.state.in_(_SENT))
_later = outbox.alias("later")
# The newest firings that were sent of alerts alone which are in a receiver's group by now; those to
# other receivers, too, so that the index on alerts is used.
_ALONE = (
    select(outbox)
    .where(
        outbox.c.group.is_(None),
        outbox.c.status == "firing",
        outbox.c.state.in_(_SENT),
        outbox.c.alert_id.in_(
            select(group_members.c.alert_id).where(
                group_members.c.receiver == bindparam("receiver")
            )
        ),
        ~exists().where(
            _later.c.receiver == outbox.c.receiver,
            _later.c.fingerprint == outbox.c.fingerprint,
            _later.c.number > outbox.c.number,
            _later.c.state.in_(_SENT),
        ),
    )
    .order_by(outbox.c.number)
)


class Grouper:
    """The groups of an alert book; use it only in the thread that opened the book.

    Args:
        book: The alert book.
        in_part: The numbers of waiting notifications that some recipients have; what is newer does
            not wait for the others.
    """

    def __init__(self, book: AlertBook, in_part: Collection[int] = ()) -> None:
        self._book = book
        self._in_part = in_part
        self._connection = book.connection

    def flush(self, receivers: Mapping[str, Receiver], now_ns: int) -> int:
        """Queue the due notifications of all groups; return how many.

        New changes of a group are sent `wait` after the first of them, and while the group fires
        no sooner than `interval` after its last notification. Each alert is reported with its
        newest state, so one that fired and ended in between is reported once, as resolved. Alerts
        of the group that still fire are included. Without changes, a firing group is repeated after
        the receiver's `repeat`, unless all its firing alerts are acknowledged or silenced.
        """
        groups = self._connection.execute(_GROUPS).all()
        num_closed = sum(
            self._close_alone(receivers[name], receivers, now_ns)
            for name in sorted({name for name, _ in groups} & receivers.keys())
        )
        return num_closed + sum(
            self._flush(name, labels, receivers.get(name), now_ns)
            + self._close_incident(name, labels, receiver_at(name, receivers), now_ns)
            for name, labels in groups
        )

    def num_pending(self) -> int:
        """Return how many changes are pending in groups."""
        pending = select(func.count()).where(~group_members.c.is_told)
        return self._connection.scalar(pending) or 0

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
        if grouping is None:
            # The group is no longer in the file: ends are sent separately, maybe before this.
            firing = self._firing()
            ended |= {
                m.number for m in members if m.status == "firing" and m.alert_id not in firing
            }
        members = [member for member in members if member.number not in ended]
        of_group = {"receiver": name, "group_id": _group_id(labels)}
        last = self._connection.execute(_LAST, of_group).first()
        newest = {member.fingerprint: member for member in members}
        is_waiting = last is not None and last.state == "waiting"
        if last is not None and is_waiting and last.status == "firing":
            is_kept = any(member.status == "firing" for member in newest.values())
            if last.is_repetition:
                is_kept = is_kept and self._has_unhandled(members, now_ns)
            # The end of a removed group is sent separately, maybe before this one.
            grace_ns = self._grace_ns(last.number) if grouping is not None else 0
            self._book.limit_retries(last.number, is_kept, now_ns, grace_ns)
        # Last: a group without members is not flushed again.
        for number in ended:
            self._connection.execute(delete(group_members).where(_NUMBER == number))
        if grouping is None and all(member.is_told for member in members):
            if receiver is not None and receiver.group is not None and not is_waiting:
                self._regroup(members, receiver, receiver.group, now_ns)
            return 0
        is_due = self._is_due(members, last, grouping, now_ns)
        if not is_due and (
            grouping is None or not self._is_to_repeat(members, last, receiver, now_ns)
        ):
            return 0
        reported = self._read_alerts(list(newest.values()))
        notification = replace(
            group_notification(name, labels, reported),
            dashboard_url=members[0].dashboard_url,
            is_repetition=not is_due,
        )
        # Members added meanwhile were not read, so they stay pending.
        with self._book.transaction():
            self._book.queue(notification, now_ns)
            self._keep_what_fires(members, newest)
        return 1

    def _regroup(
        self,
        members: Sequence[Row[Any]],
        receiver: Receiver,
        grouping: AlertGrouping,
        now_ns: int,
    ) -> None:
        """Move what was sent to the groups that the file has now, which repeat it from now on.

        Where the old group's incident is closed, the new ones open theirs.
        """
        for member, alert in zip(members, self._read_alerts(members), strict=True):
            moved = update(group_members).where(_NUMBER == member.number)
            labels = grouping.labels_of(alert.labels)
            is_told = not _closes_incidents(receiver)
            self._connection.execute(
                moved.values(group_labels=labels, created_ns=now_ns, is_told=is_told)
            )

    def _close_incident(
        self, name: str, labels: dict[str, str], receiver: Receiver | None, now_ns: int
    ) -> int:
        """Queue the end of a group that has no alerts left, and whose last notification fired.

        Return whether it was queued. The file no longer has the group: its alerts have moved to
        another, or ended by themselves.
        """
        if receiver is None or not _closes_incidents(receiver):
            return 0
        last = self._connection.execute(
            _LAST_SENT, {"receiver": name, "group_id": _group_id(labels)}
        ).first()
        if last is None or last.status != "firing" or self._members(name, labels):
            return 0
        reported = self._connection.scalar(
            select(outbox.c.alerts).where(outbox.c.number == last.number)
        )
        ended = [replace(alert, ends_at_ns=now_ns) for alert in reported or ()]
        if not ended:
            return 0
        with self._book.transaction():
            self._book.queue(group_notification(name, labels, ended), now_ns)
        return 1

    def _close_alone(
        self, receiver: Receiver, receivers: Mapping[str, Receiver], now_ns: int
    ) -> int:
        """Queue the ends of what alerts opened alone before their receiver had groups.

        Return how many. Their groups tell of them anew.
        """
        if receiver.group is None or not _closes_incidents(receiver) or receiver.is_muted(now_ns):
            return 0
        rows = self._connection.execute(_ALONE, {"receiver": receiver.name}).all()
        own = [row for row in rows if _is_left(row, receiver, receivers)]
        for row in own:
            end = Notification(
                f"{row.alert_id}-{uuid4().hex[:16]}-resolved",
                row.receiver,
                row.alert_id,
                row.fingerprint,
                tuple(replace(alert, ends_at_ns=now_ns) for alert in row.alerts),
                dashboard_url=row.dashboard_url,
            )
            of_alert = (group_members.c.receiver == receiver.name) & (
                group_members.c.alert_id == row.alert_id
            )
            with self._book.transaction():
                self._book.queue(end, now_ns)
                self._connection.execute(
                    update(group_members).where(of_alert).values(is_told=False, created_ns=now_ns)
                )
        return len(own)

    def _members(self, receiver: str, labels: Mapping[str, str]) -> list[Row[Any]]:
        group = {"receiver": receiver, "labels": labels}
        return list(self._connection.execute(_MEMBERS, group))

    def _read_alerts(self, members: Sequence[Row[Any]]) -> list[NotifiedAlert]:
        """Return the alerts of members of one group."""
        if not members:
            return []
        group = {"receiver": members[0].receiver, "labels": members[0].group_labels}
        rows = self._connection.execute(_MEMBER_ALERTS, group)
        reported = {number: alert for number, (alert,) in rows}
        return [reported[member.number] for member in members]

    def _grace_ns(self, number: int) -> int:
        """Return how long to retry a group's notification once nothing in it fires.

        Resolved alerts in it are reported nowhere else, so then it is retried as long as any end.
        """
        reported = self._connection.scalar(select(outbox.c.alerts).where(outbox.c.number == number))
        return LONGEST_NS if any(a.status == "resolved" for a in reported or ()) else GRACE_NS

    def _firing(self) -> set[str]:
        firing = select(alerts.c.alert_id).where(alerts.c.state == State.FIRING)
        return set(self._connection.scalars(firing))

    def _holds_up(self, last: Row[Any] | None) -> bool:
        return last is not None and last.state == "waiting" and last.number not in self._in_part

    def _is_due(
        self,
        members: Sequence[Row[Any]],
        last: Row[Any] | None,
        grouping: AlertGrouping | None,
        now_ns: int,
    ) -> bool:
        pending = [member for member in members if not member.is_told]
        if not pending or self._holds_up(last):
            return False
        # Changes of a removed group are sent at once.
        grouping = grouping or AlertGrouping(())
        due_ns = int(pending[0].created_ns + grouping.wait_s * _SECOND_NS)
        if last is not None and last.status == "firing":
            due_ns = max(due_ns, last.created_ns + int(grouping.interval_s * _SECOND_NS))
        longest_ns = int(max(grouping.wait_s, grouping.interval_s) * _SECOND_NS)
        # A due time further ahead comes from a clock that has been set back.
        return now_ns >= due_ns or due_ns - now_ns > longest_ns

    def _is_to_repeat(
        self,
        members: Sequence[Row[Any]],
        last: Row[Any] | None,
        receiver: Receiver | None,
        now_ns: int,
    ) -> bool:
        if receiver is None or not receiver.repeat_s:
            return False
        if not members or not all(member.is_told for member in members):
            return False
        if self._holds_up(last):
            return False
        # What came from another group, or was sent before there were groups, counts from then.
        times_ns = [int(member.created_ns) for member in members]
        if last is not None:
            times_ns += [int(last.created_ns), int(last.ended_ns or 0)]
        is_time = now_ns - newest_ns(now_ns, *times_ns) >= int(receiver.repeat_s * _SECOND_NS)
        return is_time and self._has_unhandled(members, now_ns)

    def _has_unhandled(self, members: Sequence[Row[Any]], now_ns: int) -> bool:
        """Return whether a firing alert is neither acknowledged nor silenced."""
        unwanted = self._book.acknowledged().keys() | self._book.withheld()
        silences = self._book.silences(now_ns)
        wanted = [member for member in members if member.alert_id not in unwanted]
        return any(
            not is_silenced(silences, alert.labels.get("slo", ""), alert.labels)
            for alert in self._read_alerts(wanted)
        )

    def _keep_what_fires(self, members: Sequence[Row[Any]], newest: Mapping[str, Row[Any]]) -> None:
        kept = {member.number for member in newest.values() if member.status == "firing"}
        for member in members:
            if member.number in kept:
                sent = update(group_members).values(is_told=True)
                self._connection.execute(sent.where(_NUMBER == member.number))
            else:
                self._connection.execute(delete(group_members).where(_NUMBER == member.number))


def _closes_incidents(receiver: Receiver) -> bool:
    return receiver.opens_incidents and receiver.sends_resolved


def _is_left(row: Row[Any], receiver: Receiver, receivers: Mapping[str, Receiver]) -> bool:
    """Return whether a receiver of single alerts now gets this one in its group."""
    if row.receiver == receiver.name:
        return True
    if place_of(row.receiver) != place_of(receiver.name):
        return False
    # The routing tree may send it the alert with both options.
    labels = row.alerts[0].labels
    other = receivers.get(row.receiver)
    return other is None or not other.wants(labels.get("severity", ""), labels)


def _ended(members: Sequence[Row[Any]]) -> set[int]:
    """Return the members of ended alerts, for a receiver that does not get resolved alerts."""
    newest = {member.fingerprint: member.status for member in members}
    return {m.number for m in members if newest[m.fingerprint] == "resolved"}


def _group_id(labels: Mapping[str, str]) -> str:
    return f"{GROUP_ID}{fingerprint(labels)}"


def group_notification(
    receiver: str, labels: Mapping[str, str], reported: Sequence[NotifiedAlert]
) -> Notification:
    """Return the notification of a group, firing alerts first."""
    ordered = sorted(reported, key=lambda alert: (alert.status != "firing", alert.starts_at_ns))
    group = NotifiedGroup(
        labels,
        _common([alert.labels for alert in ordered]),
        _common([alert.sent_annotations for alert in ordered]),
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
