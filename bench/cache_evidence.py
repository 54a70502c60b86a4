"""Run the cache in mode `serve` against a model with known answers; for bench/cache.py.

The cache, its guards, evidence and replays are the runtime's own; only the engine is replaced by a
table of the real model's answers. In the series `own` each wording has the model's own answer; the
model is so small that it often answers two wordings differently. In the other series each question
has the answer that the model gave to most of its wordings, except for a ratio of wordings with a
different answer that neither guards nor cosines can detect, so that only the evidence can enforce
the limit. A near hit is wrong if either of its two wordings is among them, so twice as often. In
`rising` the ratio is 0 in the first half of a run and 10% in the second.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from types import SimpleNamespace
from typing import Any

from evenkeel.embedding import Encoder
from evenkeel_runtime.request.hook import EngineReader, RequestHook
from evenkeel_runtime.request.trace import CURRENT_REQUEST, EngineRun, HttpRequest
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.cached_engine import CachedEngine
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.drafts import ANSWER_KEY, OTHERS_KEY, DraftCounts, unpack_tokens

LIMIT = 0.02
REQUESTS = 3000
# Ratio of wordings that are answered differently, before and after the middle of a run.
SERIES = {
    "own": (0.0, 0.0),
    "0": (0.0, 0.0),
    "0.003": (0.003, 0.003),
    "0.01": (0.01, 0.01),
    "0.03": (0.03, 0.03),
    "rising": (0.0, 0.1),
}
# Rewordings that keep all content words.
STARTS = ("", "Hello, ", "Please tell me: ", "Hi there, ", "I have a question: ", "So, ")
ENDS = ("", " Thanks!", " Thank you.", " Please help.")
_ENDS_ASKED = 2


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
    semantic: int
    wrong: int
    exact: int
    drafts: int
    changes: int

    @property
    def rate(self) -> float:
        """Wrong near hits / returned near hits; 0 if none was returned."""
        return self.wrong / self.semantic if self.semantic else 0.0


class RememberingEncoder:
    """Embeds each text once, over all runs."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder
        self._known: dict[str, Any] = {}

    def sketch(self, text: str) -> Any:
        """As the encoder does."""
        return self._encoder.sketch(text)

    def encode(self, text: str) -> Any:
        """As the encoder does, once."""
        if text not in self._known:
            self._known[text] = self._encoder.encode(text)
        return self._known[text]


def reword(questions: Sequence[str], seed: int, count: int) -> dict[str, str]:
    """Return distinct wordings, a few per question, and the question of each."""
    order = random.Random(seed)
    wordings = [(a + q + b, q) for q in questions for a in STARTS for b in ENDS]
    return dict(order.sample(wordings, min(count, len(wordings))))


def agree(answers: Mapping[str, str], question_of: Mapping[str, str]) -> dict[str, str]:
    """Return wordings of each question with the answer that the model gave to most of them."""
    given: dict[str, Counter[str]] = {}
    for text, answer in answers.items():
        given.setdefault(question_of[text], Counter())[answer] += 1
    return {
        a + question + b: counts.most_common(1)[0][0]
        for question, counts in given.items()
        for a in STARTS
        for b in ENDS[:_ENDS_ASKED]
    }


def tokens(answer: str) -> list[int]:
    """Return token ids that only this answer has, one per word."""
    return [hash((answer, place)) & 0xFFFFFFF for place in range(len(answer.split()))]


# The run that is being answered, for the engine to report what it accepted of its drafts.
_RUN: ContextVar[EngineRun | None] = ContextVar("run", default=None)


class AnswerTable:
    """An engine with the real model's recorded answers, which accepts drafts equal to them."""

    def __init__(self, answers: Mapping[str, str]) -> None:
        self.answers = answers
        self.model_config = None

    async def generate(
        self, prompt: Any, params: Any, request_id: str, **_: Any
    ) -> AsyncIterator[Any]:
        """Yield the whole answer in one output."""
        text = self.answers[prompt["question"]]
        answer = tokens(text)
        handed = params.extra_args or {}
        drafts = list(map(unpack_tokens, [handed.get(ANSWER_KEY), *handed.get(OTHERS_KEY, ())]))
        run = _RUN.get()
        if run is not None and answer in drafts:
            run.drafts_by_source.setdefault("cache", DraftCounts()).add(len(answer), len(answer))
        completion = SimpleNamespace(
            index=0,
            text=text,
            token_ids=answer,
            finish_reason="stop",
            stop_reason=None,
        )
        yield SimpleNamespace(outputs=[completion], finished=True, prompt_token_ids=[1])


class _Recorder:
    """Accepts records and lets errors through."""

    def record(self, _: object) -> None:
        pass

    def record_internal_error(self, error: Exception) -> None:
        raise error


def open_engine(
    cache: ResponseCache, model: AnswerTable, random_share: Callable[[], float]
) -> tuple[CachedEngine, RequestHook]:
    """Return the cache in front of a model, and the hook that starts its runs."""
    reader = EngineReader(
        is_streamed=lambda params: False,
        record_output=lambda run, output: 0,
        read_engine=lambda run, seen: None,
        find_times=lambda request_id: [],
        find_beam_search=lambda request_id: None,
    )
    hook = RequestHook(_Recorder(), reader, "support")  # type: ignore[arg-type]
    return CachedEngine(cache, hook, model, random_share), hook


async def run_once(
    answers: Mapping[str, str], encoder: RememberingEncoder, seed: int, rates: tuple[float, float]
) -> Run:
    """Send REQUESTS seeded random questions; these ratios of the wordings get another answer."""
    order = random.Random(seed)
    shares = {text: order.random() for text in answers}
    tables = [
        {
            text: f"Other advice: {answer[::-1]}" if shares[text] < rate else answer
            for text, answer in answers.items()
        }
        for rate in rates
    ]
    route = RoutePolicy(mode=HitMode.SERVE, wrong_hit_limit=LIMIT)
    # Seeded runs must not depend on how long embeddings take.
    policy = CachePolicy(routes=(route,), embedding_timeout_s=10)
    cache = ResponseCache(
        policy,
        MemoryBackend(policy.max_bytes),
        encoder,  # type: ignore[arg-type]
        AuditLog(None),
    )
    model = AnswerTable(tables[0])
    engine, hook = open_engine(cache, model, order.random)
    outcomes: Counter[str] = Counter()
    wrong = 0
    texts = list(answers)
    for number in range(REQUESTS):
        if number == REQUESTS // 2:
            model.answers = tables[1]
        text = order.choice(texts)
        outcome, said = await ask(engine, hook, text, number)
        outcomes[outcome] += 1
        if outcome == "semantic":
            wrong += not await cache.compare_answers(said, model.answers[text])
        while len(engine.replays) or engine.num_background:
            await asyncio.sleep(0)
    await cache.close()
    return Run(
        seed,
        outcomes["semantic"],
        wrong,
        outcomes["exact"],
        outcomes["draft"],
        cache.counts.changes.total(),
    )


async def ask(engine: CachedEngine, hook: RequestHook, text: str, number: int) -> tuple[str, str]:
    """Ask once; return the outcome and the answer."""
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
        _RUN.set(run)
        prompt = {"type": "token", "prompt_token_ids": [1], "question": text}
        said = ""
        async for output in engine.answer(run, prompt, params, run.request_id, {}):
            said += output.outputs[0].text
    finally:
        CURRENT_REQUEST.reset(token)
    assert run.response_cache is not None
    return run.response_cache, said


def run_series(
    name: str,
    answers: Mapping[str, str],
    question_of: Mapping[str, str],
    encoder: RememberingEncoder,
    runs: int,
) -> list[Run]:
    """Return the runs of one series, with the seeds 0, 1, and so on."""
    asked = answers if name == "own" else agree(answers, question_of)
    return [asyncio.run(run_once(asked, encoder, seed, SERIES[name])) for seed in range(runs)]


def summarize(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the combined result of the runs of one series."""
    held = [run.rate <= LIMIT for run in runs]
    return {
        "limit": LIMIT,
        "runs": len(runs),
        "runs_within_limit": sum(held),
        "runs_serving": sum(run.semantic > 0 for run in runs),
        "greatest_wrong_rate": max(run.rate for run in runs),
        "semantic_hits": sum(run.semantic for run in runs),
        "wrong": sum(run.wrong for run in runs),
        "drafts": sum(run.drafts for run in runs),
        "each": [asdict(run) for run in runs],
    }
