"""Tells a receiver of several alerts at once: puts the members of a group into one notification.

A flush moves what a group has to say into the outbox in one transaction: killed before, it is made
again; killed after, it is delivered under the id it got. While an earlier notification of a group
waits to be delivered, the group collects.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from uuid import uuid4

from evenkeel.slo.receiver import AlertGrouping, Receiver, place_of
from evenkeel_collector.alerts.book import AlertBook, Notification
from evenkeel_collector.alerts.endings import GRACE_NS, LONGEST_NS, settle_group
from evenkeel_collector.alerts.message import fingerprint, group_body
from evenkeel_collector.alerts.silence import is_silenced

GROUP_ID = "group"
# More alerts than this are counted and not listed.
_MOST_ALERTS = 100
_SECOND_NS = 10**9


class Grouper:
    """The groups of an alert book; belongs to the thread that opened the book."""

    def __init__(self, book: AlertBook) -> None:
        self._book = book

    def flush(self, receivers: Mapping[str, Receiver], now_ns: int) -> int:
        """Owe the receivers what is due of their groups; return how many notifications.

        New changes of a group are told `wait` after the first of them, and not before `interval`
        has passed since the group was told, while anything in it fires. Of one alert the newest
        state is told: one that fired and ended in between is told once, as resolved. Alerts of
        the group that still fire are told along. Without changes a group that fires is told
        again after the receiver's `repeat`, unless everything that fires in it was taken on or is
        silenced.
        """
        groups = self._book.connection.execute(
            "SELECT DISTINCT receiver, group_labels FROM group_members"
        ).fetchall()
        return sum(
            self._flush(name, labels, receivers.get(name), now_ns) for name, labels in groups
        )

    def num_untold(self) -> int:
        """Return how many changes wait in groups."""
        untold = "SELECT count(*) FROM group_members WHERE is_told = 0"
        return int(self._book.connection.execute(untold).fetchone()[0])

    def _flush(self, name: str, group_labels: str, receiver: Receiver | None, now_ns: int) -> int:
        if receiver is not None and receiver.is_muted(now_ns):
            return 0
        labels = json.loads(group_labels)
        grouping = None if receiver is None else receiver.group
        if grouping is not None and sorted(labels) != sorted(grouping.by):
            grouping = None
        key = f"{GROUP_ID}{fingerprint(labels)}"
        connection = self._book.connection
        members = connection.execute(
            "SELECT * FROM group_members WHERE receiver = ? AND group_labels = ? ORDER BY number",
            (name, group_labels),
        ).fetchall()
        ended: set[int] = set()
        if receiver is not None and not receiver.sends_resolved:
            ended = _ended(members)
            members = [member for member in members if member["number"] not in ended]
        last = connection.execute(
            "SELECT * FROM outbox WHERE receiver = ? AND fingerprint = ?"
            " ORDER BY number DESC LIMIT 1",
            (name, key),
        ).fetchone()
        newest = {member["fingerprint"]: member for member in members}
        is_firing = any(member["status"] == "firing" for member in newest.values())
        is_waiting = last is not None and last["state"] == "waiting"
        if is_waiting and last["status"] == "firing":
            # What ends is no member of a group that the file has no more: the book knows it.
            is_kept = is_firing if grouping is not None else self._is_any_firing(members)
            if last["is_repetition"]:
                is_kept = is_kept and self._is_anybody_wanted(members, now_ns)
            # Of a group that the file has no more the end is told elsewhere, maybe before this.
            grace_ns = _grace_ns(last["body"]) if grouping is not None else 0
            settle_group(connection, last["number"], is_kept, now_ns, grace_ns)
        # Last of all: without members nobody would look at what waits again.
        connection.executemany(
            "DELETE FROM group_members WHERE number = ?", [(number,) for number in ended]
        )
        if grouping is None and all(member["is_told"] for member in members):
            # The file has no such group any more: what ends is told elsewhere.
            if not is_waiting:
                self._keep_what_fires(members, {})
            return 0
        is_due = self._is_due(members, last, grouping, now_ns)
        if not is_due and (
            grouping is None or not self._is_to_repeat(members, last, receiver, now_ns)
        ):
            return 0
        messages = [json.loads(member["body"]) for member in newest.values()]
        alerts = [message["alerts"][0] for message in messages]
        told = place_of(name) if receiver is None else receiver.base or name
        body = group_body(told, labels, alerts, messages[0]["externalURL"], _MOST_ALERTS)
        status = "firing" if is_firing else "resolved"
        notification_id = f"{key}-{uuid4().hex[:16]}-{status}"
        # Members that come in meanwhile are not among those that were read, and stay untold.
        notification = Notification(
            notification_id, name, key, status, body, is_repetition=not is_due
        )
        with self._book.transaction():
            self._book.write_notifications([notification], now_ns)
            self._keep_what_fires(members, newest)
        return 1

    def _is_any_firing(self, members: Sequence[sqlite3.Row]) -> bool:
        firing = {
            row[0]
            for row in self._book.connection.execute(
                "SELECT alert_id FROM alerts WHERE state = 'firing'"
            )
        }
        return any(member["notification_id"].partition("-")[0] in firing for member in members)

    def _is_due(
        self,
        members: Sequence[sqlite3.Row],
        last: sqlite3.Row | None,
        grouping: AlertGrouping | None,
        now_ns: int,
    ) -> bool:
        untold = [member for member in members if not member["is_told"]]
        if not untold or (last is not None and last["state"] == "waiting"):
            return False
        # What has no group any more is told at once: nothing is kept back.
        grouping = grouping or AlertGrouping(())
        due_ns = int(untold[0]["created_ns"] + grouping.wait_s * _SECOND_NS)
        if last is not None and last["status"] == "firing":
            due_ns = max(due_ns, last["created_ns"] + int(grouping.interval_s * _SECOND_NS))
        longest_ns = int(max(grouping.wait_s, grouping.interval_s) * _SECOND_NS)
        # What lies further ahead was written by a clock that has been set back.
        return now_ns >= due_ns or due_ns - now_ns > longest_ns

    def _is_to_repeat(
        self,
        members: Sequence[sqlite3.Row],
        last: sqlite3.Row | None,
        receiver: Receiver | None,
        now_ns: int,
    ) -> bool:
        if last is None or last["state"] == "waiting" or receiver is None or not receiver.repeat_s:
            return False
        if not all(member["is_told"] for member in members):
            return False
        told_ns = max(int(last["created_ns"]), int(last["ended_ns"] or 0))
        is_time = now_ns - told_ns >= int(receiver.repeat_s * _SECOND_NS)
        return is_time and self._is_anybody_wanted(members, now_ns)

    def _is_anybody_wanted(self, members: Sequence[sqlite3.Row], now_ns: int) -> bool:
        """Return whether an alert fires that nobody took on and that is not silenced."""
        unwanted = self._book.acknowledged().keys() | self._book.withheld()
        silences = self._book.silences(now_ns)
        for member in members:
            labels = json.loads(member["body"])["commonLabels"]
            is_unwanted = member["notification_id"].partition("-")[0] in unwanted
            if not is_unwanted and not is_silenced(silences, labels.get("slo", ""), labels):
                return True
        return False

    def _keep_what_fires(
        self, members: Sequence[sqlite3.Row], newest: Mapping[str, sqlite3.Row]
    ) -> None:
        kept = {member["number"] for member in newest.values() if member["status"] == "firing"}
        for member in members:
            self._book.connection.execute(
                "UPDATE group_members SET is_told = 1 WHERE number = ?"
                if member["number"] in kept
                else "DELETE FROM group_members WHERE number = ?",
                (member["number"],),
            )


def _ended(members: Sequence[sqlite3.Row]) -> set[int]:
    """Return what is about alerts that have ended, for a receiver that is not told of ends."""
    newest = {member["fingerprint"]: member["status"] for member in members}
    return {m["number"] for m in members if newest[m["fingerprint"]] == "resolved"}


def _grace_ns(body: str) -> int:
    """Return how long a group's notification is tried when nothing in the group fires any more.

    What it says of ends is said nowhere else, so it is tried as long as any end.
    """
    is_end = any(alert["status"] == "resolved" for alert in json.loads(body)["alerts"])
    return LONGEST_NS if is_end else GRACE_NS
