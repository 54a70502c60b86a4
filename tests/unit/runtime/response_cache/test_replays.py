"""Our own replays are nobody's requests, and no turns in a conversation."""

from types import SimpleNamespace
from typing import Any

from vllm.sampling_params import SamplingParams

from evenkeel_runtime.request.trace import HttpRequest
from evenkeel_runtime.response_cache.replays import EngineCall, make_pending
from evenkeel_runtime.wire.caller import Caller, TraceParent


def test_a_replay_is_in_no_session_and_no_trace() -> None:
    parent = TraceParent(b"t" * 16, b"s" * 8, 1)
    caller = Caller("acme", "s-1", "chat", "faq", "support", "3", parent, "a=1")
    run: Any = SimpleNamespace(request=HttpRequest("chat", caller))
    call = EngineCall(run, "prompt", SamplingParams(), "r-1", {})
    asked: Any = None
    replay = make_pending(SimpleNamespace(), call, asked, asked, 0.5)
    assert replay.caller == Caller("acme", None, "chat", "faq", "support", "3")
