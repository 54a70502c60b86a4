"""Control on the real server: shedding under burn, recovery, quotas, and their records."""

from __future__ import annotations

import json
import time
import uuid

import httpx
import pytest

from evenkeel.spans import CONTROL_LEVER, SPAN_CONTROL
from tests.integration.served_model import ServedModel

pytestmark = pytest.mark.integration


def ask(served: ServedModel, **headers: str) -> httpx.Response:
    body = {
        "model": served.model,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 2,
        "stream": True,
    }
    url = f"{served.url}/v1/chat/completions"
    named = {f"x-evenkeel-{name.replace('_', '-')}": value for name, value in headers.items()}
    return httpx.post(url, json=body, headers=named, timeout=60)


def level(served: ServedModel) -> int:
    return int(httpx.get(f"{served.url}/control").json()["level"])


def test_a_burning_class_has_the_lowest_one_shed_until_it_is_calm(
    served_model: ServedModel,
) -> None:
    tenant = f"tenant-{uuid.uuid4().hex[:8]}"
    deadline = time.monotonic() + 30
    while level(served_model) == 0:
        assert time.monotonic() < deadline
        assert ask(served_model, slo_class="instant").status_code == 200
    refused = ask(served_model, slo_class="batch", tenant=tenant)
    assert refused.status_code == 503
    assert int(refused.headers["retry-after"]) >= 1
    assert json.loads(refused.text)["error"]["type"] == "shed"
    assert ask(served_model, slo_class="instant").status_code == 200

    seen = served_model.wait_for_request(evenkeel__tenant=tenant).attributes
    assert seen["evenkeel.status"] == "shed"
    assert seen["error.type"] == "shed"

    while level(served_model) > 0:
        assert time.monotonic() < deadline + 30
        time.sleep(0.1)
    assert ask(served_model, slo_class="batch").status_code == 200
    while not any(
        span.name == SPAN_CONTROL and span.attributes[CONTROL_LEVER] == "shed"
        for span in served_model.spans()
    ):
        assert time.monotonic() < deadline + 60
        time.sleep(0.1)


def test_a_tenant_beyond_its_quota_is_told_when_to_come_back(served_model: ServedModel) -> None:
    statuses = [ask(served_model, tenant="limited").status_code for _ in range(2)]
    refused = ask(served_model, tenant="limited")
    assert statuses == [200, 200]
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 30
    assert ask(served_model, tenant="another").status_code == 200


def test_an_unknown_class_is_served_and_counted(served_model: ServedModel) -> None:
    before = served_model.metric("evenkeel_control_unknown_classes_total")
    assert ask(served_model, slo_class="urgent").status_code == 200
    assert ask(served_model, slo_class="urgent").status_code == 200
    assert served_model.metric("evenkeel_control_unknown_classes_total") == before + 2
    said = (served_model.folder / "serve.log").read_text(errors="replace")
    assert said.count("class=urgent") == 1
