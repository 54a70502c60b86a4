"""Our own replays are nobody's requests, and no turns in a conversation."""

from types import SimpleNamespace
from typing import Any

from vllm.sampling_params import SamplingParams

from evenkeel_runtime.request.trace import HttpRequest
from evenkeel_runtime.response_cache.replays import EngineCall, make_pending
from evenkeel_runtime.response_cache.vllm_outputs import make_replay_options
from evenkeel_runtime.wire.caller import Caller, TraceParent


def test_a_replay_is_in_no_session_and_no_trace() -> None:
    parent = TraceParent(b"t" * 16, b"s" * 8, 1)
    caller = Caller("acme", "s-1", "chat", "faq", "support", "3", parent, "a=1")
    run: Any = SimpleNamespace(request=HttpRequest("chat", caller))
    call = EngineCall(run, "prompt", SamplingParams(), "r-1", {})
    asked: Any = None
    replay = make_pending(SimpleNamespace(), call, asked, asked, 0.5)
    assert replay.caller == Caller("acme", None, "chat", "faq", "support", "3")


def test_a_replay_goes_after_every_client_whatever_its_priority() -> None:
    scheduler = SimpleNamespace(policy="priority")
    engine = SimpleNamespace(vllm_config=SimpleNamespace(scheduler_config=scheduler))
    a_month_up_ms = 30 * 86_400_000
    options, is_last = make_replay_options(engine, {"priority": a_month_up_ms})
    assert is_last
    assert a_month_up_ms < options["priority"] < 1 << 63
