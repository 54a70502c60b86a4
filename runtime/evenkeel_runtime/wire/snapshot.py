"""The exporter's view of the engines, in shared memory that the server reads for `/metrics`."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from evenkeel.conventions import SERVER_METRIC_BOUNDS_S
from evenkeel_runtime.wire.shared_message import SharedMessage

# Upper bounds of the step-duration histogram in seconds, from a small CPU model to a long prefill.
STEP_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


@dataclass(frozen=True, slots=True)
class Exemplar:
    """One request counted in a bucket.

    Attributes:
        value: The observed value.
        trace_id: Its trace, in hex.
        span_id: Its span, in hex.
        time_s: When, in Unix seconds.
    """

    value: float
    trace_id: str
    span_id: str
    time_s: float


@dataclass(slots=True)
class Histogram:
    """Counts by bucket, each with its latest request.

    Attributes:
        bounds: Upper bounds; one more bucket holds the rest.
        counts: Requests per bucket; not cumulative.
        total: Sum of the values.
        exemplars: The latest request of each bucket; None if there is none.
    """

    bounds: tuple[float, ...]
    counts: list[int] = field(default_factory=list)
    total: float = 0.0
    exemplars: list[Exemplar | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)
        if not self.exemplars:
            self.exemplars = [None] * len(self.counts)

    def add(self, exemplar: Exemplar) -> None:
        """Count one request."""
        place = next(
            (i for i, bound in enumerate(self.bounds) if exemplar.value <= bound), len(self.bounds)
        )
        self.counts[place] += 1
        self.total += exemplar.value
        self.exemplars[place] = exemplar


@dataclass(slots=True)
class ServerHistogram:
    """One series of a histogram of OpenTelemetry's GenAI server metrics.

    Attributes:
        metric: Its name, a key of `conventions.SERVER_METRIC_BOUNDS_S`.
        operation: The operation's name.
        model: The requested model.
        error_type: Why the requests failed; "" if they did not.
        counts: Requests per bucket, the last one for larger values; not cumulative.
        total: Sum of the values, in seconds.
    """

    metric: str
    operation: str
    model: str
    error_type: str = ""
    counts: list[int] = field(default_factory=list)
    total: float = 0.0

    @property
    def bounds(self) -> tuple[float, ...]:
        """Upper bounds of the buckets."""
        return SERVER_METRIC_BOUNDS_S[self.metric]

    def add(self, value: float) -> None:
        """Count one request."""
        if not self.counts:
            self.counts = [0] * (len(self.bounds) + 1)
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


@dataclass(frozen=True, slots=True)
class EngineFigures:
    """One engine's last step, sums since the start, and recent averages (None: no data)."""

    engine: int
    num_batched: int
    num_running: int
    num_waiting: int
    blocks_live: int
    blocks_resident: int
    blocks_total: int
    num_steps: int
    step_seconds: float
    steps_by_duration: Sequence[int]
    prefill_tokens: int
    decode_tokens: int
    drafted_tokens: int
    accepted_tokens: int
    prompt_tokens: int
    cached_tokens: int
    num_preempted: int
    recent_step_s: float | None
    recent_acceptance_ratio: float | None
    recent_hit_ratio: float | None
    cost_error_ratio: float | None
    seconds_by_kind: dict[str, float] = field(default_factory=dict)
    joules_by_kind: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The exporter's data for the server's `/metrics`.

    Attributes:
        engines: The engines.
        lost_steps: Steps that an engine could not send, and lost batches.
        dropped_runs: Runs of steps that were not stored.
        ledgers: Ledgers built.
        unmatched: Requests without a ledger, because the engine's records are missing.
        errors: Internal errors while explaining requests.
        ledger_seconds: Seconds charged so far, by ledger key.
        prefix_misses: Requests by reason for missing the prefix cache.
        prefix_missed_tokens: Missed tokens, by the same reasons.
        unstable_prompts: Requests whose static part followed a changing piece.
        ttft: TTFT of the exported requests, in seconds.
        e2e: Time from arrival to end, in seconds.
        server: OpenTelemetry's GenAI server metrics.
    """

    engines: Sequence[EngineFigures] = ()
    lost_steps: int = 0
    dropped_runs: int = 0
    ledgers: int = 0
    unmatched: int = 0
    errors: int = 0
    ledger_seconds: dict[str, float] = field(default_factory=dict)
    prefix_misses: dict[str, int] = field(default_factory=dict)
    prefix_missed_tokens: dict[str, int] = field(default_factory=dict)
    unstable_prompts: int = 0
    ttft: Histogram | None = None
    e2e: Histogram | None = None
    server: Sequence[ServerHistogram] = field(default_factory=list)


class SharedSnapshot(SharedMessage[Snapshot]):
    """The snapshot's memory; only the exporter process writes."""

    message_type = Snapshot
    size = 1 << 18
