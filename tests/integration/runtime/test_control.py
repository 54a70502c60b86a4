"""Control on the real server: what it does under burn, recovery, quotas, and their records."""

import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from evenkeel.spans import CONTROL_LEVER, SPAN_CONTROL
from tests.fixtures.served_model import ServedModel


def ask(served: ServedModel, **headers: str) -> httpx.Response:
    body = {
        "model": served.model,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 2,
        "stream": True,
    }
    url = f"{served.url}/v1/chat/completions"
    named = {f"x-evenkeel-{name.replace('_', '-')}": value for name, value in headers.items()}
    return httpx.post(url, json=body, headers=named, timeout=120)


def level(served: ServedModel) -> int:
    return int(httpx.get(f"{served.url}/control").json()["level"])


def test_a_burning_class_has_the_engine_limited_until_it_is_calm_and_nobody_shed(
    served_model: ServedModel,
) -> None:
    deadline = time.monotonic() + 240
    # Several at a time: on a slow machine, too, enough of them are late in one window.
    with ThreadPoolExecutor(6) as pool:
        while level(served_model) == 0:
            assert time.monotonic() < deadline
            asked = [pool.submit(ask, served_model, slo_class="instant") for _ in range(12)]
            assert {answer.result().status_code for answer in asked} == {200}
    assert ask(served_model, slo_class="batch").status_code == 200
    assert ask(served_model, slo_class="instant").status_code == 200
    while level(served_model) > 0:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    while not any(
        span.name == SPAN_CONTROL and span.attributes[CONTROL_LEVER] == "prefill_chunk"
        for span in served_model.spans()
    ):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_tenant_beyond_its_quota_is_told_when_to_come_back(served_model: ServedModel) -> None:
    began_s, num_served = time.monotonic(), 0
    while (refused := ask(served_model, tenant="limited")).status_code == 200:
        num_served += 1
        assert num_served < 20
    # Two a minute: on a slow machine, half a minute may pass meanwhile.
    assert 2 <= num_served <= 2 + (time.monotonic() - began_s) / 30
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert ask(served_model, tenant="another").status_code == 200
    seen = served_model.wait_for_request(evenkeel__tenant="limited", evenkeel__status="shed")
    assert seen.attributes["error.type"] == "quota"


def test_an_unknown_class_is_served_and_counted(served_model: ServedModel) -> None:
    before = served_model.metric("evenkeel_control_unknown_classes_total")
    assert ask(served_model, slo_class="urgent").status_code == 200
    assert ask(served_model, slo_class="urgent").status_code == 200
    assert served_model.metric("evenkeel_control_unknown_classes_total") == before + 2
    said = (served_model.folder / "serve.log").read_text(errors="replace")
    assert said.count("class=urgent") == 1
