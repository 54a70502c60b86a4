"""Control's limits in vLLM's parameters."""

from types import SimpleNamespace
from typing import Any

import pytest
from vllm.config import ParallelConfig
from vllm.sampling_params import SamplingParams

from evenkeel.spans import Status
from evenkeel_runtime.adapter.request_limits import apply_limits, count_slots
from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.request.trace import EngineRun, HttpRequest, observe_run
from evenkeel_runtime.wire.caller import Caller
from tests.fixtures.control_files import control_of


@pytest.mark.parametrize(
    ("mode", "asked", "allowed"),
    [("act", 50, 20), ("act", 20, 20), ("act", 9, 9), ("dry-run", 50, 50)],
)
def test_a_run_knows_whether_its_answer_is_cut(mode: str, asked: int, allowed: int) -> None:
    text = f'mode = "{mode}"\n[tenant]\ncontext_tokens = 30'
    control = AdmissionControl(control_of(text), 4)
    request = HttpRequest("chat", Caller())
    request.visit = control.arrive(request.caller, 0)
    params = SamplingParams(max_tokens=asked)
    run = EngineRun("r", "m", params, request, False, 0, 0)
    apply_limits(control, run, {"prompt_token_ids": list(range(10))}, params, "")
    assert (params.max_tokens, run.is_cut) == (allowed, asked != allowed)


@pytest.mark.parametrize("num_before", [0, 1], ids=["its only one", "after another"])
def test_a_prompt_that_is_rendered_after_its_turn_is_checked(num_before: int) -> None:
    control = AdmissionControl(control_of("[tenant]\ncontext_tokens = 30"), 4)
    request = HttpRequest("chat", Caller())
    request.visit = control.arrive(request.caller, 0)
    control.enter(request.visit)
    for size in [10] * num_before + [30]:
        params = SamplingParams(max_tokens=5)
        run = EngineRun("r", "m", params, request, False, 0, 0)
        request.runs.append(run)
        prompt = {"prompt_token_ids": list(range(size))}
        if size == 10:
            apply_limits(control, run, prompt, params, "")
    with pytest.raises(ValueError, match="the prompt has 30 tokens"):
        apply_limits(control, run, prompt, params, "")
    seen = observe_run(run, 1, lambda *_: None)
    assert (seen.status, seen.error_type) == (Status.ERROR, "context_length")


def test_a_round_of_tools_is_not_refused_for_its_length() -> None:
    control = AdmissionControl(control_of("[tenant]\ncontext_tokens = 30"), 4)
    request = HttpRequest("chat", Caller())
    request.visit = control.arrive(request.caller, 0)
    control.enter(request.visit)
    for size in (20, 40):
        params = SamplingParams(max_tokens=5)
        run = EngineRun("r", "m", params, request, False, 0, 0)
        request.runs.append(run)
        apply_limits(control, run, {"prompt_token_ids": list(range(size))}, params, "")
        run.last_output = SimpleNamespace()
    assert not request.visit.is_refused


@pytest.mark.parametrize(
    ("parallel", "slots"),
    [
        pytest.param({}, 8, id="one engine"),
        pytest.param({"data_parallel_size": 4}, 32, id="engines on any machines"),
        pytest.param(
            {"data_parallel_size": 4, "data_parallel_size_local": 2, "local": "hybrid"},
            16,
            id="those of this machine",
        ),
        pytest.param({"data_parallel_size": 4, "local": "external"}, 8, id="a balancer in front"),
    ],
)
def test_the_places_are_those_of_all_engines_behind_the_server(
    parallel: dict[str, Any], slots: int
) -> None:
    known = ParallelConfig.local_engines_only
    flags = {f"data_parallel_{kind}_lb": False for kind in ("hybrid", "external")}
    flags |= {f"data_parallel_{parallel.pop('local', 'no')}_lb": True}
    config = SimpleNamespace(**{"data_parallel_size": 1, "data_parallel_size_local": 1}, **flags)
    for name, value in parallel.items():
        setattr(config, name, value)
    config.local_engines_only = known.fget(config)
    scheduler = SimpleNamespace(max_num_seqs=8)
    found = SimpleNamespace(scheduler_config=scheduler, parallel_config=config)
    assert count_slots(SimpleNamespace(vllm_config=found)) == slots


def test_an_engine_that_does_not_say_has_vllms_usual_places() -> None:
    assert count_slots(SimpleNamespace()) == 256
