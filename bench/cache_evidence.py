"""Runs the cache in `serve` against a model whose answers are known; for bench/cache.py.

The cache, its guards, its evidence and its replays are the runtime's own; only the engine is a
table of answers that the real model gave. In a second series some answers are made to differ where
neither guards nor cosines can see it: only the evidence can then hold the limit.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

from evenkeel.embedding import Encoder
from runtime.caller import Caller
from runtime.request_hook import EngineReader, RequestHook
from runtime.request_trace import CURRENT_REQUEST, EngineFacts, HttpRequest
from runtime.response_cache.audit import AuditLog
from runtime.response_cache.cache import ResponseCache
from runtime.response_cache.cached_engine import CachedEngine
from runtime.response_cache.memory_backend import MemoryBackend
from runtime.response_cache.policy import CachePolicy, Mode, RoutePolicy

LIMIT = 0.02
REQUESTS = 3000
# Ways to ask the same that leave every word of weight alone.
STARTS = ("", "Hello, ", "Please tell me: ", "Hi there, ", "I have a question: ", "So, ")
ENDS = ("", " Thanks!", " Thank you.", " Please help.")


@dataclass(frozen=True, slots=True)
class Run:
    """One seeded run.

    Attributes:
        semantic: Near hits that were returned.
        wrong: Of them, those for which the model would have said something else.
        exact: Requests answered exactly.
        drafts: Near hits that were only drafts.
        changes: How often what is served changed.
    """

    seed: int
    hidden_rate: float
    semantic: int
    wrong: int
    exact: int
    drafts: int
    changes: int

    @property
    def rate(self) -> float:
        """Wrong near hits of those returned; 0 where none was."""
        return self.wrong / self.semantic if self.semantic else 0.0


class RememberingEncoder:
    """Embeds each text once, over all runs."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, Any] = {}

    def num_tokens(self, text: str) -> int:
        """As the encoder does."""
        return self._encoder.num_tokens(text)

    def encode(self, text: str) -> Any:
        """As the encoder does, once."""
        if text not in self._known:
            self._known[text] = self._encoder.encode(text)
        return self._known[text]


def reword(questions: Sequence[str], seed: int, count: int) -> list[str]:
    """Return distinct wordings, a few of each question."""
    order = random.Random(seed)
    wordings = [a + q + b for q in questions for a in STARTS for b in ENDS]
    return order.sample(wordings, min(count, len(wordings)))


class AnswerTable:
    """An engine that says what the real model said."""

    def __init__(self, answers: Mapping[str, str]) -> None:
        self._answers = answers
        self.model_config = None

    async def generate(
        self, prompt: Any, params: Any, request_id: str, **_: Any
    ) -> AsyncIterator[Any]:
        """Give the whole answer in one output."""
        text = self._answers[prompt["question"]]
        completion = SimpleNamespace(
            index=0,
            text=text,
            token_ids=list(range(len(text.split()))),
            finish_reason="stop",
            stop_reason=None,
        )
        yield SimpleNamespace(outputs=[completion], finished=True, prompt_token_ids=[1])


class _Recorder:
    """Takes records and lets errors through."""

    def record(self, _: object) -> None:
        pass

    def note_internal_error(self, error: Exception) -> None:
        raise error


async def run_once(
    answers: Mapping[str, str], encoder: RememberingEncoder, seed: int, hidden_rate: float
) -> Run:
    """Ask REQUESTS times, drawn with the seed; `hidden_rate` of the wordings get another answer."""
    order = random.Random(seed)
    table = {
        text: f"Other advice: {answer[::-1]}" if order.random() < hidden_rate else answer
        for text, answer in answers.items()
    }
    route = RoutePolicy(mode=Mode.SERVE, wrong_hit_limit=LIMIT)
    policy = CachePolicy(routes=(route,))
    cache = ResponseCache(
        policy,
        MemoryBackend(policy.max_bytes),
        encoder,
        AuditLog(None),  # type: ignore[arg-type]
    )
    reader = EngineReader(
        is_streamed=lambda params: False,
        note_output=lambda run, output: 0,
        read_facts=lambda run: EngineFacts(),
        find_times=lambda request_id: [],
        find_beam_search=lambda request_id: None,
    )
    hook = RequestHook(_Recorder(), reader, "support")  # type: ignore[arg-type]
    engine = CachedEngine(cache, hook, AnswerTable(table), order.random)
    outcomes: Counter[str] = Counter()
    wrong = 0
    texts = list(table)
    for number in range(REQUESTS):
        text = order.choice(texts)
        outcome, said = await _ask(engine, hook, text, number)
        outcomes[outcome] += 1
        if outcome == "semantic":
            wrong += not await cache.say_the_same(said, table[text])
        while len(engine.replays) or engine.num_background:
            await asyncio.sleep(0)
    await cache.close()
    return Run(
        seed,
        hidden_rate,
        outcomes["semantic"],
        wrong,
        outcomes["exact"],
        outcomes["draft"],
        cache.counts.changes.total(),
    )


async def _ask(engine: CachedEngine, hook: RequestHook, text: str, number: int) -> tuple[str, str]:
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    params = SamplingParams(
        temperature=0.0, max_tokens=96, output_kind=RequestOutputKind.FINAL_ONLY
    )
    request = HttpRequest("chat", Caller(tenant="bench"), path="/v1/chat/completions")
    body = {"model": "support", "messages": [{"role": "user", "content": text}]}
    request.body += json.dumps(body).encode()
    token = CURRENT_REQUEST.set(request)
    try:
        run = hook.start_run(f"r{number}", params)
        prompt = {"type": "token", "prompt_token_ids": [1], "question": text}
        said = ""
        async for output in engine.answer(run, prompt, params, run.request_id, {}):
            said += output.outputs[0].text
    finally:
        CURRENT_REQUEST.reset(token)
    assert run.response_cache is not None
    return run.response_cache, said


def run_all(
    answers: Mapping[str, str],
    encoder: RememberingEncoder,
    runs: int,
    hidden_rates: Sequence[float],
) -> list[Run]:
    """Return the runs, `runs` of each rate, with the seeds 0, 1, and so on."""
    return [
        asyncio.run(run_once(answers, encoder, seed, rate))
        for rate in hidden_rates
        for seed in range(runs)
    ]


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what the runs of one rate say together."""
    held = [run.rate <= LIMIT for run in runs]
    return {
        "limit": LIMIT,
        "runs": len(runs),
        "runs_within_limit": sum(held),
        "greatest_wrong_rate": max(run.rate for run in runs),
        "semantic_hits": sum(run.semantic for run in runs),
        "wrong": sum(run.wrong for run in runs),
        "each": [asdict(run) for run in runs],
    }
