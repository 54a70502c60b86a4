"""Control's limits in vLLM's parameters."""

from __future__ import annotations

import pytest
from vllm.sampling_params import SamplingParams

from evenkeel_runtime.adapter.request_limits import apply_limits
from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.config import parse_control
from evenkeel_runtime.request.trace import EngineRun, HttpRequest
from evenkeel_runtime.wire.caller import Caller


@pytest.mark.parametrize(
    ("mode", "asked", "allowed"),
    [("act", 50, 20), ("act", 20, 20), ("act", 9, 9), ("dry-run", 50, 50)],
)
def test_a_run_knows_whether_its_answer_is_cut(mode: str, asked: int, allowed: int) -> None:
    text = f'mode = "{mode}"\n[tenant]\ncontext_tokens = 30'
    control = AdmissionControl(parse_control(text, "test"), 4)
    request = HttpRequest("chat", Caller())
    request.visit = control.arrive(request.caller, 0)
    params = SamplingParams(max_tokens=asked)
    run = EngineRun("r", "m", params, request, False, 0, 0)
    apply_limits(control, run, {"prompt_token_ids": list(range(10))}, params, "")
    assert (params.max_tokens, run.is_cut) == (allowed, asked != allowed)
