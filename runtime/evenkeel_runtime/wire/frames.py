"""The exporter's input: its configuration, then one frame per request."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from evenkeel.otlp_target import OtlpTarget

FRAME_HEAD = struct.Struct("=I")


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """How an engine computes; None for what its vLLM does not say.

    Attributes:
        dtype: Precision of the weights, such as bfloat16.
        kv_cache_dtype: Data type of the KV cache, such as fp8; auto is that of the weights.
        tensor_parallel: Devices that share each layer.
        pipeline_parallel: Stages that the layers are divided into.
    """

    dtype: str | None = None
    kv_cache_dtype: str | None = None
    tensor_parallel: int | None = None
    pipeline_parallel: int | None = None


@dataclass(frozen=True, slots=True)
class AnswerMarks:
    """How to read the tokens of a model's answers.

    Attributes:
        reasons: Whether the model may reason before it answers.
        opens: Tokens that begin its reasoning; empty if unknown.
        closes: Tokens that end it.
        silent: Tokens that show nothing: special ones and blanks.
    """

    reasons: bool = False
    opens: tuple[int, ...] = ()
    closes: tuple[int, ...] = ()
    silent: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class ExporterConfig:
    """Configuration of the exporter process.

    Attributes:
        target: Where to send spans.
        counters_fd: Inherited descriptor of the shared counters.
        batch_requests: Maximum number of requests per export.
        interval_s: How long the first request of a batch may wait for others.
        flush_timeout_s: How long to keep sending after the input has ended.
        max_emissions: Longest emission series kept on a span.
        snapshot_fd: Inherited descriptor of the snapshot for `/metrics`; -1 for none.
        in_flight_fd: Inherited descriptor of the requests in the engine; -1 for none.
        steps_address: Address to receive step records on; None without the step hook.
        why_address: Address to answer queries about requests on; None without the step hook.
        model: The served model name.
        setup: How the engine computes.
        marks: How to read the tokens of its answers.
        gpus: NVML's numbers of each engine's GPUs, by engine; empty without NVIDIA GPUs.
    """

    target: OtlpTarget
    counters_fd: int
    batch_requests: int
    interval_s: float
    flush_timeout_s: float
    max_emissions: int
    snapshot_fd: int = -1
    in_flight_fd: int = -1
    steps_address: str | None = None
    why_address: str | None = None
    model: str = ""
    setup: EngineSetup = EngineSetup()
    marks: AnswerMarks = AnswerMarks()
    gpus: dict[int, tuple[int, ...]] = field(default_factory=dict)
