"""The probe, against vLLMs that lack something, and the reading of vLLM's objects."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel_runtime.adapter.vllm import Probe, make_reader, probe, read_engine, read_setup
from evenkeel_runtime.request.trace import EngineRun
from evenkeel_runtime.wire.frames import EngineSetup
from evenkeel_runtime.wire.observation import MAX_ANSWER_TOKENS, Observation


def run(**fields: Any) -> EngineRun:
    return EngineRun("r", "m", None, None, fields.pop("is_streamed", True), 0, 0, **fields)


def output(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(
        **{"prompt_token_ids": [1, 2, 3], "num_cached_tokens": 2, "metrics": None} | fields
    )


def times(tokens: int, *moments_s: float) -> SimpleNamespace:
    names = ("scheduled_ts", "first_token_ts", "last_token_ts")
    return SimpleNamespace(num_generation_tokens=tokens, **dict(zip(names, moments_s, strict=True)))


def test_how_the_engine_computes_is_read_as_far_as_its_vllm_says() -> None:
    config = SimpleNamespace(
        model_config=SimpleNamespace(dtype="torch.bfloat16"),
        cache_config=SimpleNamespace(cache_dtype="fp8"),
        parallel_config=SimpleNamespace(tensor_parallel_size=2, pipeline_parallel_size=1),
    )
    engine = SimpleNamespace(vllm_config=config)
    assert read_setup(engine) == EngineSetup("bfloat16", "fp8", 2, 1)
    assert read_setup(SimpleNamespace()) == EngineSetup()


def lacking(name: str) -> Callable[[str, str], Any]:
    """Finds a vLLM in which `name` is gone and everything else is as it should be."""

    def takes_all(
        args: Any,
        engine_client: Any,
        listen_address: Any,
        sock: Any,
        reuse_port: Any,
        prompt: Any,
        sampling_params: Any,
        request_id: Any,
        outputs: Any,
        prompt_token_ids: Any,
        metrics: Any,
        num_cached_tokens: Any,
        log_stats: Any,
        **uvicorn_kwargs: Any,
    ) -> None: ...

    class HasAll:
        DELTA = 1
        index: int
        token_ids: int
        finish_reason: int
        output_kind: int
        spec_decode_metrics: int
        scheduled_ts: int
        first_token_ts: int
        last_token_ts: int
        num_generation_tokens: int
        per_step_drafted: int
        per_step_accepted: int
        generate = staticmethod(takes_all)

    functions = ("build_", "setup_", "RequestOutput", "OutputProcessor")

    def find(module: str, wanted: str) -> Any:
        if wanted == name:
            return None
        is_function = wanted.startswith(functions) and wanted != "RequestOutputKind"
        return takes_all if is_function else HasAll

    return find


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("nothing", Probe(), id="a vLLM as we know it"),
        pytest.param("build_and_serve", Probe(("build_and_serve",)), id="another way to serve"),
        pytest.param("EngineClient", Probe(("EngineClient.generate",)), id="another engine"),
        pytest.param(
            "RequestStateStats",
            Probe((), ("queue, prefill", "tokens wasted after an abort")),
            id="no times of a request",
        ),
        pytest.param(
            "RequestSpecDecodeMetrics",
            Probe((), ("drafted and accepted tokens",)),
            id="no drafts of a request",
        ),
    ],
)
def test_the_probe_names_what_a_vllm_lacks(name: str, expected: Probe) -> None:
    found = probe(lacking(name))
    assert found == expected
    assert found.can_observe is (not expected.missing_for_hook)


def read(of: EngineRun) -> Observation:
    seen = Observation(request_id="r", model="m", arrival_unix_ns=0, arrival_ns=0, end_ns=1)
    read_engine(of, seen)
    return seen


def test_facts_of_a_stream() -> None:
    facts = read(run(last_output=output(metrics=times(3, 1.5, 2.0, 2.5)), emission_tokens=[1, 2]))
    assert (facts.input_tokens, facts.output_tokens, facts.cached_tokens) == (3, 3, 2)
    assert (facts.scheduled_ns, facts.first_token_ns) == (1_500_000_000, 2_000_000_000)


def test_a_time_that_has_not_come_is_none() -> None:
    facts = read(run(engine_times=[times(0, 1.0, 0.0, 0.0)]))
    assert (facts.scheduled_ns, facts.first_token_ns, facts.output_tokens) == (
        1_000_000_000,
        None,
        0,
    )


def test_tokens_made_after_the_last_output_count_for_an_aborted_stream() -> None:
    facts = read(
        run(last_output=output(), emission_tokens=[1, 1], engine_times=[times(5, 1.0, 1.0, 2.0)])
    )
    assert facts.output_tokens == 5


def test_statistics_may_be_switched_off() -> None:
    facts = read(run(last_output=output(), is_streamed=False, num_final_tokens=4))
    assert (facts.output_tokens, facts.scheduled_ns) == (4, None)


def test_the_times_of_requests_with_one_id_are_told_apart() -> None:
    """Clients may choose an id; the sequences of one request have one parent."""
    parent = SimpleNamespace(request_id="r-parent")
    states = {
        name: SimpleNamespace(stats=times(tokens, 1.0, 1.0, 2.0), parent_req=of)
        for name, tokens, of in (("r-a", 1, None), ("0_r-b", 2, parent), ("1_r-b", 3, parent))
    }
    processor = SimpleNamespace(
        external_req_ids={"r": [*states, "r-gone"], "other": []}, request_states=states
    )
    engine = SimpleNamespace(output_processor=processor)
    reader = make_reader(lambda: engine, strips_speculation=False)
    found = [[t.num_generation_tokens for t in each] for each in reader.find_times("r")]
    assert found == [[1], [2, 3]]
    assert reader.find_times("unknown") == []


def read_outputs(one: EngineRun, *outputs: list[int]) -> None:
    reader = make_reader(lambda: None, strips_speculation=False)
    for tokens in outputs:
        completion = SimpleNamespace(token_ids=tokens, finish_reason=None, index=0)
        reader.record_output(one, output(outputs=[completion]))


def test_the_tokens_of_an_answer_are_kept_in_order() -> None:
    one = run()
    read_outputs(one, *([number] for number in range(600)), [600, 601])
    assert len(one.answer) == 512
    assert list(one.pack_answer()) == list(range(602))


def test_a_long_answer_keeps_its_start() -> None:
    one = run()
    read_outputs(one, *([7] * 1000 for _ in range(1000)))
    assert MAX_ANSWER_TOKENS <= len(one.answer) < MAX_ANSWER_TOKENS + 256_000
    assert len(one.kept) == 0
