"""One comparison: its settings, its calls and its outcome."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenkeel.prices.price_file import PriceFile
from evenkeel.times import to_datetime
from evenkeel_evals.ask.answer_cache import AnswerCache, RunCache
from evenkeel_evals.ask.answers import AnsweredPair, are_identical
from evenkeel_evals.ask.pair_judge import ORDERS, PairJudge
from evenkeel_evals.ask.recorded_run import Beginning, RecordedRun
from evenkeel_evals.ask.retries import PatientClient
from evenkeel_evals.ask.run import (
    CacheMode,
    Progress,
    RunOptions,
    ask_all,
    find_models,
    new_run_id,
    repeat_lost,
)
from evenkeel_evals.ask.run_checks import CheckTools, identify_checks, make_checks, open_checks
from evenkeel_evals.ask.schedule import PlannedPair
from evenkeel_evals.ask.sentinel import find_drift, sentinel_calls_at
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.ask.side_server import serving
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.compare.late_checks import needs_judge
from evenkeel_evals.compare.server_side import record_server_times
from evenkeel_evals.dataset.dataset import Dataset
from evenkeel_evals.report.spans import NO_ENDPOINT
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.cost_effects import find_missing
from evenkeel_evals.verdict.decision import decide
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gate_verdicts import Judgement, Look
from evenkeel_evals.verdict.gates import CostGate, Gate, LatencyGate, PreferenceGate
from evenkeel_evals.verdict.latency_split import split_latency, trace_ids
from evenkeel_evals.verdict.looks import StoppingRule, judge_look, plan_looks
from evenkeel_evals.verdict.plan import GatePlan
from evenkeel_evals.verdict.preferences import JudgeQuality, quality
from evenkeel_evals.verdict.pricing import Pricing, needs_engine_seconds
from evenkeel_evals.verdict.repeated_items import find_lost, repeats_for


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything a run was asked to do.

    Attributes:
        settings: Concurrency, seed, timeout and so on.
        gates: The gates to judge.
        dataset: The source of the items.
        sides: Baseline and candidate; their models may not be resolved yet.
        planned: The pairs to ask, in this order.
        cache: State of the prefix cache.
        warmup: Pairs asked first and discarded.
        plan: What each gate is expected to detect.
        allows_inconclusive: Whether an inconclusive result passes.
        judge: The judge for preferences and rubrics; None for no judge.
        mode: When the run may reach its verdict.
        guards: Whether to repeat lost items, to find those that now always fail.
        answer_cache: Cache of answers across runs; None for none.
        folder: The dataset's folder, with its Python assertions; None runs none.
        prices: Prices for a gate on cost; None for seconds of the engine.
    """

    settings: EvalSettings
    gates: Sequence[Gate]
    dataset: Dataset
    sides: tuple[Side, Side]
    planned: Sequence[PlannedPair]
    cache: CacheMode
    warmup: int
    plan: Sequence[GatePlan]
    allows_inconclusive: bool
    judge: PairJudge | None = None
    mode: StoppingRule = StoppingRule.FIXED
    guards: bool = False
    answer_cache: AnswerCache | None = None
    folder: Path | None = None
    prices: PriceFile | None = None

    @property
    def num_repeats(self) -> int:
        """Return how often each item is asked per side."""
        return 1 + max((pair.repeat for pair in self.planned), default=0)

    @property
    def reads_cache(self) -> bool:
        """Return whether cached answers are used: never if a latency or a gate on cost counts."""
        is_timed = any(isinstance(gate, LatencyGate | CostGate) for gate in self.gates)
        is_timed = is_timed or any(pair.item.scorer.is_timed for pair in self.planned)
        return self.answer_cache is not None and not is_timed

    @property
    def pair_judge(self) -> PairJudge | None:
        """Return the judge for preferences; None if it is only for rubrics and no gate needs it."""
        is_gated = any(isinstance(gate, PreferenceGate) for gate in self.gates)
        for_rubrics = needs_judge([pair.item for pair in self.planned])
        return self.judge if is_gated or not for_rubrics else None

    def identity(self) -> dict[str, Any]:
        """Return everything that determines which calls are made and how they are judged."""
        asked = "\n".join(pair.item.id for pair in self.planned)
        return {
            "dataset": self.dataset.content_hash,
            "items": f"sha256:{hashlib.sha256(asked.encode()).hexdigest()}",
            "baseline": self.sides[0].content_hash,
            "candidate": self.sides[1].content_hash,
            "gates": [gate.text for gate in self.gates],
            "seed": self.settings.seed,
            "concurrency": self.settings.concurrency,
            **({"slo_class": self.settings.slo_class} if self.settings.slo_class else {}),
            "cache": self.cache.value,
            "warmup": self.warmup,
            "mode": self.mode.value,
            "guard": self.guards,
            "repeats": self.num_repeats,
            "answer_cache": self.reads_cache,
            "judge": self.judge.content_hash if self.judge is not None else None,
            "prices": None if self.prices is None else self.prices.model_dump(mode="json"),
            "checks": identify_checks(
                [pair.item for pair in self.planned], self.judge, self.folder
            ),
        }

    def looks(self) -> list[Look]:
        """Return the points at which the run may reach its verdict."""
        return plan_looks(self.mode, self.gates, len(self.planned))

    def _pricing(self, recorded: RecordedRun) -> Pricing | None:
        """Return how this run's answers are priced, at its beginning; None without a gate."""
        has_cost = any(isinstance(gate, CostGate) for gate in self.gates)
        if not has_cost or recorded.beginning is None:
            return None
        at = to_datetime(recorded.beginning.start_ns)
        return Pricing(self.prices, at, recorded.beginning.models, recorded.server_times or {})

    def _reads_engine_seconds(self, recorded: RecordedRun) -> bool:
        pricing = self._pricing(recorded)
        if pricing is None or not self.settings.store_address(""):
            return False
        return needs_engine_seconds(self.prices, list(pricing.models.values()), pricing.at)

    def _lacks_engine_seconds(self, recorded: RecordedRun, pairs: Sequence[AnsweredPair]) -> bool:
        """Return whether the store has still to be asked for engine seconds of these pairs."""
        is_asked = trace_ids(pairs) <= recorded.times_asked
        return not is_asked and self._reads_engine_seconds(recorded)

    def may_be_priced_later(self, recorded: RecordedRun, pairs: Sequence[AnsweredPair]) -> bool:
        """Return whether too many of these pairs have no cost yet, because the store lacks them."""
        is_found = trace_ids(pairs) <= (recorded.server_times or {}).keys()
        is_missing = not is_found and self._reads_engine_seconds(recorded)
        return is_missing and find_missing(pairs) is not None

    def find_engine_seconds(self, recorded: RecordedRun) -> None:
        """Ask the store again for what it lacked when the run had all of its answers."""
        pairs = recorded.pairs(self.planned)
        if len(pairs) == len(self.planned) and self._lacks_engine_seconds(recorded, pairs):
            record_server_times(self.settings, recorded, pairs)

    def judge_if_complete(self, recorded: RecordedRun) -> Judgement | None:
        """Judge a run that has nothing left to ask; None if it has."""
        for look in self.looks():
            judgement = self._judge_look(recorded, look)
            if judgement is None:
                return None
            if look.is_last or judgement.is_conclusive:
                return None if self._suspects(recorded, judgement) else judgement
        return None

    def _judge_look(self, recorded: RecordedRun, look: Look) -> Judgement | None:
        """Judge the pairs due by a look; None if an answer, a verdict or a check is missing."""
        planned = self.planned[: look.num_pairs]
        pairs = recorded.pairs(planned, is_judged=self.pair_judge is not None)
        if len(pairs) < len(planned) or self._unjudged(recorded, planned):
            return None
        if open_checks(recorded, planned) or self._lacks_engine_seconds(recorded, pairs):
            return None
        trust = self._judge_quality(recorded, pairs)
        pairs = pairs if trust is None else trust.apply(pairs)
        pricing = self._pricing(recorded)
        pairs = pairs if pricing is None else pricing.apply(pairs)
        return judge_look(self.mode, look, self.gates, pairs, self.settings.seed)

    def describe_answers(self, recorded: RecordedRun) -> str | None:
        """Return the progress, such as "3 of 8 answers"; None before the run has begun."""
        if recorded.beginning is None:
            return None
        return f"{recorded.num_answers} of {2 * len(self.planned)} answers"

    def _num_repeats(self) -> int:
        return repeats_for(len(self.planned))

    def _suspects(self, recorded: RecordedRun, judgement: Judgement) -> list[AnsweredPair]:
        """Return the lost pairs to repeat; none if the run has already failed."""
        if not self.guards or judgement.verdict is Verdict.REGRESSED:
            return []
        # Late checks would have to be made again for every repeat.
        lost = [pair for pair in find_lost(judgement.pairs) if not pair.item.scorer.checks]
        wanted = self._num_repeats()
        return [p for p in lost if recorded.repeats(p.index).next_side(wanted) is not None]

    async def ask(
        self,
        recorded: RecordedRun,
        report: Progress,
        tell: Callable[[str], None] = lambda line: None,
    ) -> Judgement:
        """Ask what has no answer yet and judge the run; self-served sides run in the meantime.

        Args:
            recorded: What is there already; takes the answers.
            report: Called with pairs done and the total.
            tell: Called with a line when a server is started or is not answering.

        Raises:
            ConfigurationError: If a server does not serve the model.
            CannotMeasureError: If a server does not answer for too long, or the disk is full.
        """
        endpoint = self.settings.otlp_endpoint.get_secret_value()
        spans_to = None if endpoint == NO_ENDPOINT else endpoint
        with serving(self.sides, spans_to, tell) as sides:
            return await self._ask(recorded, (sides[0], sides[1]), report, tell)

    async def _ask(
        self,
        recorded: RecordedRun,
        sides: tuple[Side, Side],
        report: Progress,
        tell: Callable[[str], None],
    ) -> Judgement:
        settings, beginning = self.settings, recorded.beginning
        key = settings.api_key.get_secret_value() if settings.api_key else None
        async with self._client(key, tell) as client:
            known = await find_models(client, *sides)
            named = {"A": known[0], "B": known[1]}
            recorded.begin(
                Beginning(
                    run_id=beginning.run_id if beginning else new_run_id(),
                    start_ns=time.time_ns(),
                    identity=self.identity(),
                    models={letter: str(side.model) for letter, side in named.items()},
                    engines={
                        letter: await client.find_engine(side.url) for letter, side in named.items()
                    },
                )
            )
            assert recorded.beginning is not None
            options = RunOptions(
                run_id=recorded.beginning.run_id,
                concurrency=settings.concurrency,
                seed=settings.seed,
                cache=self.cache,
                warmup=0 if self.reads_cache else self.warmup,
                answer_cache=self._run_cache(named, recorded.beginning.engines),
                sentinels={} if self.reads_cache else sentinel_calls_at(len(self.planned)),
            )
            if recorded.is_warm:
                for url in {side.url for side in known}:
                    await client.connect(url)
            judgement = None
            for look in self.looks():
                planned = self.planned[: look.num_pairs]
                if len(recorded.pairs(planned)) < len(planned):
                    await ask_all(client, known, planned, options, recorded, report)
                # After the run, not during it: the judge's load must not affect the measurements.
                await make_checks(recorded, planned, self._check_tools(tell))
                await self._ask_judge(recorded, planned, tell)
                asked = recorded.pairs(planned)
                if self._lacks_engine_seconds(recorded, asked):
                    record_server_times(settings, recorded, asked)
                judgement = self._judge_look(recorded, look)
                if judgement is not None and judgement.is_conclusive:
                    break
            assert judgement is not None
            suspects = self._suspects(recorded, judgement)
            if suspects:
                await repeat_lost(client, known, suspects, self._num_repeats(), options, recorded)
            return judgement

    def _run_cache(
        self, sides: Mapping[str, Side], engines: Mapping[str, str | None]
    ) -> RunCache | None:
        if self.answer_cache is None:
            return None
        return RunCache(self.answer_cache, self.reads_cache, sides, engines, self.num_repeats)

    def _client(self, key: str | None, tell: Callable[[str], None]) -> PatientClient:
        s = self.settings
        return PatientClient(s.concurrency, s.timeout_s, key, s.retry_s, tell, s.slo_class)

    def _judge_client(self, tell: Callable[[str], None]) -> PatientClient:
        judge_url = self.judge.side.url if self.judge is not None else ""
        sides = {side.url for side in self.sides if side.url}
        return self._client(self.settings.judge_key(judge_url, sides), tell)

    def _check_tools(self, tell: Callable[[str], None]) -> CheckTools:
        concurrency = self.settings.concurrency
        return CheckTools(self.folder, self.judge, concurrency, lambda: self._judge_client(tell))

    async def _ask_judge(
        self,
        recorded: RecordedRun,
        planned: Sequence[PlannedPair],
        tell: Callable[[str], None],
    ) -> None:
        if self.pair_judge is None:
            return
        side = self.pair_judge.side
        waiting = iter(self._unjudged(recorded, planned))
        async with self._judge_client(tell) as client:
            model = await client.find_model(side.url, side.model)
            judge = replace(self.pair_judge, side=replace(side, model=model))

            async def work() -> None:
                for pair, order in waiting:
                    spoken = await judge.ask(client, pair, order)
                    recorded.record_verdict(pair.index, order, spoken)
                    await recorded.sync()

            await asyncio.gather(*(work() for _ in range(self.settings.concurrency)))

    def _unjudged(
        self, recorded: RecordedRun, planned: Sequence[PlannedPair]
    ) -> list[tuple[AnsweredPair, str]]:
        if self.pair_judge is None:
            return []
        return [
            (pair, order)
            for pair in recorded.pairs(planned)
            if pair.a.reply.text is not None and pair.b.reply.text is not None
            if not are_identical(pair)
            for order in ORDERS
            if not recorded.has_verdict(pair.index, order)
        ]

    def conclude(self, recorded: RecordedRun, judgement: Judgement) -> Outcome:
        """Return the outcome of the recorded answers; deterministic for the same answers."""
        beginning = recorded.beginning
        assert beginning is not None
        pairs = judgement.pairs
        decision = decide(
            judgement,
            self.settings.max_unmeasured_ratio,
            self.allows_inconclusive,
            self._judge_quality(recorded, pairs),
            [
                pair.item.id
                for pair in find_lost(pairs)
                if recorded.repeats(pair.index).is_broken(self._num_repeats())
            ],
        )
        return Outcome(
            run_id=beginning.run_id,
            start_ns=beginning.start_ns,
            seconds=recorded.seconds(),
            dataset=self.dataset,
            sides={
                letter: replace(side, model=beginning.models[letter])
                for letter, side in zip("AB", self.sides, strict=True)
            },
            seed=self.settings.seed,
            concurrency=self.settings.concurrency,
            cache=self.cache,
            plan=self.plan,
            decision=decision,
            mode=self.mode,
            splits=[
                found
                for gate in self.gates
                if (found := split_latency(gate, pairs, recorded.server_times or {})) is not None
            ],
            engines=beginning.engines,
            num_interruptions=recorded.num_interruptions,
            num_asked_again=recorded.num_asked_again,
            drift=find_drift(recorded.sentinel_answers),
            identity=beginning.identity,
        )

    def _judge_quality(
        self, recorded: RecordedRun, pairs: Sequence[AnsweredPair]
    ) -> JudgeQuality | None:
        if self.pair_judge is None:
            return None
        verdicts = [recorded.verdicts(pair.index) for pair in pairs]
        said = [recorded.unreadable(pair.index) for pair in pairs]
        return quality(pairs, verdicts, said)
