"""Waits for the spans of calls that log events describe, and counts those that do not come.

An event with a span's ids usually comes some seconds before or after that span, which says more:
it has a duration. So the event's own version of the span is written to the log only if the store
has no span with these ids a minute later. Memory is bounded: what has no room is read again from
the stored events.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel import conventions
from evenkeel.errors import first_line
from evenkeel.store import read_query
from evenkeel_collector.intake.event_spans import call_of_row, spans_of_calls
from evenkeel_collector.intake.otlp_body import AwaitedCall, CheckedBody

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

WAIT_S = 60.0
LOOK_EVERY_S = 10.0
# What is awaited at once, in calls and in bytes.
MAX_AWAITED = 50_000
MAX_BYTES = 64 << 20
# Calls looked up by one query and written with one request: an address has a megabyte at most.
MAX_TOGETHER = 2_000
TRANSPORT = "events"
_HERE = Path(__file__).parent
# Trace, span and tenant: two tenants may use the same ids.
Key = tuple[str, str, str]


class AwaitedCalls:
    """Calls whose span may still come, oldest first; a call is awaited once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: OrderedDict[Key, tuple[float, AwaitedCall]] = OrderedDict()
        self._resources: Counter[bytes] = Counter()
        self._num_bytes = 0
        self._has_left_out = False

    def add(self, call: AwaitedCall) -> bool:
        """Wait for this call's span from now on; return whether there is room for it."""
        key = (call.trace_id, call.span_id, call.tenant)
        if key in self._calls:
            return True
        num_bytes = len(call.span) + (0 if call.resource in self._resources else len(call.resource))
        if len(self._calls) >= MAX_AWAITED or self._num_bytes + num_bytes > MAX_BYTES:
            self._has_left_out = True
            return False
        self._calls[key] = (self._clock(), call)
        self._resources[call.resource] += 1
        self._num_bytes += num_bytes
        return True

    def take_ripe(self, wait_s: float = WAIT_S) -> list[AwaitedCall]:
        """Remove and return the calls that have waited this long."""
        ripe = []
        until = self._clock() - wait_s
        while self._calls:
            since, call = next(iter(self._calls.values()))
            if since > until:
                break
            self._calls.popitem(last=False)
            self._forget(call)
            ripe.append(call)
        return ripe

    def take_left_out(self) -> bool:
        """Return whether there was no room for a call since this was last asked."""
        has_left_out, self._has_left_out = self._has_left_out, False
        return has_left_out

    def _forget(self, call: AwaitedCall) -> None:
        self._num_bytes -= len(call.span)
        self._resources[call.resource] -= 1
        if not self._resources[call.resource]:
            del self._resources[call.resource]
            self._num_bytes -= len(call.resource)

    def __len__(self) -> int:
        return len(self._calls)


class CallSettler:
    """A task that writes awaited calls to the log once it is clear that their spans do not come.

    At its start it awaits the calls of the last hour's stored events again, and so it does after
    there was no room for one: what is not in memory is not lost.

    Args:
        awaited: The calls.
        accept: Writes spans to the log; receives them and the name of the transport.
        connect: Returns a client that sees everything acknowledged so far.
        wait_s: How long a call is awaited.
        look_every_s: Time between two looks.
    """

    def __init__(
        self,
        awaited: AwaitedCalls,
        accept: Callable[[CheckedBody, str], Awaitable[None]],
        connect: Callable[[], Client],
        wait_s: float = WAIT_S,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self._awaited = awaited
        self._accept = accept
        self._connect = connect
        self._wait_s = wait_s
        self._look_every_s = look_every_s
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Stop; what is still awaited is found again at the next start."""
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        is_recalled = False
        while True:
            ripe: list[AwaitedCall] = []
            try:
                # Read again once there is room for what was left out.
                if len(self._awaited) < MAX_AWAITED // 2 and self._awaited.take_left_out():
                    is_recalled = False
                if not is_recalled:
                    for call in await asyncio.to_thread(self._recall):
                        self._awaited.add(call)
                    is_recalled = True
                ripe = self._awaited.take_ripe(self._wait_s)
                while ripe:
                    await self._settle(ripe[:MAX_TOGETHER])
                    del ripe[:MAX_TOGETHER]
            except Exception as error:
                # Mostly a store or log that refuses; nothing may end this task.
                logger.warning(
                    "cannot settle calls known only from events, trying again calls=%d error=%s",
                    len(ripe), first_line(error, max_chars=300),
                )  # fmt: skip
                for call in ripe:
                    self._awaited.add(call)
            await asyncio.sleep(self._look_every_s)

    async def _settle(self, calls: list[AwaitedCall]) -> None:
        tenants_of = await asyncio.to_thread(self._find, calls)
        missing = [
            call
            for call in calls
            # Another tenant's span says nothing of this one.
            if not any(
                call.tenant == tenant or not call.tenant or not tenant
                for tenant in tenants_of[call.trace_id, call.span_id]
            )
        ]
        if missing:
            await self._accept(CheckedBody(spans_of_calls(missing), len(missing)), TRANSPORT)

    def _find(self, calls: Iterable[AwaitedCall]) -> Mapping[tuple[str, str], set[str]]:
        """Return by trace and span the tenants of the spans that are there, '' for none."""
        keys = {
            "traces": sorted({call.trace_id for call in calls}),
            "spans": sorted({call.span_id for call in calls}),
        }
        with contextlib.closing(self._connect()) as client:
            rows = client.query(
                read_query(_HERE / "spans_of_traces.sql"), parameters=keys
            ).result_rows
        tenants_of = defaultdict[tuple[str, str], set[str]](set)
        for trace_id, span_id, tenant in rows:
            tenants_of[str(trace_id), str(span_id)].add(str(tenant))
        return tenants_of

    def _recall(self) -> list[AwaitedCall]:
        with contextlib.closing(self._connect()) as client:
            rows = client.query(
                read_query(_HERE / "recent_calls.sql"),
                parameters={"event": conventions.EVENT_INFERENCE, "limit": MAX_AWAITED},
            ).result_rows
        return [call for row in rows if (call := call_of_row(*row)) is not None]
