"""What every transport does with a whole body: admit it, check it, log it, count it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass

from collector.access import (
    Access,
    AccessScope,
    ForbiddenError,
    UnauthenticatedError,
    secret_of,
)
from collector.canonical import CheckedBody, MalformedError
from collector.decompress import BadEncodingError, TooLargeError
from collector.memory_budget import BusyError, MemoryBudget
from collector.self_metrics import SelfMetrics
from collector.signals import JSON, Parser
from collector.tenant_limits import RateLimitedError, TenantMeter
from collector.treatment import Treatment
from collector.write_ahead_log import LogFullError, LogWriteError, WriteAheadLog

RETRY_AFTER_S = 1
# Parsing this much keeps other senders waiting for about a millisecond; JSON for some more.
INLINE_BYTES = 512 << 10
# Bytes that a body of one byte takes at most while it is parsed.
MEMORY_FACTORS = {JSON: 10}
DEFAULT_MEMORY_FACTOR = 3

# What refuses a request, and its name on /metrics.
Refusal = (
    MalformedError | TooLargeError | BadEncodingError | LogFullError | LogWriteError | BusyError
    | RateLimitedError | UnauthenticatedError | ForbiddenError
)  # fmt: skip
REASONS: Mapping[type[Exception], str] = {
    MalformedError: "malformed",
    TooLargeError: "too_large",
    BadEncodingError: "bad_encoding",
    LogFullError: "log_full",
    LogWriteError: "log_write",
    BusyError: "busy",
    RateLimitedError: "rate",
    UnauthenticatedError: "unauthenticated",
    ForbiddenError: "forbidden",
}


@dataclass(frozen=True, slots=True)
class Intake:
    """The way into the log, shared by HTTP, gRPC and the scraper."""

    log: WriteAheadLog
    metrics: SelfMetrics
    treatment: Treatment
    access: Access
    meter: TenantMeter
    memory: MemoryBudget

    def tenant_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the tenant that a sender proves; None if it need not, or serves many.

        Raises:
            UnauthenticatedError: If it has no token.
            ForbiddenError: If its token may not send.
        """
        return self.access.check(secret_of(headers), AccessScope.INGEST)

    async def take(self, parse: Parser, body: bytes, tenant: str | None, transport: str) -> None:
        """Return once a decompressed body is on disk.

        Raises:
            MalformedError: If it is not what it should be.
            TooLargeError: If the tenant may not send so large a one.
            RateLimitedError: If the tenant has sent too much.
            LogFullError: If the log has no room; the sender may try again.
            LogWriteError: If the disk refused; the sender may try again.
        """
        self.meter.admit(tenant, len(body))
        if len(body) <= INLINE_BYTES:
            checked = parse(body, self.treatment, tenant)
        else:
            # Beside the event loop, not in it.
            checked = await asyncio.to_thread(parse, body, self.treatment, tenant)
        await self.accept(checked, transport)

    async def accept(self, body: CheckedBody, transport: str) -> None:
        """Return once a checked body is on disk.

        Raises:
            LogFullError: As `take`.
            LogWriteError: As `take`.
        """
        if not body.payload:
            return
        begin_s = time.perf_counter()
        num_rows = body.num_spans + body.num_points
        await asyncio.wrap_future(self.log.append(body.payload, num_rows))
        self.metrics.acknowledge_seconds.observe(time.perf_counter() - begin_s)
        if body.num_spans:
            self.metrics.spans_accepted.labels(transport).inc(body.num_spans)
        if body.num_points:
            self.metrics.points_accepted.labels(transport).inc(body.num_points)

    def count_rejected(self, transport: str, error: Exception) -> None:
        """Count a request that was not acknowledged, by reason."""
        reason = REASONS.get(type(error), "other")
        self.metrics.requests_rejected.labels(transport, reason).inc()
