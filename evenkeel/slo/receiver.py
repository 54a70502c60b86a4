"""Who is told of alerts, and how: the receivers of an SLO file."""

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
    """What a receiver understands; docs/guide/alerts.md has an example of each."""

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
    """Where a secret is, never what it is: a variable of the environment, or a file.

    A file is read at every use, so that its secret may change while the collector runs.
    """

    variable: str | None = None
    file: Path | None = None

    def read(self) -> str:
        """Return the secret.

        Raises:
            ConfigurationError: If it is not there; names the place.
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
    """Which alerts a receiver is told of together, and when.

    Attributes:
        by: The labels that alerts of one group have alike; an alert without one has '' for it.
        wait_s: From the first change of a group to its notification.
        interval_s: Between two notifications about changes of a group that fires.
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
        url: An http or https address; smtp for e-mail; '' where `url_secret` holds it.
        type: What is sent.
        url_secret: The address, where it is a secret itself (Slack).
        secrets: The key: PagerDuty's, Opsgenie's; those that sign, newest first.
        allow_private: Whether addresses inside may be used.
        severities: What it is told of; empty: everything.
        repeat_s: How often it is told again while an alert fires and nobody has taken it on;
            0: never.
        group: Which alerts it is told of together; None: of each alone.
        mute_times: When firing alerts wait.
        active_times: Outside which they wait too; empty: never.
        sends_resolved: Whether it is told that an alert has ended.
        route: The root of the routing tree; None: it is told of everything it wants.
        base: Its name in the file where the tree gives it another grouping; '' otherwise.
        sender: Of e-mail.
        recipients: Of e-mail.
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

    def wants(self, severity: str, labels: Mapping[str, str]) -> bool:
        """Return whether it is told of an alert."""
        if self.severities and severity not in self.severities:
            return False
        return self.route is None or self.name in self.route.receivers_of(labels)

    def is_muted(self, now_ns: int) -> bool:
        """Return whether firing alerts wait now."""
        if any(mute.holds(now_ns) for mute in self.mute_times):
            return True
        return bool(self.active_times) and not any(t.holds(now_ns) for t in self.active_times)

    def lack(self) -> str | None:
        """Return what is wrong with the first secret that is not there; None if all are."""
        try:
            for secret in (self.url_secret, *self.secrets):
                if secret is not None:
                    secret.read()
        except ConfigurationError as error:
            return str(error)
        return None

    def address(self) -> str:
        """Return where to send.

        Raises:
            ConfigurationError: If the secret that holds it is not there.
        """
        return self.url if self.url_secret is None else self.url_secret.read()


def routed_name(name: str, options: Sequence[str]) -> str:
    """Return what a receiver is called where the routing tree gives it other options."""
    return f"{name} [{', '.join(options)}]"


def receiver_at(name: str, receivers: Mapping[str, Receiver]) -> Receiver | None:
    """Return the receiver of a name; None if there is none.

    With options that the tree no longer gives, it is the receiver that they were given to: it is
    still owed what it was owed.
    """
    return receivers.get(name) or receivers.get(place_of(name))


def place_of(name: str) -> str:
    """Return the name that a receiver has in the file, without the options of a route."""
    return name.partition(" [")[0]
