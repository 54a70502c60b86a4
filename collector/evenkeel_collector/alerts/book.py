"""Alert states, the outbox and silences, in one SQLite file that survives a kill at any moment.

A state and its notifications change in one transaction, so a crash loses both or neither, and the
next evaluation makes up for a lost change.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from sqlalchemy import (
    Executable,
    Table,
    bindparam,
    delete,
    exists,
    func,
    literal_column,
    select,
    union,
    update,
)
from sqlalchemy.dialects.sqlite import insert

from evenkeel.errors import ConfigurationError
from evenkeel.known_names import suggestion
from evenkeel_collector.alerts.alert import Alert, Transition, Update
from evenkeel_collector.alerts.notification import Notification, fingerprint
from evenkeel_collector.alerts.outbox import IS_OVERTAKEN, Outbox
from evenkeel_collector.alerts.silence import Silence
from evenkeel_collector.alerts.state import Life, State
from evenkeel_collector.alerts.tables import (
    IS_TO_STORE,
    IS_WAITING,
    acknowledgements,
    alerts,
    as_row,
    evidence,
    outbox,
    silences,
    subjects,
    transitions,
    withheld,
)

FILE_NAME = "alerts.db"
_MOST_SILENCES = 1_000
_ADD_TRANSITION = insert(transitions)
_TRANSITION = [column for column in transitions.c if column.name != "is_stored"]
_alert = insert(alerts)
_WRITE_ALERT = _alert.on_conflict_do_update(
    index_elements=[alerts.c.slo, alerts.c.severity],
    set_={column.name: _alert.excluded[column.name] for column in alerts.c},
)
_SILENCES_UNTIL = (
    select(silences)
    .where(silences.c.until_ns > bindparam("now_ns"))
    .order_by(silences.c.until_ns, silences.c.id)
)
_ACKNOWLEDGED = select(acknowledgements.c.alert_id, acknowledgements.c.author)
_WITHHELD = select(withheld.c.alert_id)


class AlertBook(Outbox):
    """All alert data; use it only in the thread that opened it."""

    def alerts(self) -> list[Alert]:
        """Return every alert that was ever pending or firing, by SLO and severity."""
        rows = self.connection.execute(select(alerts).order_by(alerts.c.slo, alerts.c.severity))
        return [
            Alert(
                row.slo,
                row.severity,
                Life(row.state, row.since_ns, row.last_held_ns),
                row.alert_id,
                row.is_notified,
                row.details,
            )
            for row in rows
        ]

    def commit(self, updates: Sequence[Update], now_ns: int) -> None:
        """Write the updates in one transaction; notifications are due at once."""
        with self.transaction():
            for each in updates:
                self._write_alert(each.alert)
                if each.transition is not None:
                    self.connection.execute(_ADD_TRANSITION, as_row(each.transition))
                    if each.transition.state is State.RESOLVED:
                        self.end_firing(each.transition.alert_id, now_ns)
                self.write_notifications(each.notifications, now_ns)
                if each.awaits_evidence:
                    self._add(evidence, {"alert_id": each.alert.alert_id, "fired_ns": now_ns})

    def _write_alert(self, alert: Alert) -> None:
        values = as_row(alert) | as_row(alert.life)
        del values["life"]
        self.connection.execute(_WRITE_ALERT, values)

    def _add(self, table: Table, *rows: Mapping[str, object]) -> None:
        """Add rows; existing ones are kept."""
        if rows:
            self.connection.execute(insert(table).on_conflict_do_nothing(), rows)

    def add_notifications(self, notifications: Sequence[Notification], now_ns: int) -> int:
        """Queue further notifications of a known alert; return how many are new."""
        with self.transaction():
            return self.write_notifications(notifications, now_ns, or_ignore=True)

    def newest_waiting(self, numbers: Collection[int]) -> set[int]:
        """Return which of these notifications wait, with none after them about the same alert."""
        has_later = exists().where(IS_OVERTAKEN)
        waiting = select(outbox.c.number).where(IS_WAITING, outbox.c.number.in_(numbers))
        return set(self.connection.scalars(waiting.where(~has_later)))

    def pass_on_ends(self, notification: Notification) -> None:
        """Add the ends in a group's notification to its next, which some recipients get instead."""
        ends = [alert for alert in notification.alerts if alert.status == "resolved"]
        following = (
            select(outbox.c.number, outbox.c.alerts)
            .where(
                IS_WAITING,
                outbox.c.receiver == notification.receiver,
                outbox.c.fingerprint == notification.fingerprint,
                outbox.c.number > notification.number,
            )
            .order_by(outbox.c.number)
            .limit(1)
        )
        found = self.connection.execute(following).first()
        if notification.group is None or not ends or found is None:
            return
        reported = {fingerprint(alert.labels) for alert in found.alerts}
        ends = [alert for alert in ends if fingerprint(alert.labels) not in reported]
        self._change(found.number, alerts=(*found.alerts, *ends))

    def count_by_state(self) -> Mapping[str, int]:
        """Return the number of notifications by state: waiting, delivered, dead or withdrawn."""
        rows = self.connection.execute(
            select(outbox.c.state, func.count()).group_by(outbox.c.state)
        )
        return {"waiting": 0, "delivered": 0, "dead": 0} | {state: num for state, num in rows}

    def acknowledge(self, alert_id: str, author: str, comment: str, now_ns: int) -> None:
        """Record who acknowledged a firing; a later acknowledgement does not replace the first."""
        row = {"alert_id": alert_id, "author": author, "comment": comment, "time_ns": now_ns}
        self._add(acknowledgements, row)

    def acknowledged(self) -> dict[str, str]:
        """Return who acknowledged each firing, by alert id."""
        rows = self.connection.execute(_ACKNOWLEDGED)
        return {alert_id: author for alert_id, author in rows}

    def transitions(self, limit: int) -> list[Transition]:
        """Return the newest transitions, newest first."""
        newest = select(*_TRANSITION).order_by(
            transitions.c.time_ns.desc(), literal_column("rowid").desc()
        )
        return [Transition(*row) for row in self.connection.execute(newest.limit(limit))]

    def transitions_to_store(self, limit: int = 100) -> list[Transition]:
        """Return the oldest transitions with complete evidence that the store does not have yet."""
        is_gathered = ~exists().where(
            evidence.c.alert_id == transitions.c.alert_id, evidence.c.facts.is_(None)
        )
        oldest = (
            select(*_TRANSITION)
            .where(IS_TO_STORE, is_gathered)
            .order_by(transitions.c.time_ns, literal_column("transitions.rowid"))
        )
        return [Transition(*row) for row in self.connection.execute(oldest.limit(limit))]

    def mark_stored(self, transition_id: str) -> None:
        """Record that the store has a transition."""
        self.connection.execute(
            update(transitions).where(transitions.c.id == transition_id).values(is_stored=True)
        )

    def set_withheld(self, alert_ids: Collection[str], among: Collection[str]) -> None:
        """Replace, among these firings, the set of silenced or inhibited ones; drop ended ones."""
        firing = select(alerts.c.alert_id).where(alerts.c.state == State.FIRING)
        with self.transaction():
            for alert_id in among:
                self.connection.execute(delete(withheld).where(withheld.c.alert_id == alert_id))
            self.connection.execute(delete(withheld).where(withheld.c.alert_id.not_in(firing)))
            self._add(withheld, *({"alert_id": alert_id} for alert_id in alert_ids))

    def withheld(self) -> set[str]:
        """Return the ids of firings that are silenced or inhibited now."""
        return set(self.connection.scalars(_WITHHELD))

    def set_subjects(self, names: Collection[str]) -> None:
        """Replace the names of the SLOs and rules in force."""
        with self.transaction():
            self.connection.execute(delete(subjects))
            self._add(subjects, *({"name": name} for name in names))

    def subjects(self) -> list[str]:
        """Return the names of the SLOs and rules in force, and of those with active alerts."""
        alerting = select(alerts.c.slo).where(alerts.c.state.in_([State.PENDING, State.FIRING]))
        return sorted(self.connection.scalars(union(select(subjects.c.name), alerting)))

    def check_subject(self, name: str) -> None:
        """Check that a silence of this name would have an effect.

        Raises:
            ConfigurationError: If no SLO or rule has the name; lists some of those there are.
        """
        known = self.subjects()
        if name in known:
            return
        unknown = f"no SLO or rule is named {name!r}"
        groups = [each for each in known if each.startswith(f"{name}/")]
        if groups:
            raise ConfigurationError(
                f"{unknown}: it is grouped, and its {len(groups)} SLOs have names such as "
                f"{groups[0]!r}; a silence of all of them matches slo_group={name}"
            )
        hint = suggestion(name, known) or "the collector evaluates none"
        raise ConfigurationError(f"{unknown}; {hint}")

    def silences(self, now_ns: int) -> list[Silence]:
        """Return the active silences, earliest end first."""
        return [s for s in self.silences_until(now_ns) if s.from_ns <= now_ns]

    def silences_until(self, now_ns: int) -> list[Silence]:
        """Return the active and future silences, earliest end first."""
        rows = self.connection.execute(_SILENCES_UNTIL, {"now_ns": now_ns})
        return [Silence(**row) for row in rows.mappings()]

    def add_silence(self, silence: Silence, now_ns: int = 0) -> None:
        """Add a silence.

        Raises:
            ConfigurationError: If there are already 1,000 active or future silences.
        """
        with self.transaction():
            num = self.connection.scalar(
                select(func.count()).select_from(silences).where(silences.c.until_ns > now_ns)
            )
            if (num or 0) >= _MOST_SILENCES:
                raise ConfigurationError(f"there are {_MOST_SILENCES} silences; end some first")
            self.connection.execute(insert(silences).values(as_row(silence)))

    def end_silence(self, silence_id: str, now_ns: int) -> bool:
        """End a silence now; return whether it was active or in the future."""
        is_open = (silences.c.id == silence_id) & (silences.c.until_ns > now_ns)
        ended = self.connection.execute(update(silences).where(is_open).values(until_ns=now_ns))
        return ended.rowcount > 0

    def forget_before(self, time_ns: int) -> None:
        """Delete what ended before this time: alerts, notifications, transitions and silences.

        Of an alert that still fires, the first notifications stay, and who acknowledged it: without
        them, the next start would send it again.
        """
        firing = select(alerts.c.alert_id).where(alerts.c.state == State.FIRING)
        is_over = alerts.c.state.in_([State.INACTIVE, State.RESOLVED])
        is_needed = outbox.c.alert_id.in_(firing) & ~outbox.c.is_repetition
        over: tuple[Executable, ...] = (
            delete(outbox).where(~IS_WAITING, outbox.c.ended_ns < time_ns, ~is_needed),
            delete(acknowledgements).where(
                acknowledgements.c.time_ns < time_ns, acknowledgements.c.alert_id.not_in(firing)
            ),
            delete(alerts).where(is_over, alerts.c.last_held_ns < time_ns),
            delete(transitions).where(transitions.c.is_stored, transitions.c.time_ns < time_ns),
            delete(silences).where(silences.c.until_ns < time_ns),
        )
        with self.transaction():
            for statement in over:
                self.connection.execute(statement)
