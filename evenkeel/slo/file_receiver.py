"""Reads the receivers of an SLO file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import time
from fractions import Fraction
from pathlib import Path
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from evenkeel.errors import ConfigurationError
from evenkeel.slo.arithmetic import Severity
from evenkeel.slo.file_objective import duration_s
from evenkeel.slo.mute_time import MuteTime
from evenkeel.slo.receiver import AlertGrouping, Receiver, ReceiverType, Secret
from evenkeel.slo.yaml_source import Value

_USUAL_URLS = {
    ReceiverType.PAGERDUTY: "https://events.pagerduty.com",
    ReceiverType.OPSGENIE: "https://api.opsgenie.com",
}
_KEYED = (ReceiverType.PAGERDUTY, ReceiverType.OPSGENIE, ReceiverType.GENERIC)
# These make an incident of each alert, and group by rules of their own.
GROUPING_THEMSELVES = (
    ReceiverType.PAGERDUTY,
    ReceiverType.OPSGENIE,
    ReceiverType.ALERTMANAGER,
)
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def read_receivers(listed: Value) -> Iterable[Receiver]:
    """Yield the receivers.

    Raises:
        ConfigurationError: On a wrong address, a key too few, or a name that comes twice.
    """
    seen: set[str] = set()
    for element in listed.items():
        receiver = _read_receiver(element, seen)
        seen.add(receiver.name)
        yield receiver


def _read_receiver(element: Value, seen: set[str]) -> Receiver:
    section = element.section()
    name, kind_value = section.required("name"), section.optional("type")
    if name.text() in seen:
        raise name.complaint(f"receiver {name.text()!r} comes twice")
    kind = (
        ReceiverType.WEBHOOK
        if kind_value is None
        else ReceiverType(kind_value.choice(*ReceiverType))
    )
    url, url_from = section.optional("url"), section.optional("urlFrom")
    if url is not None and url_from is not None:
        raise url_from.complaint("give url or urlFrom, not both")
    if url is None and url_from is None and kind not in _USUAL_URLS:
        url = section.required("url")
    if url is not None:
        _check(url, kind)
    secrets, allow = section.optional("secrets"), section.optional("allowPrivate")
    severities, repeat = section.optional("severities"), section.optional("repeat")
    mute_times, group = section.optional("muteTimes"), section.optional("group")
    sender, recipients = section.optional("from"), section.optional("to")
    resolved, spelled_otherwise = (
        section.optional("sendResolved"),
        section.optional("send_resolved"),
    )
    section.close()
    if resolved is not None and spelled_otherwise is not None:
        raise resolved.complaint("give sendResolved or send_resolved, not both")
    resolved = resolved or spelled_otherwise
    if kind in _KEYED and secrets is None:
        raise element.complaint(f"receiver {name.text()!r}: {kind} needs secrets")
    if group is not None and kind in GROUPING_THEMSELVES:
        raise group.complaint(
            f"receiver {name.text()!r}: {kind} is told of each alert and groups by itself"
        )
    if kind is ReceiverType.EMAIL and (sender is None or recipients is None):
        raise element.complaint(f"receiver {name.text()!r}: email needs from and to")
    return Receiver(
        name=name.text(),
        url=_USUAL_URLS.get(kind, "") if url is None else url.text(),
        type=kind,
        url_secret=None if url_from is None else _read_secret(url_from),
        secrets=() if secrets is None else tuple(_read_secret(s) for s in secrets.items()),
        allow_private=allow is not None and allow.choice("true", "false") == "true",
        severities=()
        if severities is None
        else tuple(s.choice(*Severity) for s in severities.items()),
        repeat_s=Fraction(0) if repeat is None else duration_s(repeat),
        group=None if group is None else _read_grouping(group),
        mute_times=()
        if mute_times is None
        else tuple(read_mute_time(mute) for mute in mute_times.items()),
        sends_resolved=resolved is None or resolved.choice("true", "false") == "true",
        sender="" if sender is None else sender.text(),
        recipients=() if recipients is None else tuple(r.text() for r in recipients.items()),
    )


def _check(url: Value, kind: ReceiverType) -> None:
    if kind is ReceiverType.APPRISE:
        if not re.fullmatch(r"[a-z][a-z0-9]*://.+", url.text()):
            raise url.error("an address that apprise knows, such as ntfy://HOST/TOPIC")
        return
    if kind is not ReceiverType.EMAIL:
        check_url(url.text(), url.error("an http or https address with a host"))
        return
    parts = urlsplit(url.text())
    if parts.scheme not in ("smtp", "smtps") or not parts.hostname:
        raise url.error("smtp://HOST:PORT or smtps://HOST:PORT")


def check_url(url: str, error: ConfigurationError) -> None:
    """Raise `error` unless `url` is an http or https address with a host."""
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise error


def _read_secret(value: Value) -> Secret:
    section = value.section()
    variable, file = section.optional("env"), section.optional("file")
    section.close()
    if (variable is None) == (file is None):
        raise value.complaint("a secret is {env: VARIABLE} or {file: PATH}, never the text itself")
    if variable is not None:
        return Secret(variable=variable.text())
    assert file is not None
    return Secret(file=Path(file.text()))


def _read_grouping(value: Value) -> AlertGrouping:
    section = value.section()
    by, wait, interval = (
        section.required("by"),
        section.optional("wait"),
        section.optional("interval"),
    )
    section.close()
    labels = tuple(label.text() for label in by.items())
    if not labels or len(set(labels)) < len(labels):
        raise by.complaint("by lists the labels that make a group, each once, such as [slo]")
    return AlertGrouping(
        labels,
        Fraction(30) if wait is None else duration_s(wait),
        Fraction(300) if interval is None else duration_s(interval),
    )


def read_mute_time(value: Value) -> MuteTime:
    """Return a span such as `{days: [sat], from: '22:00', until: '06:00', timeZone: UTC}`."""
    section = value.section()
    days, zone = section.optional("days"), section.required("timeZone")
    from_, until = section.required("from"), section.required("until")
    section.close()
    weekdays = range(7) if days is None else [_DAYS.index(d.choice(*_DAYS)) for d in days.items()]
    try:
        return MuteTime(tuple(weekdays), _clock(from_), _clock(until), ZoneInfo(zone.text()))
    except (ZoneInfoNotFoundError, OSError):
        raise zone.error("an IANA time zone such as Europe/Berlin") from None


def _clock(value: Value) -> time:
    try:
        return time.fromisoformat(value.text())
    except ValueError:
        raise value.error("a quoted local time such as '22:00'") from None
