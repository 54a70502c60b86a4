"""Waits for the spans of calls that log events describe, and counts those that do not come.

An event with a span's ids usually comes some seconds before or after that span, which says more:
it has a duration. So the event's own version of the span is written to the log only if the store
has no span with these ids a minute later.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel import conventions
from evenkeel.errors import first_line
from evenkeel.store import read_query
from evenkeel_collector.intake.canonical import AwaitedCall, CheckedBody
from evenkeel_collector.intake.event_spans import call_of_row
from evenkeel_collector.log.write_ahead_log import LogFullError, LogWriteError

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client

logger = logging.getLogger(__name__)

WAIT_S = 60.0
LOOK_EVERY_S = 10.0
# More than any second's traffic: beyond it the oldest is decided early.
MAX_AWAITED = 50_000
TRANSPORT = "events"
_HERE = Path(__file__).parent
Key = tuple[str, str]


class AwaitedCalls:
    """Calls whose span may still come, oldest first; a call is awaited once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._calls: OrderedDict[Key, tuple[float, AwaitedCall]] = OrderedDict()

    def add(self, call: AwaitedCall) -> None:
        """Wait for this call's span from now on."""
        self._calls.setdefault((call.trace_id, call.span_id), (self._clock(), call))

    def take_ripe(self, wait_s: float = WAIT_S) -> list[AwaitedCall]:
        """Remove and return the calls that have waited this long, or are too many."""
        ripe = []
        until = self._clock() - wait_s
        while self._calls:
            since, call = next(iter(self._calls.values()))
            if since > until and len(self._calls) <= MAX_AWAITED:
                break
            self._calls.popitem(last=False)
            ripe.append(call)
        return ripe

    def __len__(self) -> int:
        return len(self._calls)


class CallSettler:
    """A task that writes awaited calls to the log once it is clear that their spans do not come.

    At its start it awaits the calls of the past hour's stored events again: what an earlier
    process awaited is not lost.

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
                if not is_recalled:
                    for call in await asyncio.to_thread(self._recall):
                        self._awaited.add(call)
                    is_recalled = True
                ripe = self._awaited.take_ripe(self._wait_s)
                if ripe:
                    await self._settle(ripe)
            except (ClickHouseError, OSError, LogFullError, LogWriteError) as error:
                logger.warning(
                    "cannot settle calls known only from events, trying again calls=%d error=%s",
                    len(ripe), first_line(error, max_chars=300),
                )  # fmt: skip
                for call in ripe:
                    self._awaited.add(call)
            await asyncio.sleep(self._look_every_s)

    async def _settle(self, calls: list[AwaitedCall]) -> None:
        there = await asyncio.to_thread(self._find, calls)
        missing = [call for call in calls if (call.trace_id, call.span_id) not in there]
        if missing:
            # Concatenated requests are one valid request.
            payload = b"".join(call.payload for call in missing)
            await self._accept(CheckedBody(payload, len(missing)), TRANSPORT)

    def _find(self, calls: Iterable[AwaitedCall]) -> set[Key]:
        traces = sorted({call.trace_id for call in calls})
        with contextlib.closing(self._connect()) as client:
            rows = client.query(
                read_query(_HERE / "spans_of_traces.sql"), parameters={"traces": traces}
            ).result_rows
        return {(str(trace), str(span)) for trace, span in rows}

    def _recall(self) -> list[AwaitedCall]:
        with contextlib.closing(self._connect()) as client:
            rows = client.query(
                read_query(_HERE / "recent_calls.sql"),
                parameters={"event": conventions.EVENT_INFERENCE},
            ).result_rows
        return [call_of_row(*row) for row in rows]
