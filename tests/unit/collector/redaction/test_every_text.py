"""Whether a secret in any text of any signal comes out of the intake."""

from collections.abc import Iterator
from typing import Any

import pytest

from evenkeel_collector.intake.signals import PROTOBUF, SIGNALS, Signal
from tests.fixtures.otlp_payload import key_values
from tests.unit.collector.intake.test_pipeline import pipeline
from tests.unit.collector.redaction.redaction_requests import SECRET

# What docs/guide/redaction.md says is not scanned.
NOT_SCANNED = {"trace_id", "span_id", "parent_span_id", "trace_state"}
# Any value may hold a map of others.
MAX_DEPTH = 12


def texts(message: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each field of text or bytes in a kind of message."""
    for field in message.fields:
        if field.message_type is not None:
            if len(path) < MAX_DEPTH:
                yield from texts(field.message_type, (*path, field))
        elif field.type in (field.TYPE_STRING, field.TYPE_BYTES) and field.name not in NOT_SCANNED:
            yield (*path, field)


def with_text(signal: Signal, path: tuple[Any, ...]) -> bytes:
    """Return a request of the signal with the secret in one field."""
    request = holder = signal.request()
    for field in path[:-1]:
        inner = getattr(holder, field.name)
        holder = inner.add() if field.is_repeated else inner
        if holder.DESCRIPTOR.name == "KeyValue":
            holder.key = "note"
        if holder.DESCRIPTOR.name == "Metric" and path[-2] is field:
            # Nothing is stored of a metric without a point.
            holder.gauge.data_points.add(as_int=1, attributes=key_values({"gpu": 1}))
    text = f"mail to {SECRET}"
    value = text.encode() if path[-1].type == path[-1].TYPE_BYTES else text
    if path[-1].is_repeated:
        getattr(holder, path[-1].name).append(value)
    else:
        setattr(holder, path[-1].name, value)
    return bytes(request.SerializeToString())


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.path)
def test_no_text_of_any_signal_keeps_its_secret(signal: Signal) -> None:
    process = pipeline()[0]
    found = {}
    for path in texts(signal.request.DESCRIPTOR):
        payload = signal.parsers[PROTOBUF](with_text(signal, path), process, None).payload
        found[".".join(field.name for field in path)] = SECRET.encode() in payload
    assert len(found) > 20
    assert [name for name, is_kept in found.items() if is_kept] == []
