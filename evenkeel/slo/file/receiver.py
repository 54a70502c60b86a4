"""Reads the receivers of an SLO file."""

from __future__ import annotations

import re
from datetime import time
from email.errors import MessageError
from email.message import EmailMessage
from email.utils import getaddresses
from fractions import Fraction
from pathlib import Path
from urllib.parse import urlsplit

from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.mute_time import MuteTime
from evenkeel.slo.receiver import AlertGrouping, Receiver, ReceiverType, Secret, place_of
from evenkeel.slo.yaml_source import Value

_USUAL_URLS = {
    ReceiverType.PAGERDUTY: "https://events.pagerduty.com",
    ReceiverType.OPSGENIE: "https://api.opsgenie.com",
}
_KEYED = (ReceiverType.PAGERDUTY, ReceiverType.OPSGENIE, ReceiverType.GENERIC)
# These open an incident per alert and do their own grouping.
GROUPING_THEMSELVES = (
    ReceiverType.PAGERDUTY,
    ReceiverType.OPSGENIE,
    ReceiverType.ALERTMANAGER,
)
_SECRET_FORMS = ("{env: VARIABLE}", "{file: PATH}")
_NO_SECRET = f"a secret is {' or '.join(_SECRET_FORMS)}, never the text itself"
_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def read_receivers(listed: Value) -> tuple[Receiver, ...]:
    """Return the receivers.

    Raises:
        ConfigurationError: On a wrong address, a missing key, or a repeated name.
    """
    receivers: dict[str, Receiver] = {}
    for element in listed.items():
        receiver = _read_receiver(element)
        if receiver.name in receivers:
            raise element.complaint(f"receiver {receiver.name!r} appears twice", "name")
        receivers[receiver.name] = receiver
    return tuple(receivers.values())


def _read_receiver(element: Value) -> Receiver:
    with element.section() as section:
        name = section.read("name", _read_name)
        kind = section.read_or("type", ReceiverType.WEBHOOK, Value.choice, *ReceiverType)
        url, url_from = section.optional("url"), section.optional("urlFrom")
        resolved, snake = section.optional("sendResolved"), section.optional("send_resolved")
        group = section.optional("group")
        if url is not None and url_from is not None:
            raise url_from.complaint("give url or urlFrom, not both")
        if url is None and url_from is None and kind not in _USUAL_URLS:
            raise element.complaint(
                f"receiver {name!r}: {kind} needs url, or urlFrom: {_SECRET_FORMS[0]}"
            )
        if url is not None:
            _check(url, kind)
        if resolved is not None and snake is not None:
            raise resolved.complaint("give sendResolved or send_resolved, not both")
        resolved = resolved or snake
        receiver = Receiver(
            name=name,
            url=_USUAL_URLS.get(kind, "") if url is None else url.text(),
            type=kind,
            url_secret=None if url_from is None else _read_secret(url_from),
            secrets=section.read_or("secrets", (), Value.each, _read_secret),
            allow_private=section.read_or("allowPrivate", False, Value.flag),
            severities=section.read_or(
                "severities", (), Value.each, lambda each: str(each.choice(*Severity))
            ),
            repeat_s=section.read_or("repeat", Fraction(0), Value.duration_s),
            group=None if group is None else _read_grouping(group),
            mute_times=section.read_or("muteTimes", (), Value.each, read_mute_time),
            sends_resolved=resolved is None or resolved.flag(),
            sender=section.read_or("from", "", _read_mailbox),
            recipients=section.read_or("to", (), Value.each, _read_mailbox),
        )
    of = f"receiver {receiver.name!r}: {kind}"
    if kind in _KEYED and element.at("secrets") is None:
        forms = " or ".join(f"[{form}]" for form in _SECRET_FORMS)
        raise element.complaint(f"{of} needs secrets: {forms}")
    if group is not None and kind in GROUPING_THEMSELVES:
        raise group.complaint(f"{of} receives each alert and does its own grouping")
    if kind is ReceiverType.EMAIL and not (receiver.sender and receiver.recipients):
        raise element.complaint(f"{of} needs from and to")
    return receiver


def _read_name(value: Value) -> str:
    name = value.text()
    if place_of(name) != name:
        raise value.complaint(
            f"the receiver's name {name!r} contains ' [', after which the options of a route are"
            " listed: use other brackets"
        )
    return name


def _check(url: Value, kind: ReceiverType) -> None:
    if kind is ReceiverType.APPRISE:
        if not re.fullmatch(r"[a-z][a-z0-9]*://.+", url.text()):
            raise url.error("an address that Apprise supports, such as ntfy://HOST/TOPIC")
        return
    schemes, expected = ("http", "https"), "an http or https address with a host"
    if kind is ReceiverType.EMAIL:
        schemes, expected = ("smtp", "smtps"), "smtp://HOST:PORT or smtps://HOST:PORT"
    try:
        parts = urlsplit(url.text())
        is_good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
        if is_good and kind is ReceiverType.EMAIL and parts.password is not None:
            raise url.complaint(f"the password belongs in secrets, not in url; {_NO_SECRET}")
    except ValueError:
        is_good = False
    if not is_good:
        raise url.error(expected)


def _read_mailbox(value: Value) -> str:
    text = value.text()
    found = [address for _, address in getaddresses([text])]
    is_good = text.isprintable() and all(a and not a.startswith("@") for a in found)
    # "Smith, Bob <bob@example.com>" is two, of which the first is an account of the server's.
    is_good = is_good and (len(found) < 2 or all("@" in address for address in found))
    # The message names others than it is sent to, as for "Bob bob@example.com" without brackets.
    if not (is_good and _addresses_in_header(text) == set(found)):
        raise value.error("an address such as ann@example.com or '\"Ann, SRE\" <ann@example.com>'")
    return text


def _addresses_in_header(text: str) -> set[str]:
    message = EmailMessage()
    try:
        message["To"] = text
        return {address.addr_spec for address in message["To"].addresses}
    except (ValueError, LookupError, AttributeError, MessageError):
        # The parser also fails on some texts.
        return set()


def _read_secret(value: Value) -> Secret:
    if not value.is_section:
        raise value.complaint(_NO_SECRET)
    with value.section() as section:
        variable = section.read_or("env", None, Value.text)
        file = section.read_or("file", None, Value.text)
    if (variable is None) == (file is None):
        raise value.complaint(_NO_SECRET)
    return Secret(variable, None if file is None else Path(file))


def _read_grouping(value: Value) -> AlertGrouping:
    with value.section() as section:
        by = section.required("by")
        labels = by.texts()
        if not labels or len(set(labels)) < len(labels):
            raise by.complaint("by lists the labels to group by, each once, such as [slo]")
        return AlertGrouping(
            labels,
            section.read_or("wait", Fraction(30), Value.duration_s),
            section.read_or("interval", Fraction(300), Value.duration_s),
        )


def read_mute_time(value: Value) -> MuteTime:
    """Return a span such as `{days: [sat], from: '22:00', until: '06:00', timeZone: UTC}`."""
    with value.section() as section:
        return MuteTime(
            section.read_or("days", tuple(range(7)), Value.each, _read_day),
            section.read("from", _read_clock),
            section.read("until", _read_clock),
            section.read("timeZone", Value.zone),
        )


def _read_day(value: Value) -> int:
    return _DAYS.index(value.choice(*_DAYS))


def _read_clock(value: Value) -> time:
    try:
        return time.fromisoformat(value.text())
    except ValueError:
        raise value.error("a quoted local time such as '22:00'") from None
