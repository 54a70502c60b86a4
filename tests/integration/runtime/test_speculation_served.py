"""`evenkeel serve --speculate auto`: drafts on spans and on `/metrics`, and the canary."""

import time
from typing import Any

import httpx
import pytest

from tests.fixtures.equipped_server import EquippedServer
from tests.fixtures.served_model import ServedModel

QUESTION = "How do I reset my password? I cannot find the page where that is done."
MAX_TOKENS = 64
CANARY = "evenkeel.speculation.canary"
CANARY_WAIT_S = 240.0
# Each first token burns, and nobody can be shed: the third step is that nothing is drafted.
ALWAYS_LATE = """
default_class = "late"
window_s = 1
min_bad = 1

[classes.late]
ttft_s = 0.0001
"""
# Served without drafts, and each with one possible answer.
SERVED_UNDRAFTED: list[dict[str, Any]] = [
    {"min_p": 1.0, "temperature": 1.5},
    {"logit_bias": {"18": 2.0}, "temperature": 0},
    {"seed": 3, "temperature": 1.0},
    {"seed": 3, "temperature": 1.5, "min_p": 0.3, "top_p": 0.9},
]


@pytest.fixture(scope="module")
def speculating(equipped: EquippedServer) -> ServedModel:
    for _ in range(6):
        for is_streamed in (False, True):
            ask(equipped.served, is_streamed)
    return equipped.served


def ask(served: ServedModel, is_streamed: bool = False, tenant: str = "speculating") -> Any:
    body = {
        "model": served.model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": MAX_TOKENS,
        "ignore_eos": True,
        "temperature": 0,
        "stream": is_streamed,
    }
    answer = httpx.post(
        f"{served.url}/v1/chat/completions",
        json=body,
        headers={"x-evenkeel-tenant": tenant},
        timeout=300,
    )
    assert answer.is_success, answer.text
    return answer.text if is_streamed else answer.json()


def labelled(served: ServedModel, name: str) -> dict[str, float]:
    """The values of one of the server's metrics, by their labels as written."""
    lines = httpx.get(f"{served.url}/metrics").text.splitlines()
    return {
        line.split("{")[1].split("}")[0]: float(line.split()[-1])
        for line in lines
        if line.startswith(name + "{")
    }


def test_a_request_says_what_the_drafts_of_each_source_came_to(speculating: ServedModel) -> None:
    spans = speculating.wait_for_requests(12, evenkeel__tenant="speculating")
    last = spans[-1].attributes
    drafted, accepted = last["evenkeel.drafted.retrieval"], last["evenkeel.accepted.retrieval"]
    assert isinstance(drafted, list)
    assert isinstance(accepted, list)
    assert sum(accepted) > 20
    assert drafted == sorted(drafted, reverse=True)
    of_sources = [
        sum(value)
        for name, value in last.items()
        if name.startswith("evenkeel.drafted.") and isinstance(value, list)
    ]
    assert last["evenkeel.drafted_tokens"] == sum(of_sources)
    # It was streamed: the steps say which emission held them.
    emitted, tried = last["evenkeel.emission_tokens"], last["evenkeel.emission_drafted"]
    assert isinstance(emitted, list)
    assert isinstance(tried, list)
    assert len(tried) == len(emitted)
    assert sum(tried) == last["evenkeel.drafted_tokens"]


def test_vllms_own_parameters_refuse_drafts_and_cannot_name_a_tenant(
    speculating: ServedModel,
) -> None:
    fraud = {"evenkeel_tenant": "speculating"}
    post(speculating, {"vllm_xargs": fraud, "temperature": 0, "ignore_eos": True}, "stranger")
    (stranger,) = speculating.wait_for_requests(1, evenkeel__tenant="stranger")
    assert "evenkeel.drafted.retrieval" not in stranger.attributes
    refusal = {"evenkeel_speculate": False} | fraud
    post(speculating, {"vllm_xargs": refusal, "temperature": 0, "ignore_eos": True}, "refuser")
    (refuser,) = speculating.wait_for_requests(1, evenkeel__tenant="refuser")
    assert not refuser.attributes.get("evenkeel.drafted_tokens")


def test_the_response_shows_no_trace_of_it(speculating: ServedModel) -> None:
    answer = ask(speculating)
    assert "evenkeel" not in str(answer)
    assert not answer.get("kv_transfer_params")


def test_metrics_count_drafts_and_show_the_store(speculating: ServedModel) -> None:
    accepted = labelled(speculating, "evenkeel_speculation_accepted_tokens_total")
    drafted = labelled(speculating, "evenkeel_speculation_drafted_tokens_total")
    assert drafted['source="retrieval"'] >= accepted['source="retrieval"'] > 100
    assert speculating.metric("evenkeel_speculation_errors_total") == 0
    assert speculating.metric("evenkeel_speculation_store_tokens") > 0
    assert labelled(speculating, "evenkeel_speculation_mean_drafted_tokens")['batch="1"'] > 0


def test_the_canary_finds_the_same_answers_without_drafts(speculating: ServedModel) -> None:
    deadline = time.monotonic() + CANARY_WAIT_S
    results: dict[str, float] = {}
    while time.monotonic() < deadline:
        results = labelled(speculating, "evenkeel_speculation_canary_total")
        if results['result="match"'] >= 4:
            break
        time.sleep(0.2)
    assert results['result="match"'] >= 4
    assert results['result="mismatch"'] == 0
    (event, *_) = speculating.receiver.wait_for(
        lambda s: s.name == CANARY and s.attributes["evenkeel.canary.tokens"] == MAX_TOKENS, 1
    )
    assert event.attributes["evenkeel.canary.result"] == "match"
    # A replay is nobody's request.
    ids = {s.attributes.get("evenkeel.request.id") for s in speculating.spans() if s.kind == 2}
    assert not any(str(i).startswith("canary-") for i in ids)


def test_control_takes_drafts_away_and_gives_them_back(
    speculating: ServedModel, equipped: EquippedServer
) -> None:
    drafts = "evenkeel_speculation_drafted_tokens_total"
    deadline = time.monotonic() + 240
    with equipped.controlled_by(ALWAYS_LATE):
        while equipped.control()["limits"]["draft_ratio"] > 0:
            assert time.monotonic() < deadline
            ask(speculating, is_streamed=True, tenant="late")
        drafted = speculating.metric(drafts)
        for _ in range(3):
            ask(speculating)
        assert speculating.metric(drafts) == drafted
    equipped.wait_for_control(level=0)
    # Of every few requests one goes without drafts, to compare.
    while speculating.metric(drafts) == drafted:
        assert time.monotonic() < deadline
        ask(speculating)


def test_another_tenant_is_not_drafted_from_these_answers(speculating: ServedModel) -> None:
    ask(speculating, tenant="newcomer")
    span = speculating.wait_for_request(evenkeel__tenant="newcomer").attributes
    assert "evenkeel.drafted.retrieval" not in span


@pytest.mark.parametrize("more", SERVED_UNDRAFTED, ids=lambda more: ", ".join(more))
def test_what_vllm_refuses_while_it_speculates_is_served(
    speculating: ServedModel, served_model: ServedModel, more: dict[str, Any]
) -> None:
    # One drafts by itself, the other with the demo's draft model.
    for served in (speculating, served_model):
        tenant = f"undrafted {sorted(more)}"
        answers = {post(served, more, tenant)["choices"][0]["message"]["content"] for _ in range(2)}
        span = served.wait_for_request(evenkeel__tenant=tenant).attributes
        assert not span.get("evenkeel.drafted_tokens")
        # Each of these leaves one answer possible.
        assert len(answers) == 1


def test_a_bias_has_its_effect(speculating: ServedModel) -> None:
    usual = post(speculating, {"temperature": 0}, "bias")
    token = usual["choices"][0]["logprobs"]["content"][0]["token"]
    other = post(
        speculating, {"temperature": 0, "logit_bias": {id_of(speculating, token): -100}}, "bias"
    )
    assert other["choices"][0]["logprobs"]["content"][0]["token"] != token


def id_of(served: ServedModel, token: str) -> str:
    body = {"model": served.model, "prompt": token, "add_special_tokens": False}
    (number,) = httpx.post(f"{served.url}/tokenize", json=body).json()["tokens"]
    return str(number)


def post(served: ServedModel, more: dict[str, Any], tenant: str) -> Any:
    body = {
        "model": served.model,
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": 32,
        "logprobs": True,
    }
    answer = httpx.post(
        f"{served.url}/v1/chat/completions",
        json=body | more,
        headers={"x-evenkeel-tenant": tenant},
        timeout=120,
    )
    assert answer.is_success, answer.text
    return answer.json()
