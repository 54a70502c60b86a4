"""How the exporter process is fed: what it is told when it starts, then a frame a request."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from evenkeel.otlp_target import OtlpTarget

FRAME_HEAD = struct.Struct("=I")


@dataclass(frozen=True, slots=True)
class ExporterConfig:
    """What the exporter is told when it starts.

    Attributes:
        target: Where spans go.
        counters_fd: The inherited descriptor of the shared counters.
        batch_requests: Most requests in one export.
        interval_s: How long the first request of a batch may wait for others.
        flush_timeout_s: How long to go on sending after the input ended.
        max_emissions: Longest emission series kept on a span.
        snapshot_fd: The inherited descriptor of the snapshot for `/metrics`; -1 without.
        steps_address: Where the engine's step records come in; None without the step hook.
        why_address: Where to answer questions about requests; None without the step hook.
        model: The name the model is served under.
    """

    target: OtlpTarget
    counters_fd: int
    batch_requests: int
    interval_s: float
    flush_timeout_s: float
    max_emissions: int
    snapshot_fd: int = -1
    steps_address: str | None = None
    why_address: str | None = None
    model: str = ""
