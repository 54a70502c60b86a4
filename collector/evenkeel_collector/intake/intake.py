"""The intake behind every transport: admits, checks, logs and counts whole bodies."""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from google.rpc import code_pb2

from evenkeel.privacy.cpu_budget import OverBudgetError
from evenkeel_collector.intake.awaited_calls import AwaitedCalls
from evenkeel_collector.intake.body_weight import INLINE_BYTES, TooManyError
from evenkeel_collector.intake.otlp_body import CheckedBody, MalformedError
from evenkeel_collector.intake.pipeline import IntakePipeline
from evenkeel_collector.intake.readiness import Readiness
from evenkeel_collector.intake.signals import JSON, Signal
from evenkeel_collector.log.repeats import digest_of
from evenkeel_collector.log.seal_policy import NeverFitsError
from evenkeel_collector.log.write_ahead_log import LogFullError, LogWriteError, WriteAheadLog
from evenkeel_collector.ports.access import (
    Access,
    AccessScope,
    ForbiddenError,
    UnauthenticatedError,
    secret_of,
)
from evenkeel_collector.ports.body import MediaTypeError
from evenkeel_collector.ports.decompress import BadEncodingError, TooLargeError
from evenkeel_collector.ports.memory_budget import BusyError, MemoryBudget
from evenkeel_collector.ports.tenant_limits import RateLimitedError, TenantMeter
from evenkeel_collector.telemetry.metrics import SelfMetrics

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_AFTER_S = 1
# Most memory, in bytes, that parsing takes per byte of body.
MEMORY_FACTORS = {JSON: 10}
DEFAULT_MEMORY_FACTOR = 3
# A refusal quotes the sender's data.
MAX_MESSAGE = 500


class RefusalCodes(NamedTuple):
    """How a refusal is reported: its reason on /metrics, its HTTP status, its google.rpc code."""

    reason: str
    status: int
    rpc_code: int


# What refuses a request.
REFUSALS: Mapping[type[Exception], RefusalCodes] = {
    MalformedError: RefusalCodes("malformed", 400, code_pb2.INVALID_ARGUMENT),
    BadEncodingError: RefusalCodes("bad_encoding", 400, code_pb2.INVALID_ARGUMENT),
    UnauthenticatedError: RefusalCodes("unauthenticated", 401, code_pb2.UNAUTHENTICATED),
    ForbiddenError: RefusalCodes("forbidden", 403, code_pb2.PERMISSION_DENIED),
    TooLargeError: RefusalCodes("too_large", 413, code_pb2.RESOURCE_EXHAUSTED),
    TooManyError: RefusalCodes("too_many", 413, code_pb2.RESOURCE_EXHAUSTED),
    NeverFitsError: RefusalCodes("too_large", 413, code_pb2.RESOURCE_EXHAUSTED),
    MediaTypeError: RefusalCodes("content_type", 415, code_pb2.INVALID_ARGUMENT),
    RateLimitedError: RefusalCodes("rate", 429, code_pb2.RESOURCE_EXHAUSTED),
    LogFullError: RefusalCodes("log_full", 503, code_pb2.UNAVAILABLE),
    LogWriteError: RefusalCodes("log_write", 503, code_pb2.UNAVAILABLE),
    BusyError: RefusalCodes("busy", 503, code_pb2.UNAVAILABLE),
}


@dataclass(frozen=True, slots=True)
class Intake:
    """The path into the log, shared by HTTP, gRPC and the scraper."""

    log: WriteAheadLog
    metrics: SelfMetrics
    pipeline: IntakePipeline
    access: Access
    meter: TenantMeter
    memory: MemoryBudget
    readiness: Readiness
    awaited: AwaitedCalls
    # Bodies being stored, by digest: a duplicate that arrives meanwhile shares the result.
    in_hand: dict[bytes, asyncio.Task[None]] = field(default_factory=dict)
    # Parses large bodies one after another: each may take much memory, and they would not be
    # parsed faster side by side.
    large_lane: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "large-bodies"))
    # Parses shorter ones that are not light, so that they do not wait for large ones.
    medium_lane: Executor = field(default_factory=lambda: ThreadPoolExecutor(2, "bodies"))
    # Redacts slow bodies one after another, so that other senders do not wait.
    slow_lane: Executor = field(default_factory=lambda: ThreadPoolExecutor(1, "redaction"))

    def tenant_of(self, headers: Mapping[str, str]) -> str | None:
        """Return the tenant that a sender proves; None if not needed, or if it serves many.

        Raises:
            UnauthenticatedError: If it has no token.
            ForbiddenError: If its token may not send.
        """
        return self.access.check(secret_of(headers), AccessScope.INGEST)

    async def take(
        self,
        signal: Signal,
        media_type: str,
        body: bytes,
        tenant: str | None,
        transport: str,
        identity: bytes | None = None,
    ) -> None:
        """Return once a decompressed body is on disk, from this or an earlier identical request.

        Requests with the same `identity`, if given, count as identical even if their bytes differ.

        Raises:
            MalformedError: If it is not valid.
            TooManyError: If it holds more than any sender sends.
            TooLargeError: If it exceeds the tenant's size limit.
            RateLimitedError: If the tenant has exceeded its rate limit.
            LogFullError: If the log has no room; the sender may retry.
            LogWriteError: If the disk refused; the sender may retry.
            NeverFitsError: If what the log keeps of it exceeds the log's limits.
        """
        self.meter.admit(tenant, len(body))
        is_small = signal.is_light(media_type, body)
        digest = await _call(is_small, None, digest_of, signal.path, tenant, identity or body)
        while (twin := self.in_hand.get(digest)) is not None:
            await asyncio.wait([twin])
        if self.log.repeats.knows(digest):
            self.metrics.bodies_repeated.labels(transport).inc()
            return
        check = partial(self._check, signal, media_type, body, tenant, is_small)
        lane = self.large_lane if len(body) > INLINE_BYTES else self.medium_lane
        storing = asyncio.create_task(
            self._store(check, None if is_small else lane, transport, digest)
        )
        self.in_hand[digest] = storing
        # A sender that disconnects does not cancel work that a duplicate may wait for.
        storing.add_done_callback(partial(self._let_go, digest))
        await asyncio.shield(storing)

    def _let_go(self, digest: bytes, storing: asyncio.Task[None]) -> None:
        del self.in_hand[digest]
        if not storing.cancelled():
            # Retrieved here because a disconnected sender does not.
            storing.exception()

    def _check(
        self,
        signal: Signal,
        media_type: str,
        body: bytes,
        tenant: str | None,
        is_weighed: bool,
        pipeline: IntakePipeline,
    ) -> CheckedBody:
        """Return a checked body.

        Parsing depends on the body alone: any other exception is also the body's fault.

        Raises:
            MalformedError: If it cannot be read.
            TooManyError: If it holds more than any sender sends.
            OverBudgetError: If it takes longer to redact than this pipeline has time for.
        """
        try:
            if not is_weighed:
                signal.weigh(media_type, body)
            return signal.parsers[media_type](body, pipeline, tenant)
        except (MalformedError, TooManyError, OverBudgetError):
            raise
        except Exception as error:
            # Without its message, which may quote the sender's data.
            place = traceback.extract_tb(error.__traceback__)[-1]
            kind = type(error).__name__
            logger.error("cannot read a body error=%s at=%s:%d", kind, place.name, place.lineno)
            raise MalformedError(f"cannot be read: {kind}") from error

    async def _store(
        self,
        check: Callable[[IntakePipeline], CheckedBody],
        lane: Executor | None,
        transport: str,
        digest: bytes,
    ) -> None:
        """Check a body, in the event loop if no lane is given, and store it."""
        try:
            checked = await _call(lane is None, lane, check, self.pipeline.in_haste())
        except OverBudgetError:
            checked = await asyncio.get_running_loop().run_in_executor(
                self.slow_lane, check, self.pipeline
            )
        self.log.limits.check(len(checked.payload))
        await self.accept(checked, transport, digest)

    async def accept(self, body: CheckedBody, transport: str, digest: bytes | None = None) -> None:
        """Return once a checked body is on disk and its digest, if any, is recorded.

        Raises:
            LogFullError: As `take`.
            LogWriteError: As `take`.
        """
        if not body.payload:
            return
        begin_s = time.perf_counter()
        num_rows = body.num_spans + body.num_points + body.num_records
        await asyncio.wrap_future(self.log.append(body.payload, num_rows, digest))
        self.readiness.record_accepted()
        self.metrics.acknowledge_seconds.observe(time.perf_counter() - begin_s)
        if body.num_spans:
            self.metrics.spans_accepted.labels(transport).inc(body.num_spans)
        if body.num_points:
            self.metrics.points_accepted.labels(transport).inc(body.num_points)
        if body.num_records:
            self.metrics.records_accepted.labels(transport).inc(body.num_records)
        for call in body.awaited:
            self.awaited.add(call)

    def count_rejected(self, transport: str, error: Exception) -> None:
        """Count a request that was not acknowledged, by reason."""
        self.readiness.record(error)
        reason = REFUSALS[type(error)].reason
        self.metrics.requests_rejected.labels(transport, reason).inc()


async def _call(
    is_small: bool, executor: Executor | None, function: Callable[..., T], *args: Any
) -> T:
    """Return a function's result for a body; large bodies run outside the event loop."""
    if is_small:
        return function(*args)
    return await asyncio.get_running_loop().run_in_executor(executor, function, *args)


def response_headers(error: Exception) -> dict[str, str]:
    """Return the HTTP headers of a refusal: when to retry, or how to authenticate."""
    status = REFUSALS[type(error)].status
    if isinstance(error, RateLimitedError):
        return {"retry-after": str(error.retry_after_s)}
    if status == 503:
        return {"retry-after": str(RETRY_AFTER_S)}
    return {"www-authenticate": "Bearer"} if status == 401 else {}


def message_of(error: Exception) -> str:
    """Return the message for the sender: short, and valid in any encoding."""
    return str(error).encode("utf-8", "replace").decode()[:MAX_MESSAGE]
