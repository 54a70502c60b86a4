"""A request that bypasses the cache is counted once, however many runs it has in the engine."""

import json
from typing import Any

import pytest
from vllm.sampling_params import SamplingParams

from evenkeel_runtime.request.trace import CURRENT_REQUEST, HttpRequest
from evenkeel_runtime.response_cache.settings_file import HitMode
from evenkeel_runtime.wire.caller import Caller
from tests.unit.runtime.response_cache.test_slow_embedding import ASKED, Server, SlowEncoder

BEAMS = [f"chatcmpl-1-{step}-beam-{beam}" for step in range(4) for beam in range(2)]


@pytest.mark.parametrize(
    ("path", "ids", "expected"),
    [
        ("/v1/chat/completions", BEAMS, {"not_text": 1}),
        ("/v1/completions", BEAMS, {"not_chat": 1}),
        # Two prompts, each with its own beam search, and two without one.
        ("/v1/completions", ["cmpl-1-0-0-beam-0", "cmpl-1-1-0-beam-0"], {"not_chat": 2}),
        ("/v1/completions", ["cmpl-1-0", "cmpl-1-1"], {"not_chat": 2}),
    ],
)
async def test_a_beam_search_is_one_bypass(
    path: str, ids: list[str], expected: dict[str, int]
) -> None:
    server = Server(HitMode.SERVE, SlowEncoder(), 10)
    params = SamplingParams(max_tokens=1, detokenize="beam" not in ids[0])
    request = HttpRequest("chat", Caller(), path=path)
    body = {"messages": [{"role": "user", "content": ASKED}], "use_beam_search": True}
    request.body += json.dumps(body).encode()
    prompt: Any = {"type": "token", "prompt_token_ids": [1], "prompt": ASKED}
    CURRENT_REQUEST.set(request)
    for request_id in ids:
        run = server.hook.start_run(request_id, params)
        outputs = server.engine.answer(run, prompt, params, request_id, {})
        async for _ in server.hook.observe(run, outputs):
            pass
        assert run.response_cache == "bypass"
    counts = server.cache.counts
    assert counts.bypasses == expected
    assert counts.outcomes == {"bypass": sum(expected.values())}
    await server.cache.close()
