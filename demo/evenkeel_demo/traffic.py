"""Streaming clients that ask the golden questions at a varying rate; some disconnect mid-answer.

The load is closed-loop: a waiting client sends nothing else, so a slow machine gets less traffic.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import httpx

from evenkeel import spans
from evenkeel_demo.agent import ROUTE as AGENT_ROUTE
from evenkeel_demo.agent import Agent
from evenkeel_demo.conversations import Conversation, Conversations
from evenkeel_demo.questions import MAX_TOKENS, GoldenQuestion, stands_alone

MODEL = "support"
# SLO classes of control.toml.
CHAT, BATCH = "chat", "batch"
# The route of the long prompts.
CROWD = "crowd"
CANCEL_RATIO = 0.05
WARM_UP_QUESTIONS = 8
# Maximum number of clients waiting at once; further arrivals leave.
CHATS_AT_ONCE = 4
# The share of the answers that the engine can give which chats ask for at most: the rest is for the
# A/B run and the live evaluation, so that a slow machine is not overloaded outside the crowds.
CHAT_SHARE = 0.5
TENANTS = ("acme", "globex", "initech")
LONG_PROMPT_WORDS = 900
# How long a crowd of long prompts occupies the engine, so that chats behind it start too late on
# any machine; timing a single long prompt shows how many that takes.
CROWD_S = 2.5
CROWD_SIZES = (3, 100)
CROWD_SAMPLES = 3
# The next crowd starts once fewer than this wait, so that a slow machine recovers in time.
CROWD_IN_FLIGHT_LIMIT = 6
# How often to look for the next phase and crowd, at least.
LONGEST_WAIT_S = 0.25
# Turns before a question of a long conversation, and how many questions have one.
HISTORY_TURNS = 2
HISTORY_RATIO = 0.1
# The share of answers that get feedback.
FEEDBACK_RATIO = 0.2


class DemoPhase(StrEnum):
    """The current phase of the demo."""

    HEALTHY = "healthy"
    CROWDED = "crowded"
    RECOVERED = "recovered"
    CONTROLLED = "controlled"
    POPULAR = "popular"
    CUT = "cut"


@dataclass(frozen=True, slots=True)
class Rates:
    """Arrivals.

    Attributes:
        per_s: Chats on average.
        crowd_every_s: How often a crowd of long prompts arrives; None: never.
        popular_ratio: Share of the chats that ask a popular question.
        has_long: Whether some of the other chats are long: on a slow machine, they alone would be
            late, and make those beside them late.
        max_tokens: Tokens that the other chats ask for.
    """

    per_s: float
    crowd_every_s: float | None = None
    popular_ratio: float = 0.0
    has_long: bool = True
    max_tokens: int = MAX_TOKENS


@dataclass(slots=True)
class ClientCounters:
    """Client-side counters; TTFT is measured by the clients, of chats and crowds, in seconds."""

    requests: int = 0
    errors: int = 0
    refused: int = 0
    cancelled: int = 0
    tokens: int = 0
    in_flight: int = 0
    ttft_s: list[float] = field(default_factory=list)
    ttft_s_by_phase: dict[DemoPhase, list[float]] = field(default_factory=dict)
    long_ttft_s_by_phase: dict[DemoPhase, list[float]] = field(default_factory=dict)

    def record_first_token(self, phase: DemoPhase, tag: str, slo_class: str, ttft_s: float) -> None:
        """Record a chat's or a long prompt's time to first token."""
        if slo_class == CHAT:
            self.ttft_s.append(ttft_s)
            self.ttft_s_by_phase.setdefault(phase, []).append(ttft_s)
        elif tag == CROWD:
            self.long_ttft_s_by_phase.setdefault(phase, []).append(ttft_s)


@dataclass(frozen=True, slots=True)
class Asker:
    """Who sends a request: a tenant, in a session if it has one, within a trace."""

    tenant: str
    traceparent: str
    session_id: str | None = None

    @property
    def trace_id(self) -> str:
        """The trace of its requests."""
        return self.traceparent.split("-")[1]


def affordable_per_s(num_answers: int, took_s: float) -> float:
    """Return how many chats a second an engine can serve that gave so many answers in a time."""
    return CHAT_SHARE * num_answers / max(took_s, 1e-3)


def crowd_size(long_prompt_s: float) -> int:
    """Return how many long prompts of `long_prompt_s` each occupy an engine for CROWD_S."""
    least, most = CROWD_SIZES
    return min(max(math.ceil(CROWD_S / max(long_prompt_s, 1e-3)), least), most)


class Traffic:
    """Sends requests until cancelled.

    Args:
        url: The runtime's address.
        feedback_url: Where clients send feedback; None: they send none.
        system_prompt: Put before each question, so that there is a prefix to cache.
        questions: What to ask.
        popular: What most clients ask in the last phase, in many wordings.
        otlp_url: Where an agent that also asks sends its spans; None: there is no agent.
        seed: Makes the order of questions, tenants and cancellations repeatable.
    """

    def __init__(
        self,
        url: str,
        feedback_url: str | None,
        system_prompt: str,
        questions: Sequence[GoldenQuestion],
        popular: Sequence[GoldenQuestion] = (),
        otlp_url: str | None = None,
        seed: int = 7,
    ) -> None:
        self.counters = ClientCounters()
        self._url = url
        self._feedback_url = feedback_url
        self._system = {"role": "system", "content": system_prompt}
        self._questions = questions
        self._popular = popular
        self._long = [q for q in questions if q.tag == "long-prompt"]
        self._short = [q for q in questions if q.tag != "long-prompt"]
        self._random = random.Random(seed)
        self._conversations = Conversations(TENANTS, seed)
        self._otlp_url = otlp_url
        self._phase = DemoPhase.HEALTHY
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_chats = 0
        self._crowd_size = CROWD_SIZES[0]
        self._affordable_per_s = math.inf

    async def run(self, rates: Callable[[], tuple[DemoPhase, Rates]]) -> None:
        """Send requests until cancelled; `rates` returns the phase and its arrivals."""
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
        async with httpx.AsyncClient(base_url=self._url, timeout=60, limits=limits) as client:
            next_crowd_s, next_chat_s = 0.0, time.monotonic()
            self._spawn(self._act(client))
            try:
                while True:
                    now_s = time.monotonic()
                    self._phase, wanted = rates()
                    is_crowd_due = wanted.crowd_every_s is not None and now_s >= next_crowd_s
                    if is_crowd_due and self.counters.in_flight < CROWD_IN_FLIGHT_LIMIT:
                        next_crowd_s = now_s + (wanted.crowd_every_s or 0)
                        for _ in range(self._crowd_size):
                            question, caller = self._long_question(), self._new_caller()
                            self._spawn(self._ask(client, question, BATCH, caller))
                    if now_s >= next_chat_s:
                        if self._num_chats < CHATS_AT_ONCE:
                            self._spawn(self._chat(client, self._next_question(wanted)))
                        # A slow oscillation around the mean, with Poisson arrivals.
                        swing = 1 + 0.4 * math.sin(now_s / 5)
                        per_s = min(wanted.per_s, self._affordable_per_s)
                        next_chat_s = now_s + self._random.expovariate(per_s * swing)
                    # Crowds and phases do not wait for a chat, of which a slow engine gets few.
                    await asyncio.sleep(min(max(next_chat_s - time.monotonic(), 0), LONGEST_WAIT_S))
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def warm_up(self) -> None:
        """Send warm-up requests, which are not counted.

        The first questions pay for lazy initialisation; the next ones show how many chats the
        engine can serve, and long ones how large a crowd must be.
        """
        async with httpx.AsyncClient(base_url=self._url, timeout=60) as client:

            async def ask(question: GoldenQuestion, **options: object) -> float:
                began_s = time.monotonic()
                body = self._body(question) | {"stream": False} | options
                (await client.post("/v1/chat/completions", json=body)).raise_for_status()
                return time.monotonic() - began_s

            first, *others = self._questions[:WARM_UP_QUESTIONS]
            await ask(first)
            await asyncio.gather(*map(ask, others))
            timed = self._questions[WARM_UP_QUESTIONS : 2 * WARM_UP_QUESTIONS]
            if timed:
                began_s = time.monotonic()
                await asyncio.gather(*map(ask, timed))
                took_s = time.monotonic() - began_s
                self._affordable_per_s = affordable_per_s(len(timed), took_s)
            # The fastest: a pause of the machine would make the crowd too small.
            long_s = min(
                [await ask(self._long_question(), max_tokens=1) for _ in range(CROWD_SAMPLES)]
            )
            self._crowd_size = crowd_size(long_s)

    def _body(self, question: GoldenQuestion) -> dict[str, Any]:
        return {
            "model": MODEL,
            "messages": [self._system, *question.messages],
            "max_tokens": question.max_tokens,
            "temperature": 0,
            "stream": True,
        }

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _long_question(self) -> GoldenQuestion:
        words = [self._random.choice(_FILLER) for _ in range(LONG_PROMPT_WORDS)]
        text = f"Ticket {self._random.randrange(10**6)}. {' '.join(words)}. What should I do?"
        return GoldenQuestion([{"role": "user", "content": text}], CROWD)

    def _next_question(self, wanted: Rates) -> GoldenQuestion:
        if self._popular and self._random.random() < wanted.popular_ratio:
            return self._random.choice(self._popular)
        asked = self._questions if wanted.has_long else self._short
        question = replace(self._random.choice(asked), max_tokens=wanted.max_tokens)
        if not (wanted.has_long and self._long) or self._random.random() >= HISTORY_RATIO:
            return question
        earlier = self._random.sample(self._long, min(HISTORY_TURNS, len(self._long)))
        history = [
            message
            for turn in earlier
            for message in (*turn.messages, {"role": "assistant", "content": turn.reference})
        ]
        return replace(question, messages=[*history, *question.messages])

    async def _chat(self, client: httpx.AsyncClient, question: GoldenQuestion) -> None:
        self._num_chats += 1
        chats = self._conversations
        chat = chats.begin(1) if stands_alone(question) else chats.next(time.monotonic())
        asked = replace(question, messages=[*chat.history, *question.messages])
        try:
            answer = await self._ask(client, asked, CHAT, self._new_caller(chat))
        finally:
            self._num_chats -= 1
        if answer:
            chats.answered(chat, list(question.messages), answer, time.monotonic())

    async def _act(self, client: httpx.AsyncClient) -> None:
        """Let an agent do its tasks, if there is one."""
        if self._otlp_url is None:
            return

        async def ask(prompt: str, headers: dict[str, str], session_id: str) -> str:
            question = GoldenQuestion([{"role": "user", "content": prompt}], AGENT_ROUTE)
            caller = Asker(TENANTS[0], headers["traceparent"], session_id)
            return await self._ask(client, question, BATCH, caller)

        async with Agent(ask, self._otlp_url, TENANTS[0]) as agent:
            await agent.run()

    def _new_caller(self, chat: Conversation | None = None) -> Asker:
        """Return a client with a trace of its own: one of a chat, or one without a session."""
        trace_id = f"{self._random.getrandbits(128) or 1:032x}"
        traceparent = f"00-{trace_id}-{self._random.getrandbits(64) or 1:016x}-01"
        if chat is None:
            return Asker(self._random.choice(TENANTS), traceparent)
        return Asker(chat.tenant, traceparent, chat.session_id)

    async def _ask(
        self, client: httpx.AsyncClient, question: GoldenQuestion, slo_class: str, caller: Asker
    ) -> str:
        """Send a request, and return the answer; "" if it failed or was not wanted to the end."""
        counters, phase = self.counters, self._phase
        leave_after = self._random.randrange(2, 8) if self._leaves() else None
        headers = {
            "traceparent": caller.traceparent,
            spans.HEADER_TENANT: caller.tenant,
            spans.HEADER_PROMPT: "support@1",
            spans.HEADER_SLO_CLASS: slo_class,
            spans.HEADER_ROUTE: question.tag,
        }
        if caller.session_id is not None:
            headers[spans.HEADER_SESSION] = caller.session_id
        counters.requests += 1
        counters.in_flight += 1
        sent_s, words = time.monotonic(), list[str]()
        try:
            async with client.stream(
                "POST", "/v1/chat/completions", json=self._body(question), headers=headers
            ) as response:
                if response.status_code != httpx.codes.OK:
                    is_refused = response.status_code in _REFUSED
                    counters.refused += is_refused
                    counters.errors += not is_refused
                    return ""
                async for line in response.aiter_lines():
                    if not line.startswith("data: {"):
                        continue
                    word = _word(line)
                    if not word:
                        continue
                    if not words:
                        counters.record_first_token(
                            phase, question.tag, slo_class, time.monotonic() - sent_s
                        )
                    words.append(word)
                    counters.tokens += 1
                    if len(words) == leave_after:
                        counters.cancelled += 1
                        return ""
        except httpx.HTTPError:
            counters.errors += 1
            return ""
        except asyncio.CancelledError:
            # Clients still waiting when the demo ends disconnect, and the server sees it.
            counters.cancelled += 1
            raise
        finally:
            counters.in_flight -= 1
        answer = "".join(words)
        votes = self._random.random() < FEEDBACK_RATIO
        # Not from the start: of the first few votes, one bad one spends an objective's budget.
        if slo_class == CHAT and votes and phase is not DemoPhase.HEALTHY:
            await self._say_what_they_think(client, caller, answer, question)
        return answer

    async def _say_what_they_think(
        self, client: httpx.AsyncClient, caller: Asker, answer: str, question: GoldenQuestion
    ) -> None:
        """Send thumbs up for the correct answer, thumbs down for any other."""
        if self._feedback_url is None:
            return
        is_right = answer.split() == question.reference.split()
        judgement = {
            "trace_id": caller.trace_id,
            "tenant": caller.tenant,
            "author": "a customer",
            "label": "up" if is_right else "down",
            "score": float(is_right),
        }
        with contextlib.suppress(httpx.HTTPError):
            await client.post(self._feedback_url, json=judgement, timeout=10)

    def _leaves(self) -> bool:
        return self._random.random() < CANCEL_RATIO


def _word(line: str) -> str:
    """Return the text of a streamed chunk; '' if it has none, such as the first, role-only one."""
    choices = json.loads(line.removeprefix("data: ")).get("choices") or [{}]
    return str(choices[0].get("delta", {}).get("content") or "")


_REFUSED = (httpx.codes.TOO_MANY_REQUESTS, httpx.codes.SERVICE_UNAVAILABLE)
_FILLER = (
    "order parcel refund invoice account password carrier delayed label address payment card "
    "voucher size colour exchange warranty manual battery charger screen update broken missing"
).split()
