"""Asks both sides every item, interleaved, then scores the answers."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from evenkeel.errors import EvenkeelError
from evenkeel_evals.ask import sentinel
from evenkeel_evals.ask.answer_cache import RunCache
from evenkeel_evals.ask.answers import NOT_SCORED, Answer, AnsweredPair
from evenkeel_evals.ask.client import Call, ChatClient, Reply, check_key
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.ask.schedule import PlannedPair
from evenkeel_evals.ask.scoring import score_reply
from evenkeel_evals.ask.sides import Side


class CacheMode(StrEnum):
    """State of the server's prefix cache for a side's calls.

    ISOLATED: only what the side itself cached in this run and this repeat of its items. COLD:
    empty. WARM: the whole request, cached by a discarded one-token call just before. SHARED: as
    found; the only mode for servers that do not support `cache_salt`.
    """

    ISOLATED = "isolated"
    COLD = "cold"
    WARM = "warm"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run.

    Attributes:
        run_id: Id of the run in spans and reports.
        concurrency: Pairs in flight at once; a pair's second request follows its first.
        seed: Seed for the order of items and sides.
        cache: State of the prefix cache.
        warmup: Pairs asked first and discarded, under a separate salt.
        answer_cache: Cached answers of earlier runs; None disables the cache.
        sentinels: Sentinel call number by the pair it precedes.
    """

    run_id: str
    concurrency: int
    seed: int
    cache: CacheMode
    warmup: int
    answer_cache: RunCache | None = None
    sentinels: Mapping[int, int] = field(default_factory=dict)


Progress = Callable[[int, int], None]
# Attempts to warm the prefix cache before one measured call if its server keeps going down.
MOST_FILLINGS = 3


def new_run_id() -> str:
    """Return an id that sorts by time."""
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


async def find_models(client: ChatClient, baseline: Side, candidate: Side) -> tuple[Side, Side]:
    """Return both sides with the models their servers serve.

    Raises:
        CannotMeasureError: If a server does not answer.
        ConfigurationError: If a server does not serve the model.
    """
    a = await client.find_model(baseline.url, baseline.model)
    b = await client.find_model(candidate.url, candidate.model)
    return replace(baseline, model=a), replace(candidate, model=b)


async def ask_all(
    client: ChatClient,
    sides: tuple[Side, Side],
    planned: Sequence[PlannedPair],
    options: RunOptions,
    recorded: RecordedRun,
    progress: Progress,
) -> None:
    """Ask both sides every item that has no answer yet, and record the answers.

    Workers take the next pair as they become free, so both sides always see the same load.

    Args:
        client: Makes the requests.
        sides: Baseline and candidate.
        planned: The pairs to ask, in this order.
        options: How.
        recorded: What is there already; takes the answers.
        progress: Called with pairs done and the total.

    Raises:
        KeyRefusedError: If a server refuses the key.
        CannotMeasureError: If one does not answer for too long.
    """
    asker = _Asker(client, {"A": sides[0], "B": sides[1]}, options, recorded)
    if options.warmup and not recorded.is_warm:
        warmup = [planned[i % len(planned)] for i in range(options.warmup)]
        await asker.warm_up(warmup)
        recorded.record_warm_up()
    await asker.drain(planned, progress)
    await recorded.score(planned)


async def repeat_lost(
    client: ChatClient,
    sides: tuple[Side, Side],
    lost: Sequence[AnsweredPair],
    num_repeats: int,
    options: RunOptions,
    recorded: RecordedRun,
) -> None:
    """Repeat lost items on both sides, each until it is cleared or has all its repeats.

    Args:
        client: Makes the requests.
        sides: Baseline and candidate.
        lost: Pairs the baseline got right and the candidate wrong.
        num_repeats: Repeats per side after which an item counts as broken.
        options: How.
        recorded: What is there already; takes the results.
    """
    asker = _Asker(client, {"A": sides[0], "B": sides[1]}, options, recorded)
    await asker.repeat([PlannedPair(p.index, p.item, p.first) for p in lost], num_repeats)


class _Asker:
    def __init__(
        self,
        client: ChatClient,
        sides: dict[str, Side],
        options: RunOptions,
        recorded: RecordedRun,
    ) -> None:
        self._client = client
        self._sides = sides
        self._options = options
        self._recorded = recorded

    async def warm_up(self, planned: Sequence[PlannedPair]) -> None:
        async def ask_both(pair: PlannedPair) -> None:
            for letter in pair.order:
                await self._ask(pair, letter, is_warmup=True)

        await self._share_out(planned, ask_both)

    async def drain(self, planned: Sequence[PlannedPair], progress: Progress) -> None:
        num_done = 0

        async def ask_both(pair: PlannedPair) -> None:
            nonlocal num_done
            await self._ask_sentinel(pair)
            for letter in pair.order:
                if self._recorded.answer(pair, letter) is None:
                    kept = self._find_kept(pair, letter)
                    if kept is None:
                        self._recorded.record_call(pair, letter)
                        kept = await self._ask(pair, letter, is_warmup=False)
                        self._keep(pair, letter, kept.reply)
                    self._recorded.record_answer(pair, letter, kept)
            await self._recorded.sync()
            num_done += 1
            progress(num_done, len(planned))

        await self._share_out(planned, ask_both)

    async def repeat(self, lost: Sequence[PlannedPair], num_repeats: int) -> None:
        async def ask_on(pair: PlannedPair) -> None:
            while letter := self._recorded.repeats(pair.index).next_side(num_repeats):
                answer = await self._ask(pair, letter, is_warmup=False)
                answer = replace(answer, score=score_reply(pair.item, answer.reply))
                self._recorded.record_repeat(pair.index, letter, answer.is_right)
                await self._recorded.sync()

        await self._share_out(lost, ask_on)

    def _find_kept(self, pair: PlannedPair, letter: str) -> Answer | None:
        cache = self._options.answer_cache
        if cache is None or not cache.is_read:
            return None
        reply = cache.cache.find(cache.key(letter, pair.item, pair.repeat), time.time_ns())
        if reply is None:
            return None
        ids = secrets.token_hex(16), secrets.token_hex(8)
        return Answer(reply, NOT_SCORED, *ids)

    def _keep(self, pair: PlannedPair, letter: str, reply: Reply) -> None:
        cache = self._options.answer_cache
        if cache is not None:
            cache.cache.keep(cache.key(letter, pair.item, pair.repeat), reply)

    async def _ask_sentinel(self, pair: PlannedPair) -> None:
        number = self._options.sentinels.get(pair.index)
        if number is None or self._recorded.has_sentinel_answer(number):
            return
        side = replace(
            self._sides["A"],
            prompt_name="evenkeel-sentinel",
            prompt_version="1",
            sampling={"temperature": 0.0, "max_tokens": sentinel.MAX_TOKENS},
        )
        call = Call(
            side=side,
            messages=sentinel.MESSAGES,
            trace_id=secrets.token_hex(16),
            span_id=secrets.token_hex(8),
            session=f"{self._options.run_id}-sentinel",
            cache_salt=None if self._options.cache is CacheMode.SHARED else secrets.token_hex(8),
        )
        self._recorded.record_sentinel_answer(sentinel.read(number, await self._client.ask(call)))

    async def _share_out(
        self, planned: Sequence[PlannedPair], task: Callable[[PlannedPair], Awaitable[None]]
    ) -> None:
        async def work(waiting: Iterator[PlannedPair]) -> None:
            for pair in waiting:
                await task(pair)

        waiting = iter(planned)
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._options.concurrency, len(planned))):
                    group.create_task(work(waiting))
        except* EvenkeelError as group_error:
            # Such as a full disk: one line for the user, however many workers hit it.
            raise group_error.exceptions[0] from None

    async def _ask(self, pair: PlannedPair, letter: str, *, is_warmup: bool) -> Answer:
        num_retries = 0
        for _ in range(MOST_FILLINGS):
            call = self._call(pair, letter, is_warmup=is_warmup)
            if self._options.cache is CacheMode.WARM:
                await self._client.ask(_filling(call))
            reply = await self._client.ask(call)
            check_key(reply, call.side.url)
            num_retries += reply.num_retries
            # A server that was down may have lost its cache.
            if self._options.cache is not CacheMode.WARM or not reply.num_retries:
                break
        reply = replace(reply, num_retries=num_retries)
        return Answer(reply, NOT_SCORED, call.trace_id, call.span_id)

    def _call(self, pair: PlannedPair, letter: str, *, is_warmup: bool) -> Call:
        side = self._sides[letter]
        return Call(
            side=side,
            messages=side.messages_for(pair.item),
            trace_id=secrets.token_hex(16),
            span_id=secrets.token_hex(8),
            session=f"{self._options.run_id}-{'warm-up' if is_warmup else letter}",
            cache_salt=self._salt(letter, pair.repeat, is_warmup),
        )

    def _salt(self, letter: str, repeat: int, is_warmup: bool) -> str | None:
        if self._options.cache is CacheMode.SHARED:
            return None
        if is_warmup or self._options.cache is CacheMode.COLD:
            return secrets.token_hex(8)
        # An item that was asked before would find all of its prefix, and its answer as a draft.
        return f"{self._options.run_id}-{letter}" + (f"-{repeat}" if repeat else "")


def _filling(call: Call) -> Call:
    """Return a call that puts the whole request into the prefix cache under its salt."""
    side = replace(call.side, sampling={**call.side.sampling, "max_tokens": 1})
    return replace(
        call,
        side=side,
        session=f"{call.session}-fill",
        trace_id=secrets.token_hex(16),
        span_id=secrets.token_hex(8),
    )
