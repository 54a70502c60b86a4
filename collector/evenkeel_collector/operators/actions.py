"""The API's actions: silence, acknowledge, replay and correct, with validation."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenkeel.audit import FILE_NAME as AUDIT_NAME
from evenkeel.audit import AuditEntry, write_down
from evenkeel.durations import parse_duration_s
from evenkeel.errors import ConfigurationError
from evenkeel.known_names import suggestion
from evenkeel.slo.matchers import Matcher, Operator, check_selective, parse_matchers
from evenkeel.times import parse_time_ns, rfc3339
from evenkeel_collector.alerts.book import FILE_NAME, AlertBook
from evenkeel_collector.alerts.silence import Silence, subject_of
from evenkeel_collector.alerts.state import State
from evenkeel_collector.slo.corrections import (
    Correction,
    CorrectionReason,
    Corrections,
    whole_minutes,
)

M = TypeVar("M", bound=BaseModel)
Author = Annotated[str, Field(min_length=1, max_length=200)]
Text = Annotated[str, Field(max_length=2_000)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
_LONGEST_SILENCE_S = 30 * 86_400
_LATEST_BEGIN_S = 366 * 86_400
_USUAL_DURATION = "1h"
_HEX_PATTERN = re.compile(r"\^\[0-9a-f\]\{(\d+)\}\$")


class Order(BaseModel):
    """The field of every action: its author."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    by: Author = Field(description="Who acts, for the audit log.")


class Acknowledge(Order):
    """Acknowledge the firing alerts of an SLO."""

    slo: Name = Field(description="The SLO or rule whose alerts fire.")
    comment: Text = Field(default="", description="A note for others.")


class Silencing(Order):
    """Silence the alerts of an SLO, or those that match all matchers.

    The silence begins now or at `begin`, and ends after `duration` or at `end`.
    """

    slo: str = Field(
        max_length=200, default="", description="The SLO or rule; either this or `matchers`."
    )
    matchers: list[Text] = Field(
        max_length=20,
        default=[],
        description='Matchers such as `model="chat"`, all of which an alert must fulfil.',
    )
    duration: str = Field(
        max_length=20,
        default="",
        description="How long, such as `2h`, up to `30d`; `1h` without it and `end`.",
    )
    begin: str = Field(
        max_length=40, default="", description="Start, RFC 3339, within a year; now if empty."
    )
    end: str = Field(max_length=40, default="", description="End, RFC 3339, instead of `duration`.")
    comment: Text = Field(default="", description="Why.")


class EndSilence(Order):
    """End a silence now."""

    id: Name = Field(description="The silence.")


class Replay(Order):
    """Retry one failed notification (dead letter), or all of them."""

    number: Annotated[int, Field(ge=0, lt=1 << 63)] | None = Field(
        default=None, description="The dead letter; null for all of them."
    )


class Correct(Order):
    """Exclude a time range from the error budget; an empty `slo` means every SLO."""

    slo: str = Field(max_length=200, default="", description="The SLO; empty for all of them.")
    begin: str = Field(max_length=40, description="Start, RFC 3339; whole minutes are excluded.")
    end: str = Field(max_length=40, description="End, RFC 3339, exclusive.")
    reason: CorrectionReason = Field(
        default=CorrectionReason.MAINTENANCE, description="Kind of reason."
    )
    comment: str = Field(min_length=1, max_length=2_000, description="Why.")


class Revoke(Order):
    """Revoke a correction."""

    id: Name = Field(description="The correction.")


def _acknowledge(book: AlertBook, order: Acknowledge, now_ns: int) -> dict[str, Any]:
    all_firing = [alert for alert in book.alerts() if alert.life.state is State.FIRING]
    firing = [
        alert for alert in all_firing if order.slo in (alert.slo, alert.details.labels.get("slo"))
    ]
    if not firing:
        hint = suggestion(order.slo, dict.fromkeys(alert.slo for alert in all_firing))
        raise ConfigurationError(f"no alert of {order.slo!r} is firing{hint and '; '}{hint}")
    for alert in firing:
        book.acknowledge(alert.alert_id, order.by, order.comment, now_ns)
    return {"acknowledged": [f"{alert.slo} {alert.severity}" for alert in firing]}


def _silence(book: AlertBook, order: Silencing, now_ns: int) -> dict[str, Any]:
    if bool(order.slo) == bool(order.matchers):
        raise ConfigurationError("give either slo or matchers")
    matchers = parse_matchers(order.matchers) or (Matcher("slo", Operator.EQUAL, order.slo),)
    check_selective(matchers)
    for matcher in matchers:
        if matcher.name == "slo" and matcher.operator is Operator.EQUAL:
            book.check_subject(matcher.value)
    from_ns, until_ns = _silenced_span(order, now_ns)
    silence = Silence(
        uuid4().hex[:12],
        subject_of(matchers),
        from_ns,
        until_ns,
        order.comment,
        matchers,
        order.by,
    )
    book.add_silence(silence, now_ns)
    return {
        "id": silence.id,
        "matchers": [str(matcher) for matcher in matchers],
        "from": rfc3339(from_ns),
        "until": rfc3339(until_ns),
    }


def _silenced_span(order: Silencing, now_ns: int) -> tuple[int, int]:
    if order.duration and order.end:
        raise ConfigurationError("give either duration or end, not both")
    from_ns = parse_time_ns(order.begin) if order.begin else now_ns
    # A begin in the past becomes now: notifications already sent stay sent.
    from_ns = max(from_ns, now_ns)
    if from_ns > now_ns + _LATEST_BEGIN_S * 10**9:
        raise ConfigurationError(f"a silence begins within a year, not at {order.begin}")
    if order.end:
        until_ns = parse_time_ns(order.end)
        if not from_ns < until_ns <= from_ns + _LONGEST_SILENCE_S * 10**9:
            raise ConfigurationError(
                f"a silence ends after now and up to 30d after it begins, not at {order.end}"
            )
        return from_ns, until_ns
    duration_s = parse_duration_s(order.duration or _USUAL_DURATION)
    if not 0 < duration_s <= _LONGEST_SILENCE_S:
        raise ConfigurationError(f"a silence lasts up to 30d, not {order.duration}")
    return from_ns, from_ns + int(duration_s * 10**9)


def _end_silence(book: AlertBook, order: EndSilence, now_ns: int) -> dict[str, Any]:
    if not book.end_silence(order.id, now_ns):
        raise ConfigurationError(f"no silence {order.id!r} is active or scheduled")
    return {"ended": order.id}


def _replay(book: AlertBook, order: Replay, now_ns: int) -> dict[str, Any]:
    num_replayed = book.replay(now_ns, order.number)
    left = book.dead()
    if order.number is not None and not num_replayed:
        if any(dead.number == order.number for dead in left):
            raise ConfigurationError(
                f"dead letter {order.number} is superseded: "
                "its receiver already got a later notification of this alert"
            )
        raise ConfigurationError(f"no dead letter with number {order.number}")
    return {"replayed": num_replayed, "overtaken": 0 if order.number is not None else len(left)}


def _correct(book: AlertBook, order: Correct, now_ns: int) -> dict[str, Any]:
    from_ns, until_ns = whole_minutes(parse_time_ns(order.begin), parse_time_ns(order.end))
    if until_ns <= from_ns:
        raise ConfigurationError(f"end {order.end} is not after begin {order.begin}")
    if order.slo:
        book.check_subject(order.slo)
    if not order.comment.strip():
        raise ConfigurationError("a correction needs a comment with the reason")
    correction = Correction(
        uuid4().hex[:12],
        order.slo,
        from_ns,
        until_ns,
        order.reason,
        order.by,
        order.comment,
        now_ns,
    )
    Corrections(book).add(correction)
    return {"id": correction.id, "from": rfc3339(from_ns), "until": rfc3339(until_ns)}


def _revoke(book: AlertBook, order: Revoke, now_ns: int) -> dict[str, Any]:
    if not Corrections(book).revoke(order.id, order.by, now_ns):
        raise ConfigurationError(f"no correction {order.id!r} is in force")
    return {"revoked": order.id}


ACTIONS: Mapping[str, tuple[type[Order], Callable[[AlertBook, Any, int], dict[str, Any]]]] = {
    "acknowledge": (Acknowledge, _acknowledge),
    "silence": (Silencing, _silence),
    "end-silence": (EndSilence, _end_silence),
    "replay": (Replay, _replay),
    "correct": (Correct, _correct),
    "revoke": (Revoke, _revoke),
}
"""The actions by the last segment of their path."""


def read_model(model: type[M], said: Mapping[str, object]) -> M:
    """Return an action from its command-line arguments.

    Raises:
        ConfigurationError: If an argument is invalid; the message names the field.
    """
    try:
        return model.model_validate(dict(said))
    except ValidationError as error:
        raise ConfigurationError(first_mistake(error.errors(include_input=False))) from error


def first_mistake(errors: Sequence[Mapping[str, Any]]) -> str:
    """Return Pydantic's first error as one line that names the field."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return f"the body is not JSON: {first['ctx']['error']} at character {first['loc'][-1] + 1}"
    where = ".".join(str(part) for part in first["loc"]) or "body"
    if first["type"] == "missing":
        return f"{where} is missing"
    if first["type"] == "extra_forbidden":
        return f"{where} is not a known field"
    if first["type"] == "string_pattern_mismatch":
        digits = _HEX_PATTERN.fullmatch(first["ctx"]["pattern"])
        if digits is not None:
            return f"{where} is not {digits[1]} lower-case hex digits"
    return f"{where}: {first['msg'].removeprefix('Value error, ')}"


def perform(path: Path, name: str, order: Order, now_ns: int) -> dict[str, Any]:
    """Run one action on the alert book at `path` and return its result.

    Raises:
        ConfigurationError: If the action is invalid, or there is no alert book.
    """
    with AlertBook(path, create=False) as book:
        return ACTIONS[name][1](book, order, now_ns)


def entry_of(name: str, order: Order, token: str, now_ns: int) -> AuditEntry:
    """Return an action's audit entry without its result."""
    return AuditEntry(now_ns, order.by, token, name, order.model_dump(mode="json", exclude={"by"}))


def perform_locally(data_dir: Path, name: str, order: Order, now_ns: int) -> dict[str, Any]:
    """Run one action in the collector's folder and record it in the audit log, without a token.

    Raises:
        ConfigurationError: If the action is invalid or cannot be recorded.
    """
    path = data_dir / FILE_NAME
    # Checked before opening the audit log, which would create its file in any folder.
    AlertBook(path, create=False).close()
    entry = entry_of(name, order, "", now_ns)
    return write_down(data_dir / AUDIT_NAME, entry, lambda: perform(path, name, order, now_ns))
