"""Limits of context, drafts and KV cache on the real server, and what its prefix cache holds."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from tests.fixtures.equipped_server import EquippedServer
from tests.fixtures.served_model import ServedModel

LIMITS = """
default_class = "patient"

[classes.patient]
ttft_s = 60

[classes.hurried]
ttft_s = 60
queue_deadline_s = 0.2

[tenants.short]
context_tokens = 60

[tenants.greedy]
kv_share = 0.000001

[routes.plain]
draft_tokens = 0

[routes.brief]
draft_tokens = 1
"""


@contextmanager
def limited(served: ServedModel) -> Iterator[None]:
    """Have the limits in force while the block runs."""
    path = served.folder / "control.toml"
    before = path.read_text()
    path.write_text(LIMITS)
    try:
        wait_for(served, "tenant short")
        yield
    finally:
        path.write_text(before)
        deadline = time.monotonic() + 120
        while control(served)["owner_limits"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def control(served: ServedModel) -> dict[str, Any]:
    state: dict[str, Any] = httpx.get(f"{served.url}/control").json()
    return state


def wait_for(served: ServedModel, owner: str) -> None:
    deadline = time.monotonic() + 120
    while owner not in control(served)["owner_limits"]:
        assert time.monotonic() < deadline, control(served)
        time.sleep(0.05)


def ask(served: ServedModel, text: str, max_tokens: int | None = None, **names: str) -> Any:
    headers = {f"x-evenkeel-{name.replace('_', '-')}": value for name, value in names.items()}
    body = {
        "model": served.model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "ignore_eos": True,
        "max_tokens": max_tokens,
    }
    url = f"{served.url}/v1/chat/completions"
    return httpx.post(url, json=body, headers=headers, timeout=120)


def test_a_context_limit_refuses_long_prompts_and_ends_answers(served_model: ServedModel) -> None:
    with limited(served_model):
        refused = ask(served_model, "return an item " * 60, tenant="short")
        assert refused.status_code == 400, refused.text
        error = refused.json()["error"]
        assert error["type"] == "context_length" and "60 tokens" in error["message"]
        assert "retry-after" not in refused.headers
        served = ask(served_model, "How do I return an item?", tenant="short")
        assert served.status_code == 200, served.text
        assert served.json()["usage"]["total_tokens"] == 60
        assert served.json()["choices"][0]["finish_reason"] == "length"
        assert ask(served_model, "return an item " * 60, 2, tenant="long").status_code == 200
        completion = httpx.post(
            f"{served_model.url}/v1/completions",
            json={"model": served_model.model, "prompt": "return " * 100, "max_tokens": 1},
            headers={"x-evenkeel-tenant": "short"},
            timeout=120,
        )
        assert completion.status_code == 400, completion.text
    seen = served_model.wait_for_request(
        evenkeel__tenant="short", **{"error.type": "context_length"}
    )
    assert seen.attributes["evenkeel.status"] == "error"


LONG, SHORT = "return an item " * 60, "How do I return an item?"


@pytest.mark.parametrize(
    ("path", "fits", "exceeds"),
    [
        ("/v1/responses", {"input": SHORT}, {"input": LONG}),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": SHORT}], "max_tokens": 9},
            {"messages": [{"role": "user", "content": LONG}], "max_tokens": 9},
        ),
        (
            "/v1/chat/completions/batch",
            {"messages": [[{"role": "user", "content": SHORT}]] * 2},
            {"messages": [[{"role": "user", "content": text}] for text in (SHORT, LONG)]},
        ),
    ],
)
def test_a_context_limit_holds_for_prompts_rendered_after_their_turn(
    served_model: ServedModel, path: str, fits: dict[str, Any], exceeds: dict[str, Any]
) -> None:
    with limited(served_model):
        answers = [
            httpx.post(
                f"{served_model.url}{path}",
                json={"model": served_model.model, "temperature": 0} | body,
                headers={"x-evenkeel-tenant": "short"},
                timeout=120,
            )
            for body in (fits, exceeds)
        ]
    assert [answer.status_code for answer in answers] == [200, 400], answers[1].text
    assert "60 tokens" in answers[1].text


def test_a_background_response_is_refused(served_model: ServedModel) -> None:
    with limited(served_model):
        refused = httpx.post(
            f"{served_model.url}/v1/responses",
            json={"model": served_model.model, "input": SHORT, "background": True},
            timeout=120,
        )
    assert refused.status_code == 400, refused.text
    assert refused.json()["error"]["type"] == "background"


def test_a_tenant_over_its_kv_share_waits_for_its_own_requests_only(
    served_model: ServedModel,
) -> None:
    with limited(served_model), ThreadPoolExecutor(4) as pool:
        assert control(served_model)["kv_cache"]["num_tokens"] > 0
        num_served = 0
        # On a busy machine, a request may be over before the next one has waited for 0.2 s.
        for _ in range(10):
            first = pool.submit(ask, served_model, "Tell me everything.", 400, tenant="greedy")
            while not control(served_model)["kv_cache"]["held"] and not first.done():
                pass
            refused = ask(served_model, "And more?", 400, tenant="greedy", slo_class="hurried")
            waiting = pool.submit(ask, served_model, "And then?", 5, tenant="greedy")
            assert ask(served_model, "Hello?", 2, tenant="modest").status_code == 200
            assert first.result().status_code == waiting.result().status_code == 200
            num_served += 2 + (refused.status_code == 200)
            if refused.status_code == 429:
                break
        assert refused.status_code == 429, refused.text
        assert refused.json()["error"]["type"] == "kv_share"
        assert control(served_model)["kv_cache"] == {
            "num_tokens": control(served_model)["kv_cache"]["num_tokens"],
            "held": {},
            "waiting": 0,
        }
    wanted = {"evenkeel__tenant": "greedy", "evenkeel__status": "ok"}
    served = served_model.wait_for_requests(num_served, **wanted)
    starts = sorted(s.start_ns + int(s.attributes["evenkeel.ttft_s"] * 1e9) for s in served)
    ends = sorted(span.end_ns for span in served)
    # None had its first token before the one before it was over.
    assert all(end < start for end, start in zip(ends, starts[1:], strict=False))


@pytest.mark.parametrize("server", ["the draft model", "our drafts"])
def test_drafts_are_off_or_short_as_the_route_says(
    server: str, served_model: ServedModel, equipped: EquippedServer
) -> None:
    served = served_model if server == "the draft model" else equipped.served
    text = "How do I return an item that I bought?"

    def longest_draft(route: str) -> int:
        answer = ask(served, text, 48, route=route, tenant=f"drafts of {route}")
        assert answer.status_code == 200, answer.text
        seen = served.wait_for_request(evenkeel__request__id=answer.json()["id"])
        by_position = seen.attributes.get("evenkeel.drafted_by_position", ())
        return sum(count > 0 for count in by_position)

    deadline = time.monotonic() + 240
    with limited(served):
        # Of every few requests one goes without drafts, to compare, and whether drafts pay off for
        # the others depends on how long steps take.
        while longest_draft("free") < 2:
            assert time.monotonic() < deadline
        while (longest := longest_draft("brief")) == 0:
            assert time.monotonic() < deadline
        assert longest == 1
        assert [longest_draft("plain") for _ in range(2)] == [0, 0]


def test_what_the_prefix_cache_holds_is_estimated_as_the_engine_then_says(
    served_model: ServedModel,
) -> None:
    kinds = ("total", "cached", "estimated_cached")

    def read() -> list[float]:
        name = "evenkeel_control_prompt_tokens_total"
        lines = httpx.get(f"{served_model.url}/metrics").text.splitlines()
        values = dict(line.rsplit(" ", 1) for line in lines if line.startswith(name))
        return [float(values[f'{name}{{kind="{kind}"}}']) for kind in kinds]

    before = read()
    text = "I would like to return the blue kettle that I ordered last week. " * 30
    for number in range(6):
        assert ask(served_model, f"{text} Attempt {number}.", 2).status_code == 200
    total, cached, estimated = (now - then for now, then in zip(read(), before, strict=True))
    assert cached > 0.5 * total
    assert estimated == pytest.approx(cached, abs=0.01 * total)
