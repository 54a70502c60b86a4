"""What is recorded of the answers themselves, and seen of requests that hang, with a real vLLM."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import psutil
import pytest

from tests.fixtures.served_model import ServedModel, long_answer

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": PARAMETERS}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "f", arguments: {a}}\n</tool_call>'


def ask(
    served: ServedModel, client: httpx.Client, tenant: str, **more: Any
) -> tuple[dict[str, Any], str]:
    """Return the attributes of a chat's span, and what the client got."""
    body = {
        "model": served.model,
        "messages": [{"role": "user", "content": "How do I reset my password?"}],
        "max_tokens": 80,
        "temperature": 0,
    }
    response = client.post("/v1/chat/completions", json=body | more)
    assert response.status_code == 200, response.text
    return served.wait_for_request(evenkeel__tenant=tenant).attributes, response.text


@pytest.mark.parametrize("is_streamed", [False, True], ids=["at once", "streamed"])
def test_a_loop_repeats_and_an_answer_hardly_does(
    served_model: ServedModel, client: httpx.Client, tenant: str, is_streamed: bool
) -> None:
    seen, _ = ask(served_model, client, tenant, stream=is_streamed)
    assert seen["evenkeel.repeated_share"] < 0.2
    assert 0 < seen["evenkeel.visible_tokens"] <= seen["gen_ai.usage.output_tokens"]
    assert seen["evenkeel.visible_ttft_s"] == seen["evenkeel.ttft_s"]
    assert "gen_ai.usage.reasoning.output_tokens" not in seen
    assert "evenkeel.tool_calls_failed" not in seen

    client.headers["x-evenkeel-tenant"] = f"{tenant}-loop"
    loop = {"regex": "(no ){60}"}
    seen, _ = ask(
        served_model, client, f"{tenant}-loop", stream=is_streamed, structured_outputs=loop
    )
    assert seen["evenkeel.repeated_share"] > 0.7


def test_an_answer_of_blanks_is_empty(
    served_model: ServedModel, client: httpx.Client, tenant: str
) -> None:
    seen, _ = ask(served_model, client, tenant, structured_outputs={"regex": " {3}"})
    assert seen["evenkeel.visible_tokens"] == 0
    assert "evenkeel.visible_ttft_s" not in seen


# vLLM logs a traceback for a broken call that is not streamed, which the fixture takes for an
# error of ours; tests/unit/runtime/adapter/test_answer_parser.py has those.
@pytest.mark.parametrize(
    ("text", "is_streamed", "failed"),
    [
        pytest.param(CALL, False, 0, id="parsed"),
        pytest.param(CALL, True, 0, id="parsed in a stream"),
        pytest.param(BROKEN, True, 1, id="no JSON"),
    ],
)
def test_tool_calls_that_did_not_parse_are_counted(
    served_model: ServedModel,
    client: httpx.Client,
    tenant: str,
    text: str,
    is_streamed: bool,
    failed: int,
) -> None:
    seen, said = ask(
        served_model,
        client,
        tenant,
        tools=[TOOL],
        stream=is_streamed,
        structured_outputs={"choice": [text]},
    )
    assert seen["evenkeel.tool_calls_failed"] == failed
    assert seen["evenkeel.status"] == "ok"
    assert "error" not in said


@contextmanager
def frozen_engine(served: ServedModel) -> Iterator[None]:
    """Stop the engine's process for the duration of the block, as a hanging device would."""
    children = psutil.Process(served.process.pid).children(recursive=True)
    (engine,) = [child for child in children if "EngineCore" in " ".join(child.cmdline())]
    os.kill(engine.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(engine.pid, signal.SIGCONT)


def wait_until_some(read: Any) -> float:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if value := read():
            return float(value)
        time.sleep(0.1)
    raise AssertionError("not seen")


@pytest.mark.parametrize("is_streamed", [False, True], ids=["at once", "streamed"])
def test_a_request_that_hangs_is_seen_before_it_ends(
    served_model: ServedModel, tenant: str, is_streamed: bool
) -> None:
    name, waits = "evenkeel_runtime_stalled_requests", 'waits_for="next_token"'
    with long_answer(served_model, tenant, is_streamed):
        in_flight = "evenkeel_runtime_requests_in_flight"
        wait_until_some(lambda: served_model.metric(in_flight) == 1)
        with frozen_engine(served_model):
            assert wait_until_some(lambda: served_model.metric(name, waits)) == 1
            assert served_model.metric("evenkeel_runtime_longest_wait_seconds", waits) > 1
            if is_streamed:
                found = served_model.receiver.gauges
                wait_until_some(lambda: found.get((name, "next_token", served_model.model)))
    served_model.wait_for_request(evenkeel__tenant=tenant)
    wait_until_some(lambda: served_model.metric(name) == 0)
