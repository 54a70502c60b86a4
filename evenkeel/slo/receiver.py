"""Receivers of alert notifications, as defined in an SLO file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from evenkeel.errors import ConfigurationError, first_line
from evenkeel.settings import read_environment
from evenkeel.slo.mute_time import MuteTime
from evenkeel.slo.routing import Route


class ReceiverType(StrEnum):
    """The format a receiver accepts; docs/guide/alerts.md has an example of each."""

    WEBHOOK = "webhook"
    GENERIC = "generic"
    SLACK = "slack"
    PAGERDUTY = "pagerduty"
    OPSGENIE = "opsgenie"
    ALERTMANAGER = "alertmanager"
    EMAIL = "email"
    APPRISE = "apprise"


@dataclass(frozen=True, slots=True)
class Secret:
    """The location of a secret, never its value: an environment variable or a file.

    A file is read on every use, so that the secret may change while the collector runs.
    """

    variable: str | None = None
    file: Path | None = None

    def read(self) -> str:
        """Return the secret.

        Raises:
            ConfigurationError: If it is missing; names the location.
        """
        if self.file is None:
            text = read_environment(self.variable or "") or ""
        else:
            try:
                text = self.file.read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigurationError(
                    f"{self.file} cannot be read: {first_line(error)}"
                ) from error
        if not text.strip():
            raise ConfigurationError(f"the secret {self.file or self.variable} is empty or not set")
        return text.strip()


@dataclass(frozen=True, slots=True)
class AlertGrouping:
    """Which alerts share a notification, and when it is sent.

    Attributes:
        by: The labels that alerts of one group share; a missing label counts as ''.
        wait_s: From the first change of a group to its notification.
        interval_s: Minimum time between two notifications about changes to a firing group.
    """

    by: tuple[str, ...]
    wait_s: Fraction = Fraction(0)
    interval_s: Fraction = Fraction(0)

    def labels_of(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Return the labels of the group that an alert belongs to."""
        return {name: labels.get(name, "") for name in sorted(self.by)}


@dataclass(frozen=True, slots=True)
class Receiver:
    """Where notifications go.

    Attributes:
        name: Unique in the file.
        url: An http or https address; smtp for e-mail; '' if `url_secret` holds it.
        type: The format sent.
        url_secret: The address, if it is itself a secret (Slack).
        secrets: The PagerDuty or Opsgenie key; for signing, all keys, newest first.
        allow_private: Whether private network addresses are allowed.
        severities: Severities it receives; empty: all.
        repeat_s: How often to notify again while an alert fires and is not acknowledged; 0:
            never.
        group: How alerts are grouped into notifications; None: one notification per alert.
        mute_times: When firing alerts are held back.
        active_times: Firing alerts are also held back outside these; empty: no limit.
        sends_resolved: Whether it is notified when an alert resolves.
        route: The root of the routing tree; None: it receives every alert it accepts.
        base: Its name in the file if the tree gives it another grouping; '' otherwise.
        sender: E-mail sender.
        recipients: E-mail recipients.
    """

    name: str
    url: str
    type: ReceiverType = ReceiverType.WEBHOOK
    url_secret: Secret | None = None
    secrets: tuple[Secret, ...] = ()
    allow_private: bool = False
    severities: tuple[str, ...] = ()
    repeat_s: Fraction = Fraction(0)
    group: AlertGrouping | None = None
    mute_times: tuple[MuteTime, ...] = ()
    sender: str = ""
    recipients: tuple[str, ...] = ()
    active_times: tuple[MuteTime, ...] = ()
    sends_resolved: bool = True
    route: Route | None = None
    base: str = ""

    @property
    def opens_incidents(self) -> bool:
        """Whether a firing opens something there that stays open until its end is sent."""
        return self.type in (ReceiverType.PAGERDUTY, ReceiverType.OPSGENIE)

    def wants(self, severity: str, labels: Mapping[str, str]) -> bool:
        """Return whether this receiver gets an alert."""
        if self.severities and severity not in self.severities:
            return False
        return self.route is None or self.name in self.route.receivers_of(labels)

    def is_muted(self, now_ns: int) -> bool:
        """Return whether firing alerts are held back now."""
        if any(mute.holds(now_ns) for mute in self.mute_times):
            return True
        return bool(self.active_times) and not any(t.holds(now_ns) for t in self.active_times)

    def lack(self) -> str | None:
        """Return the problem with the first missing secret; None if all are present."""
        try:
            for secret in (self.url_secret, *self.secrets):
                if secret is not None:
                    secret.read()
        except ConfigurationError as error:
            return str(error)
        return None

    def address(self) -> str:
        """Return the address to send to.

        Raises:
            ConfigurationError: If the secret that holds it is missing.
        """
        return self.url if self.url_secret is None else self.url_secret.read()


def routed_name(name: str, options: Sequence[str]) -> str:
    """Return a receiver's name if the routing tree gives it other options."""
    return f"{name} [{', '.join(options)}]"


def receiver_at(name: str, receivers: Mapping[str, Receiver]) -> Receiver | None:
    """Return the receiver of a name; None if there is none.

    If the tree no longer sets the options in the name, this is the underlying receiver: its pending
    notifications are still due.
    """
    return receivers.get(name) or receivers.get(place_of(name))


def place_of(name: str) -> str:
    """Return a receiver's name in the file, without a route's options."""
    return name.partition(" [")[0]
