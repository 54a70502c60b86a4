"""An agent that uses tools and a sub-agent, traced by OpenTelemetry's SDK."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from types import TracebackType

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from evenkeel import spans

AGENT_NAME, SUB_AGENT_NAME = "returns-agent", "carrier-agent"
ROUTE = "agent"
# Between two tasks of the agent.
PAUSE_S = 8.0
_TOOL_S = {"find_order": (0.2, 0.8), "check_carrier": (0.8, 2.5), "book_return": (0.3, 1.2)}
_TASKS = (
    "The kettle of order 48213 arrived broken. Can I send it back?",
    "My parcel has not moved for five days. Where is it?",
    "I want to return the lamp of order 59120 and get the blue one.",
)

# Sends a prompt with HTTP headers, and returns the answer.
Ask = Callable[[str, dict[str, str], str], Awaitable[str]]


class Agent:
    """Does one task after another until cancelled; each task is a session.

    Args:
        ask: Sends a prompt with the headers and in the session given.
        otlp_url: Where its spans go.
        tenant: Who pays for its requests; its spans have to say so, too.
        seed: Makes tasks and the time that tools take repeatable.
    """

    def __init__(self, ask: Ask, otlp_url: str, tenant: str, seed: int = 11) -> None:
        self._ask = ask
        self._random = random.Random(seed)
        self._provider = TracerProvider(
            resource=Resource.create({"service.name": AGENT_NAME, spans.TENANT: tenant})
        )
        exporter = OTLPSpanExporter(endpoint=f"{otlp_url}/v1/traces", timeout=5)
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, schedule_delay_millis=1000, max_export_batch_size=64)
        )
        self._tracer = self._provider.get_tracer("evenkeel_demo.agent")

    async def __aenter__(self) -> Agent:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Sends what is left; the collector may be gone.
        await asyncio.to_thread(self._provider.shutdown)

    async def run(self) -> None:
        """Do tasks until cancelled."""
        while True:
            await self.do_task(f"agent-{self._random.getrandbits(32):08x}")
            await asyncio.sleep(PAUSE_S)

    async def do_task(self, session_id: str) -> None:
        """Do one task: look the order up, ask the carrier and the rules at once, book a return."""
        task = self._random.choice(_TASKS)
        with self._agent_span(AGENT_NAME, session_id):
            await self._think(task, session_id)
            await self._use_tool("find_order", session_id)
            await asyncio.gather(
                self._sub_agent(task, session_id), self._think(f"{task} Which rule?", session_id)
            )
            await self._use_tool("book_return", session_id)
            await self._think(f"{task} Answer the customer.", session_id)

    async def _sub_agent(self, task: str, session_id: str) -> None:
        with self._agent_span(SUB_AGENT_NAME, session_id):
            await self._think(f"Ask the carrier: {task}", session_id)
            await self._use_tool("check_carrier", session_id)

    async def _think(self, prompt: str, session_id: str) -> str:
        headers: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(headers)
        return await self._ask(prompt, headers, session_id)

    async def _use_tool(self, name: str, session_id: str) -> None:
        with self._tracer.start_as_current_span(
            f"execute_tool {name}",
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": name,
                "gen_ai.conversation.id": session_id,
            },
        ):
            await asyncio.sleep(self._random.uniform(*_TOOL_S[name]))

    def _agent_span(self, name: str, session_id: str) -> AbstractContextManager[Span]:
        return self._tracer.start_as_current_span(
            f"invoke_agent {name}",
            kind=SpanKind.INTERNAL,
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": name,
                "gen_ai.conversation.id": session_id,
            },
        )
