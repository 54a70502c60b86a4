"""The requests in the server's engine and how long they have waited for a token."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from evenkeel_runtime.wire.shared_message import SharedMessage

# What a request in the engine waits for; the names are a label of the metrics.
FIRST_TOKEN, NEXT_TOKEN = "first_token", "next_token"


@dataclass(slots=True)
class ModelInFlight:
    """The requests of one model; both maps by what they wait for.

    Attributes:
        num_running: Requests in the engine.
        num_stalled: Of those, ones without a token for longer than the limit.
        longest_s: The longest time that one of them has waited.
    """

    num_running: int = 0
    num_stalled: dict[str, int] = field(default_factory=lambda: {FIRST_TOKEN: 0, NEXT_TOKEN: 0})
    longest_s: dict[str, float] = field(default_factory=lambda: {FIRST_TOKEN: 0.0, NEXT_TOKEN: 0.0})


@dataclass(frozen=True, slots=True)
class InFlight:
    """All requests in the engine, by model.

    Attributes:
        read_ns: When, on the monotonic clock.
        models: Every model that had a request since the start, up to a limit.
    """

    read_ns: int = 0
    models: Mapping[str, ModelInFlight] = field(default_factory=dict)


class SharedInFlight(SharedMessage[InFlight]):
    """The memory of the latest reading; only the server writes."""

    message_type = InFlight


@dataclass(frozen=True, slots=True)
class InFlightGauge:
    """A metric of the requests in the engine.

    Attributes:
        name: Its name, on `/metrics` and in OTLP.
        unit: Its unit in OTLP.
        field: The field of `ModelInFlight` that it shows.
        labels: `model`, and `waits_for` if the field is a map.
        meaning: In one line.
    """

    name: str
    unit: str
    field: str
    labels: tuple[str, ...]
    meaning: str


IN_FLIGHT_GAUGES = (
    InFlightGauge(
        "evenkeel_runtime_requests_in_flight",
        "{request}",
        "num_running",
        ("model",),
        "Requests in the engine",
    ),
    InFlightGauge(
        "evenkeel_runtime_stalled_requests",
        "{request}",
        "num_stalled",
        ("model", "waits_for"),
        "Requests in the engine without a token for longer than stall_after_s",
    ),
    InFlightGauge(
        "evenkeel_runtime_longest_wait_seconds",
        "s",
        "longest_s",
        ("model", "waits_for"),
        "The longest time that a request in the engine has waited for a token",
    ),
)


def gauge_values(gauge: InFlightGauge, reading: InFlight) -> Iterator[tuple[dict[str, str], float]]:
    """Yield the labels and value of each sample."""
    for model, of_model in reading.models.items():
        value = getattr(of_model, gauge.field)
        if isinstance(value, dict):
            for waits_for, each in value.items():
                yield {"model": model, "waits_for": waits_for}, each
        else:
            yield {"model": model}, value
