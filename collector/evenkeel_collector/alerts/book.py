"""Alert states, the outbox and silences, in one SQLite file that survives a kill at any moment.

A state and what it owes the receivers change in one transaction: whatever is lost in a crash is
lost whole, and the next evaluation finds it again.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel.private_files import FILE_MODE
from evenkeel_collector.alerts.endings import end_firing
from evenkeel_collector.alerts.schema import upgrade
from evenkeel_collector.alerts.silence import Silence
from evenkeel_collector.alerts.state import Life, State

FILE_NAME = "alerts.db"
_MOST_SILENCES = 1_000


@dataclass(frozen=True, slots=True)
class Details:
    """What is told of an alert: who it is, what people read, the figures behind it."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    figures: Mapping[str, float | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Alert:
    """One alert as it is stored; `alert_id` names one firing and is '' before the first."""

    slo: str
    severity: str
    life: Life
    alert_id: str = ""
    is_notified: bool = False
    details: Details = field(default_factory=Details)


@dataclass(frozen=True, slots=True)
class Transition:
    """One change of an alert's state; `id` never changes and is unique."""

    id: str
    time_ns: int
    slo: str
    severity: str
    alert_id: str
    from_state: State
    state: State
    starts_at_ns: int
    is_silenced: bool
    details: Details


@dataclass(frozen=True, slots=True)
class Notification:
    """What one receiver is owed about one transition; `notification_id` is the transition's.

    With `group_labels` (JSON) it waits in that group, and is told with its other members. Others
    are due after `hold_ns`.
    """

    notification_id: str
    receiver: str
    fingerprint: str
    status: str
    body: str
    group_labels: str = ""
    is_repetition: bool = False
    hold_ns: int = 0

    @property
    def alert_id(self) -> str:
        """What names the firing, or the group."""
        return self.notification_id.partition("-")[0]


@dataclass(frozen=True, slots=True)
class Update:
    """One alert's new state, with the transition and the notifications that belong to it.

    With `awaits_evidence` its evidence is still to come, and the history waits for it.
    """

    alert: Alert
    transition: Transition | None = None
    notifications: tuple[Notification, ...] = ()
    awaits_evidence: bool = False


class AlertBook:
    """One connection to the file; belongs to the thread that opened it.

    Args:
        path: The SQLite file.
        create: Whether to create it where it is missing.

    Raises:
        ConfigurationError: If the file is missing, unreadable or of a later version.
    """

    def __init__(self, path: Path, create: bool = True) -> None:
        if not create and not path.exists():
            raise ConfigurationError(f"{path} does not exist; is this the collector's data folder?")
        try:
            # SQLite gives the files beside it the same rights.
            path.touch(mode=FILE_MODE)
            self.connection = sqlite3.connect(path, timeout=10.0, isolation_level=None)
            self.connection.row_factory = sqlite3.Row
            self.connection.execute("PRAGMA journal_mode = WAL")
            # FULL: a commit is on the disk when it returns, so a power cut loses nothing either.
            self.connection.execute("PRAGMA synchronous = FULL")
            with self.transaction():
                upgrade(self.connection, path)
        except (OSError, sqlite3.Error) as error:
            raise ConfigurationError(f"{path} cannot be used for alerts: {error}") from error

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what happens inside, all of it or, on an exception, none."""
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def alerts(self) -> list[Alert]:
        """Return every alert that ever left inactive, by SLO and severity."""
        rows = self.connection.execute("SELECT * FROM alerts ORDER BY slo, severity")
        return [
            Alert(
                row["slo"],
                row["severity"],
                Life(State(row["state"]), row["since_ns"], row["last_held_ns"]),
                row["alert_id"],
                bool(row["is_notified"]),
                _load_details(row["details"]),
            )
            for row in rows
        ]

    def commit(self, updates: Sequence[Update], now_ns: int) -> None:
        """Write the updates in one transaction; notifications are due at once."""
        with self.transaction():
            for update in updates:
                self._write_alert(update.alert)
                if update.transition is not None:
                    self._write_transition(update.transition)
                    if update.transition.state is State.RESOLVED:
                        end_firing(self.connection, update.transition.alert_id, now_ns)
                self.write_notifications(update.notifications, now_ns)
                if update.awaits_evidence:
                    self.connection.execute(
                        "INSERT OR IGNORE INTO evidence VALUES (?, ?, NULL, NULL)",
                        (update.alert.alert_id, now_ns),
                    )

    def _write_alert(self, alert: Alert) -> None:
        life = alert.life
        self.connection.execute(
            "INSERT OR REPLACE INTO alerts VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                alert.slo,
                alert.severity,
                life.state.value,
                life.since_ns,
                life.last_held_ns,
                alert.alert_id,
                alert.is_notified,
                _dump_details(alert.details),
            ),
        )

    def _write_transition(self, transition: Transition) -> None:
        self.connection.execute(
            "INSERT INTO transitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (
                transition.id,
                transition.time_ns,
                transition.slo,
                transition.severity,
                transition.alert_id,
                transition.from_state.value,
                transition.state.value,
                transition.starts_at_ns,
                transition.is_silenced,
                _dump_details(transition.details),
            ),
        )

    def add_notifications(self, notifications: Sequence[Notification], now_ns: int) -> int:
        """Owe the receivers more of a known alert; return how many were not owed before."""
        with self.transaction():
            before = self.connection.total_changes
            self.write_notifications(notifications, now_ns, "OR IGNORE")
            return self.connection.total_changes - before

    def acknowledge(self, alert_id: str, author: str, comment: str, now_ns: int) -> None:
        """Note who took a firing on; the first one stays."""
        self.connection.execute(
            "INSERT OR IGNORE INTO acknowledgements VALUES (?, ?, ?, ?)",
            (alert_id, author, comment, now_ns),
        )

    def acknowledged(self) -> dict[str, str]:
        """Return who took on which firing, by its alert id."""
        return dict(self.connection.execute("SELECT alert_id, author FROM acknowledgements"))

    def write_notifications(
        self, notifications: Sequence[Notification], now_ns: int, or_else: str = ""
    ) -> None:
        """Owe receivers these, within a transaction of the caller's."""
        alone = [n for n in notifications if not n.group_labels]
        self.connection.executemany(
            f"INSERT {or_else} INTO outbox (notification_id, receiver, fingerprint, status, body,"
            " next_attempt_ns, created_ns, alert_id, is_repetition)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (*_content(n), now_ns + n.hold_ns, now_ns, n.alert_id, n.is_repetition)
                for n in alone
            ],
        )
        grouped = [n for n in notifications if n.group_labels]
        self.connection.executemany(
            f"INSERT {or_else} INTO group_members (notification_id, receiver, fingerprint, status,"
            " body, group_labels, created_ns) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [(*_content(n), n.group_labels, now_ns) for n in grouped],
        )

    def transitions(self, limit: int) -> list[Transition]:
        """Return the newest transitions, newest first."""
        rows = self.connection.execute(
            "SELECT * FROM transitions ORDER BY time_ns DESC, rowid DESC LIMIT ?", (limit,)
        )
        return [_transition(row) for row in rows]

    def transitions_to_store(self, limit: int = 100) -> list[Transition]:
        """Return the oldest transitions that the store lacks and that have their evidence."""
        rows = self.connection.execute(
            "SELECT * FROM transitions WHERE is_stored = 0 AND NOT EXISTS (SELECT 1 FROM evidence"
            " WHERE evidence.alert_id = transitions.alert_id AND facts IS NULL)"
            " ORDER BY time_ns, rowid LIMIT ?",
            (limit,),
        )
        return [_transition(row) for row in rows]

    def mark_stored(self, transition_id: str) -> None:
        """Remember that the store has a transition."""
        self.connection.execute(
            "UPDATE transitions SET is_stored = 1 WHERE id = ?", (transition_id,)
        )

    def use_withheld(self, alert_ids: Collection[str], among: Collection[str]) -> None:
        """Keep which of these firings are silenced or inhibited now; forget what has ended."""
        with self.transaction():
            self.connection.executemany(
                "DELETE FROM withheld WHERE alert_id = ?", [(i,) for i in among]
            )
            self.connection.execute(
                "DELETE FROM withheld WHERE alert_id NOT IN"
                " (SELECT alert_id FROM alerts WHERE state = 'firing')"
            )
            self.connection.executemany(
                "INSERT OR IGNORE INTO withheld VALUES (?)", [(i,) for i in alert_ids]
            )

    def withheld(self) -> set[str]:
        """Return the ids of firings that are silenced or inhibited now."""
        return {row[0] for row in self.connection.execute("SELECT alert_id FROM withheld")}

    def use_subjects(self, names: Collection[str]) -> None:
        """Keep the names of the SLOs and rules in force."""
        with self.transaction():
            self.connection.execute("DELETE FROM subjects")
            self.connection.executemany(
                "INSERT OR IGNORE INTO subjects VALUES (?)", [(name,) for name in names]
            )

    def subjects(self) -> list[str]:
        """Return the names of the SLOs and rules in force, and of what still alerts."""
        rows = self.connection.execute(
            "SELECT name FROM subjects UNION SELECT slo FROM alerts"
            " WHERE state IN ('pending', 'firing') ORDER BY 1"
        )
        return [row[0] for row in rows]

    def check_subject(self, name: str) -> None:
        """Refuse a name that nothing in force has: a silence of it would keep nothing quiet.

        Raises:
            ConfigurationError: If no SLO or rule has it; names those there are.
        """
        known = self.subjects()
        if name not in known:
            there = f"there are {', '.join(known)}" if known else "the collector evaluates none"
            raise ConfigurationError(f"no SLO or rule is named {name!r}; {there}")

    def silences(self, now_ns: int) -> list[Silence]:
        """Return the silences in force, the first to end first."""
        return [s for s in self.silences_until(now_ns) if s.from_ns <= now_ns]

    def silences_until(self, now_ns: int) -> list[Silence]:
        """Return the silences in force and those to come, the first to end first."""
        rows = self.connection.execute(
            "SELECT id, slo, from_ns, until_ns, comment, matchers, author FROM silences"
            " WHERE until_ns > ? ORDER BY until_ns, id",
            (now_ns,),
        )
        return [Silence.load(row) for row in rows]

    def add_silence(self, silence: Silence, now_ns: int = 0) -> None:
        """Put a silence in force.

        Raises:
            ConfigurationError: If 1,000 are in force or to come.
        """
        with self.transaction():
            counted = self.connection.execute(
                "SELECT count(*) FROM silences WHERE until_ns > ?", (now_ns,)
            )
            if counted.fetchone()[0] >= _MOST_SILENCES:
                raise ConfigurationError(f"there are {_MOST_SILENCES} silences; end some first")
            self.connection.execute(
                "INSERT INTO silences (id, slo, from_ns, until_ns, comment, matchers, author)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                silence.row(),
            )

    def end_silence(self, silence_id: str, now_ns: int) -> bool:
        """End a silence now; return whether it was in force or to come."""
        cursor = self.connection.execute(
            "UPDATE silences SET until_ns = ? WHERE id = ? AND until_ns > ?",
            (now_ns, silence_id, now_ns),
        )
        return cursor.rowcount > 0

    def forget_before(self, time_ns: int) -> None:
        """Delete what ended before: notifications, stored transitions and silences."""
        with self.transaction():
            self.connection.execute(
                "DELETE FROM outbox WHERE state != 'waiting' AND ended_ns < ?", (time_ns,)
            )
            self.connection.execute(
                "DELETE FROM transitions WHERE is_stored = 1 AND time_ns < ?", (time_ns,)
            )
            self.connection.execute("DELETE FROM silences WHERE until_ns < ?", (time_ns,))


def _content(notification: Notification) -> tuple[str, ...]:
    return (
        notification.notification_id,
        notification.receiver,
        notification.fingerprint,
        notification.status,
        notification.body,
    )


def _dump_details(details: Details) -> str:
    return json.dumps(
        {
            "labels": dict(details.labels),
            "annotations": dict(details.annotations),
            "figures": dict(details.figures),
        }
    )


def _load_details(text: str) -> Details:
    return Details(**json.loads(text))


def _transition(row: sqlite3.Row) -> Transition:
    return Transition(
        row["id"],
        row["time_ns"],
        row["slo"],
        row["severity"],
        row["alert_id"],
        State(row["from_state"]),
        State(row["state"]),
        row["starts_at_ns"],
        bool(row["is_silenced"]),
        _load_details(row["details"]),
    )
