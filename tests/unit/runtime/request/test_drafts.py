"""The server's side of speculation: reports, totals, the canary, and what this vLLM must have."""

from __future__ import annotations

import argparse
import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel_runtime.control.gate import Standing
from evenkeel_runtime.control.visit import Visit
from evenkeel_runtime.request.canary import Canary, find_difference
from evenkeel_runtime.request.drafts import SpeculationServer
from evenkeel_runtime.request.headers import read_headers
from evenkeel_runtime.request.hook import name_tenant
from evenkeel_runtime.request.trace import EngineRun, HttpRequest
from evenkeel_runtime.serve.speculation import choose_flags, find_missing, verify_exactly
from evenkeel_runtime.serve.speculation_metrics import SpeculationMetrics
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.drafts import (
    NO_TENANT,
    REPORT_KEY,
    SPECULATE_KEY,
    TENANT_KEY,
    DraftCounts,
    DraftReport,
    encode_report,
    take_report,
)
from evenkeel_runtime.wire.observation import CanaryResult


@dataclass(slots=True)
class Params:
    """What is read of vLLM's sampling parameters."""

    temperature: float = 0.0
    n: int = 1
    stop: list[str] = field(default_factory=list)
    prompt_logprobs: int | None = None
    extra_args: dict[str, Any] | None = None
    output_kind: Any = field(default_factory=lambda: SimpleNamespace(name="FINAL_ONLY"))

    def clone(self) -> Params:
        return replace(self)


@dataclass(slots=True)
class Replies:
    """An engine that answers every replay with the same tokens."""

    tokens: list[int]
    has_priorities: bool = False
    busy_for: int = 0
    asked: list[tuple[Any, Any, str, dict[str, Any]]] = field(default_factory=list)

    def is_idle(self) -> bool:
        self.busy_for -= 1
        return self.busy_for < 0

    async def generate(
        self, prompt: Any, sampling_params: Any, request_id: str, **options: Any
    ) -> AsyncGenerator[Any, None]:
        self.asked.append((prompt, sampling_params, request_id, options))
        yield output_of(self.tokens)


def output_of(tokens: list[int], report: DraftReport | None = None) -> Any:
    return SimpleNamespace(
        outputs=[SimpleNamespace(token_ids=tokens)],
        prompt_token_ids=[1, 2, 3],
        lora_request=None,
        kv_transfer_params=None if report is None else {REPORT_KEY: encode_report(report)},
    )


def run_of(params: Params, tenant: str | None = None) -> EngineRun:
    request = HttpRequest("chat", Caller(tenant=tenant))
    return EngineRun("req-1", "m", params, request, False, 0, 0)


def drafts() -> dict[str, DraftCounts]:
    counts = DraftCounts()
    counts.add(3, 2)
    counts.add(1, 0)
    return {"retrieval": counts}


def test_counts_are_by_position() -> None:
    counts = drafts()["retrieval"]
    assert (counts.drafted, counts.accepted) == ([2, 1, 1], [1, 1, 0])
    assert (counts.drafted_tokens, counts.accepted_tokens, counts.num_steps) == (4, 2, 2)


def test_a_report_travels_and_leaves_the_output_as_it_was() -> None:
    output = output_of([5], DraftReport(drafts(), {"errors": 0}, {"prompt": [4, 2, 2]}, 1))
    output.kv_transfer_params["of a connector"] = 1
    report = take_report(output)
    assert report == DraftReport(drafts(), {"errors": 0}, {"prompt": [4, 2, 2]}, 1)
    assert output.kv_transfer_params == {"of a connector": 1}
    assert take_report(output) is None


def test_a_lost_report_loses_nothing_and_engines_add_up() -> None:
    server = SpeculationServer(Canary(0.0, Replies([]), lambda _: None, Random(1)))
    run = run_of(Params())
    for index, totals in ((0, (4, 2, 1)), (1, (5, 5, 1)), (0, (90, 60, 12)), (1, (5, 5, 1))):
        # What came between the two of engine 0 went out with an output that nobody waited for.
        server.record_output(
            run, output_of([5], DraftReport({}, None, {"retrieval": totals}, index))
        )
    assert run.drafts_by_source == {}
    assert server.totals.drafted_tokens == {"retrieval": 95}
    assert server.totals.accepted_tokens == {"retrieval": 65}
    assert server.totals.verify_steps == {"retrieval": 13}


def test_counters_of_several_engines_add_up_and_never_fall() -> None:
    server = SpeculationServer(Canary(0.0, Replies([]), lambda _: None, Random(1)))

    def report(index: int, **state: float) -> dict[str, float]:
        report = DraftReport({}, state, {}, index)
        server.record_output(run_of(Params()), output_of([5], report))
        metrics = SpeculationMetrics(server).collect()
        samples = {sample.name: sample.value for metric in metrics for sample in metric.samples}
        names = ("drafting_seconds_total", "errors_total", "store_tokens")
        return {name: samples[f"evenkeel_speculation_{name}"] for name in names}

    first = report(0, errors=0, drafting_s=5.0, store_tokens=70)
    assert first == {"drafting_seconds_total": 5, "errors_total": 0, "store_tokens": 70}
    second = report(1, errors=0, drafting_s=2.0, store_tokens=30)
    assert second == {"drafting_seconds_total": 7, "errors_total": 0, "store_tokens": 30}
    # What an engine says that drafts no longer.
    assert report(1, errors=1) == {
        "drafting_seconds_total": 7,
        "errors_total": 1,
        "store_tokens": 0,
    }
    third = report(0, errors=0, drafting_s=6.0, store_tokens=80)
    assert third == {"drafting_seconds_total": 8, "errors_total": 1, "store_tokens": 80}


def test_what_the_watch_found_is_shown_once_an_engine_has_told() -> None:
    server = SpeculationServer(Canary(0.0, Replies([]), lambda _: None, Random(1)))

    def sampled() -> dict[str, float]:
        metrics = SpeculationMetrics(server).collect()
        samples = (sample for metric in metrics for sample in metric.samples)
        prefix = "evenkeel_speculation_sampled_"
        return {s.name.removeprefix(prefix): s.value for s in samples if s.name.startswith(prefix)}

    assert sampled() == {}
    state = {"sampled_drafts": 0, "sampled_watched": 70, "sampled_evidence": 6.5}
    server.record_output(run_of(Params()), output_of([5], DraftReport({}, state)))
    assert sampled() == {"drafts": 0, "watched_tokens_total": 70, "evidence": 6.5}


def test_the_acceptance_length_has_the_name_that_runbooks_know() -> None:
    server = SpeculationServer(Canary(0.0, Replies([]), lambda _: None, Random(1)))

    def length() -> list[float]:
        metrics = SpeculationMetrics(server).collect()
        named = (m for m in metrics if m.name == "spec_decode_draft_acceptance_length")
        return [sample.value for metric in named for sample in metric.samples]

    assert length() == []
    report = DraftReport({}, None, {"retrieval": (8, 6, 4)})
    server.record_output(run_of(Params()), output_of([5], report))
    assert length() == [2.5]


def test_totals_are_summed_over_requests_and_sequences() -> None:
    server = SpeculationServer(Canary(0.0, Replies([]), lambda _: None, Random(1)))
    run = run_of(Params())
    for so_far in ([4, 2, 2], [8, 4, 4]):
        report = DraftReport(drafts(), {"store_tokens": 7}, {"retrieval": so_far})
        server.record_output(run, output_of([5], report))
    assert run.drafts_by_source["retrieval"].drafted == [4, 2, 2]
    assert server.totals.accepted_tokens == {"retrieval": 4}
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for metric in SpeculationMetrics(server).collect()
        for sample in metric.samples
    }
    assert values["evenkeel_speculation_verify_steps_total", "retrieval"] == 4
    assert values["evenkeel_speculation_drafted_tokens_total", "cache"] == 0
    assert values["evenkeel_speculation_store_tokens",] == 7
    assert values["evenkeel_speculation_errors_total",] == 0


def test_the_engine_is_told_whose_request_it_is() -> None:
    params = Params(extra_args={"evenkeel_draft": [1]})
    name_tenant(run_of(params, tenant="acme"))
    assert params.extra_args == {"evenkeel_draft": [1], TENANT_KEY: "acme"}
    untouched = Params()
    name_tenant(run_of(untouched))
    assert untouched.extra_args is None


@pytest.mark.parametrize("tenant", ["acme", None])
def test_a_caller_cannot_name_another_tenant_in_its_parameters(tenant: str | None) -> None:
    params = Params(extra_args={TENANT_KEY: "rival", "theirs": 1})
    name_tenant(run_of(params, tenant=tenant))
    named = {} if tenant is None else {TENANT_KEY: tenant}
    assert params.extra_args == {"theirs": 1} | named


def test_a_tenant_that_cannot_be_read_shares_no_drafts() -> None:
    named = []
    for _ in range(2):
        run = run_of(Params(extra_args={TENANT_KEY: "rival"}))
        assert run.request is not None
        run.request.caller = read_headers([(b"x-evenkeel-tenant", "Köln".encode("latin-1"))])
        name_tenant(run)
        named.append(run.params.extra_args[TENANT_KEY])
    assert len({*named, "", NO_TENANT, "rival"}) == 5


def replay(
    answer: list[int], again: list[int], change: Callable[[EngineRun], None] = lambda _: None
) -> tuple[Canary, Replies, list[CanaryResult]]:
    """Run one request through the canary, and return what came of it."""
    results: list[CanaryResult] = []
    engine = Replies(again, has_priorities=True, busy_for=1)

    async def run() -> Canary:
        canary = Canary(1.0, engine, results.append, Random(1))
        server = SpeculationServer(canary)
        seen = run_of(Params())
        server.start_run(seen)
        seen.last_output = output_of(answer, DraftReport(drafts()))
        seen.finish_reason = "length"
        server.record_output(seen, seen.last_output)
        change(seen)
        server.end_run(seen)
        for _ in range(3000):
            await asyncio.sleep(0.02)
            if results:
                break
            if not engine.asked and canary._task is None:
                break
        return canary

    return asyncio.run(run()), engine, results


def test_the_same_answer_without_drafts_is_a_match() -> None:
    canary, engine, results = replay([7, 8, 9], [7, 8, 9])
    (result,) = results
    assert (result.of_request_id, result.result, result.num_tokens) == ("req-1", "match", 3)
    assert result.first_difference is None
    assert canary.counts == {"match": 1, "mismatch": 0, "skipped": 0}
    ((prompt, params, request_id, options),) = engine.asked
    assert prompt == {"prompt_token_ids": [1, 2, 3], "cache_salt": "canary-req-1"}
    assert params.extra_args == {SPECULATE_KEY: False, TENANT_KEY: NO_TENANT}
    assert request_id == "canary-req-1"
    # Control's priorities are milliseconds of a clock that starts with the machine.
    a_year_up = 365 * 86_400.0
    late = Visit("chat", a_year_up, a_year_up, a_year_up, "", None)
    late.ticket = SimpleNamespace(standing=Standing.LATE)  # type: ignore[assignment]
    assert late.priority < options["priority"] < 1 << 63


def test_another_answer_is_a_mismatch_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "evenkeel_runtime.request.canary"):
        canary, _, results = replay([7, 8, 9], [7, 4, 9])
    assert [(r.result, r.num_tokens, r.first_difference) for r in results] == [("mismatch", 3, 1)]
    assert canary.counts["mismatch"] == 1
    assert "request_id=req-1 token=1" in caplog.text


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda r: r.drafts_by_source.clear(), id="it had no drafts"),
        pytest.param(lambda r: setattr(r, "finish_reason", "abort"), id="it was aborted"),
        pytest.param(lambda r: setattr(r, "canary_tokens", []), id="it made no token"),
        pytest.param(lambda r: setattr(r.last_output, "lora_request", 1), id="it had an adapter"),
    ],
)
def test_other_requests_are_not_replayed(change: Callable[[EngineRun], None]) -> None:
    _, engine, results = replay([7], [7], change)
    assert engine.asked == []
    assert results == []


@pytest.mark.parametrize("when", ["before it ended", "while it waited", "in its replay"])
def test_other_weights_answer_no_replay(when: str) -> None:
    results: list[CanaryResult] = []

    class Engine(Replies):
        def is_idle(self) -> bool:
            if when == "while it waited":
                canary.record_weight_change()
            return True

        async def generate(self, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:
            canary.record_weight_change()
            async for output in super().generate(*args, **options):
                yield output

    engine = Engine([4])
    canary = Canary(1.0, engine, results.append, Random(1))

    async def run() -> None:
        server = SpeculationServer(canary)
        seen = run_of(Params())
        server.start_run(seen)
        seen.last_output = output_of([7], DraftReport(drafts()))
        seen.finish_reason = "length"
        server.record_output(seen, seen.last_output)
        if when == "before it ended":
            canary.record_weight_change()
        server.end_run(seen)
        while not canary.counts["skipped"] + canary.counts["mismatch"]:
            await asyncio.sleep(0.01)

    asyncio.run(run())
    assert canary.counts == {"match": 0, "mismatch": 0, "skipped": 1}
    assert results == []
    assert len(engine.asked) == (when == "in its replay")


@pytest.mark.parametrize(
    "params",
    [
        pytest.param(Params(temperature=0.7), id="sampled"),
        pytest.param(Params(n=2), id="several sequences"),
        pytest.param(Params(stop=["x"]), id="ended by the server"),
        pytest.param(SimpleNamespace(), id="pooling"),
    ],
)
def test_only_single_greedy_answers_are_drawn(params: Any) -> None:
    run = run_of(params)
    Canary(1.0, Replies([]), lambda _: None, Random(1)).consider(run)
    assert run.canary_tokens is None


@pytest.mark.parametrize(
    ("a", "b", "at"),
    [
        ([1, 2], [1, 2], None),
        ([1, 2], [1, 3], 1),
        ([1, 2], [1], 1),
        ([], [1], 0),
        ([], [], None),
    ],
)
def test_the_first_difference(a: list[int], b: list[int], at: int | None) -> None:
    assert find_difference(a, b) == at


def test_this_vllm_has_what_is_needed() -> None:
    assert find_missing() == []


def test_a_vllm_without_the_hook_is_served_without_drafts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "evenkeel_runtime.serve.speculation"):
        assert choose_flags(is_observed=False, find=lambda module, name: None) == ()
    assert len(caplog.records) == 1
    assert "custom_class" in caplog.text


OURS = "evenkeel_runtime.adapter.cpu_worker."


@pytest.mark.parametrize(
    ("speculative", "worker", "is_cpu", "is_v2", "chosen", "is_served"),
    [
        pytest.param({}, "auto", True, False, f"{OURS}ExactWorker", True, id="vLLM's own drafts"),
        pytest.param({}, f"{OURS}X", True, False, f"{OURS}X", True, id="ours"),
        pytest.param(None, "auto", True, False, "auto", False, id="no speculation"),
        pytest.param({}, "auto", False, False, "auto", False, id="a GPU"),
        pytest.param({}, "auto", True, True, "auto", False, id="the second model runner"),
        pytest.param(
            {}, "their.Worker", True, False, "their.Worker", False, id="a worker of theirs"
        ),
    ],
)
def test_who_serves_what_vllm_refuses(
    speculative: Any, worker: str, is_cpu: bool, is_v2: bool, chosen: str, is_served: bool
) -> None:
    class SamplingParams:
        def _validate_spec_decode(self, config: Any) -> None:
            raise ValueError("not yet supported")

    names = {"SamplingParams": SamplingParams, "VLLM_USE_V2_MODEL_RUNNER": is_v2 or None}
    args = argparse.Namespace(speculative_config=speculative, worker_cls=worker)
    assert verify_exactly(args, is_cpu, lambda _, name: names.get(name)) is is_served
    assert args.worker_cls == chosen
    if is_served:
        SamplingParams()._validate_spec_decode({})
    else:
        with pytest.raises(ValueError, match="not yet"):
            SamplingParams()._validate_spec_decode({})
