"""The response cache in front of a real vLLM, its entries in a real Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.otlp_receiver import OtlpReceiver, ReceivedSpan
from tests.integration.redis_process import RedisProcess, run_redis
from tests.integration.served_model import ServedModel, long_answer, serve

pytestmark = pytest.mark.integration

POLICY = """
backend = "redis"
redis_url = "{url}"
redis_timeout_s = 10
shows_texts = true

[[routes]]
route = "serve"
mode = "serve"
similarities = [0.75]
draft_similarity = 0.6
wrong_hit_limit = 0.4
alpha = 0.3
replay_ratio = 1.0

[[routes]]
route = "draft"
mode = "draft"

[[routes]]
route = "shadow"
mode = "shadow"

[[routes]]
mode = "off"
"""
HEADER = "x-evenkeel-cache"
QUICK = """
[classes.quick]
ttft_s = 60
queue_deadline_s = 0.3

"""
# In other words, but of the same words of weight: the guards let each pair pass.
REWORDED = (
    ("Is there express shipping?", "Please tell me, is there any express shipping?"),
    ("Can you connect me with a real person?", "Could you connect me with some real person?"),
    ("Which ways to pay do you accept?", "What ways to pay do you accept?"),
    ("How long does standard shipping take?", "How long would the standard shipping take?"),
    ("How much is the Comet kettle?", "So how much is the Comet kettle?"),
)


@dataclass(frozen=True, slots=True)
class Cached:
    """A server with a cache, and what it said."""

    served: ServedModel
    redis: RedisProcess
    log: Path

    def ask(self, text: str, route: str, tenant: str, **more: Any) -> httpx.Response:
        response = self.post(text, route, tenant, **more)
        assert response.status_code == 200, response.text
        return response

    def post(
        self, text: str, route: str, tenant: str, slo_class: str = "patient", **more: Any
    ) -> httpx.Response:
        body = {
            "model": self.served.model,
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "max_tokens": 64,
        }
        headers = {
            "x-evenkeel-route": route,
            "x-evenkeel-tenant": tenant,
            "x-evenkeel-slo-class": slo_class,
        }
        url = f"{self.served.url}/v1/chat/completions"
        return httpx.post(url, json=body | more, headers=headers, timeout=60)

    def span(self, response: httpx.Response) -> ReceivedSpan:
        request_id = response.json()["id"]
        return self.served.wait_for_request(evenkeel__request__id=request_id)

    def status(self) -> dict[str, Any]:
        url = f"{self.served.url}/v1/evenkeel/cache"
        answer: dict[str, Any] = httpx.get(url).json()
        return answer

    def wait_for_control(self, **state: object) -> None:
        deadline = time.monotonic() + 20
        while not state.items() <= httpx.get(f"{self.served.url}/control").json().items():
            assert time.monotonic() < deadline, state
            time.sleep(0.05)

    def reload_control(self, text: str, capacity: int | None) -> None:
        (self.log.parent / "control.toml").write_text(text)
        self.wait_for_control(**({} if capacity is None else {"capacity": capacity}))

    def wait_until_stored(self, count: int) -> None:
        deadline = time.monotonic() + 20
        while self.status()["counts"]["stored"] < count:
            assert time.monotonic() < deadline, self.status()
            time.sleep(0.05)


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cached]:
    folder = tmp_path_factory.mktemp("cached")
    receiver = OtlpReceiver()
    try:
        with run_redis() as redis:
            policy = folder / "cache.toml"
            policy.write_text(POLICY.format(url=redis.url))
            compression = folder / "compression.toml"
            compression.write_text('routes = ["compress"]\nmin_tokens = 40\nkeep_turns = 1\n')
            flags = ("--cache", str(policy), "--compression", str(compression))
            flags += ("--speculate", "none")
            with serve(folder, receiver, *flags) as served:
                yield Cached(served, redis, folder / "serve.log")
    finally:
        receiver.stop()


def content(response: httpx.Response) -> str:
    text: str = response.json()["choices"][0]["message"]["content"]
    return text


def chunks(response: httpx.Response) -> list[dict[str, Any]]:
    lines = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def shape(value: Any) -> Any:
    """The keys and types of a JSON value."""
    if isinstance(value, dict):
        return {key: shape(part) for key, part in value.items()}
    if isinstance(value, list):
        return [shape(part) for part in value]
    return type(value).__name__


def ask_twice(cached: Cached, text: str, tenant: str, **more: Any) -> list[httpx.Response]:
    before = cached.status()["counts"]["stored"]
    first = cached.ask(text, "serve", tenant, **more)
    cached.wait_until_stored(before + 1)
    return [first, cached.ask(text, "serve", tenant, **more)]


def test_the_same_request_is_answered_in_vllms_own_form(cached: Cached) -> None:
    miss, hit = ask_twice(cached, "How do I return an item?", "exact")
    assert HEADER not in miss.headers
    assert hit.headers[HEADER] == "exact"
    assert content(hit) == content(miss)
    assert shape(hit.json()) == shape(miss.json())
    assert hit.json()["usage"] == miss.json()["usage"]
    assert hit.json()["id"] != miss.json()["id"]

    first, second = cached.span(miss), cached.span(hit)
    assert first.attributes["evenkeel.response_cache"] == "miss"
    seen = second.attributes
    assert seen["evenkeel.response_cache"] == "exact"
    assert seen["evenkeel.status"] == "ok"
    assert seen["evenkeel.cache.saved_tokens"] == miss.json()["usage"]["completion_tokens"]
    assert seen["evenkeel.cache.saved_s"] > 0
    assert 0 < seen["evenkeel.ttft_s"] < first.attributes["evenkeel.ttft_s"]
    # The engine did nothing.
    assert "gen_ai.usage.output_tokens" not in seen
    assert cached.served.children(second) == {}


def test_a_stream_is_answered_in_vllms_own_form(cached: Cached) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    miss, hit = ask_twice(cached, "How do I return an item, streamed?", "stream", **options)
    assert hit.headers[HEADER] == "exact" and HEADER not in miss.headers
    assert hit.headers["content-type"] == miss.headers["content-type"]
    made, kept = chunks(miss), chunks(hit)

    def text(parts: list[dict[str, Any]]) -> str:
        deltas = [c["delta"].get("content") or "" for part in parts for c in part["choices"]]
        return "".join(deltas)

    assert text(kept) == text(made)
    assert kept[-1]["usage"] == made[-1]["usage"]
    # Head, last part and usage are alike; in between there is no other form.
    for place in (0, -2, -1):
        assert shape(kept[place]) == shape(made[place])
    assert kept[-2]["choices"][0]["finish_reason"] == made[-2]["choices"][0]["finish_reason"]


def test_other_tenants_and_other_parameters_get_no_hit(cached: Cached) -> None:
    question = "Do you sell gift cards?"
    ask_twice(cached, question, "a")
    assert HEADER not in cached.ask(question, "serve", "b").headers
    assert HEADER not in cached.ask(question, "serve", "a", max_tokens=8).headers
    assert HEADER not in cached.ask(question, "serve", "a", temperature=0.7).headers
    assert HEADER in cached.ask(f"  {question}\r\n", "serve", "a").headers


@pytest.mark.parametrize(
    ("reason", "text", "more"),
    [
        ("about_asker", "Where is my order?", {}),
        ("personal_data", "Mail the price list to ann@example.org", {}),
        ("sampled", "Do you have lamps?", {"temperature": 0.7}),
        ("several_answers", "Do you have lamps?", {"n": 2, "temperature": 0, "seed": 1}),
        ("logprobs", "Do you have lamps?", {"logprobs": True}),
    ],
)
def test_what_is_none_for_the_cache_bypasses_it(
    cached: Cached, reason: str, text: str, more: dict[str, Any]
) -> None:
    if reason == "several_answers":
        more = more | {"temperature": 0.5}
    response = cached.ask(text, "serve", "bypass", **more)
    seen = cached.span(response).attributes
    assert seen["evenkeel.response_cache"] == "bypass"
    assert seen["evenkeel.cache.reason"] == reason


def test_near_hits_are_drafts_until_the_evidence_suffices(cached: Cached) -> None:
    served_as = []
    for known, reworded in REWORDED:
        before = cached.status()["counts"]["stored"]
        own = content(cached.ask(reworded, "off", "near"))
        assert HEADER not in cached.ask(known, "serve", "near").headers
        cached.wait_until_stored(before + 1)
        answer = cached.ask(reworded, "serve", "near")
        assert content(answer) == own
        served_as.append(cached.span(answer).attributes["evenkeel.response_cache"])
        assert answer.headers.get(HEADER) == ("semantic" if served_as[-1] == "semantic" else None)
    # Three right verdicts bound the rate below 0.4, at this alpha.
    assert served_as == ["draft"] * 3 + ["semantic"] * 2
    replay = cached.served.wait_for_requests(2, evenkeel__response_cache="replay")[0].attributes
    assert replay["evenkeel.slo_class"] == "cache-replay"
    assert replay["evenkeel.cache.verdict"] == "same"
    control = cached.status()["routes"]["serve"]
    assert control["serves_from"] == 0.75
    assert control["evidence"][0]["bound"] < control["limit"]
    changed = [s for s in cached.served.spans() if "evenkeel.cache.change" in s.attributes]
    assert len(changed) == 1 and "certified" in str(changed[0].attributes["evenkeel.cache.change"])
    log = [json.loads(line) for line in audit_log(cached).read_text().splitlines()]
    assert [e["after"] for e in log if e["event"] == "control"] == [0.75]


def audit_log(cached: Cached) -> Path:
    return cached.log.parent / "data" / "cache-audit.jsonl"


def test_a_near_miss_is_a_draft_and_never_an_answer(cached: Cached) -> None:
    before = cached.status()["counts"]["stored"]
    reset = "How can I reset the password of my account?"
    change = "How can I change the password of my account?"
    own = content(cached.ask(change, "off", "miss"))
    cached.ask(reset, "draft", "miss")
    cached.wait_until_stored(before + 1)
    answer = cached.ask(change, "draft", "miss")
    assert content(answer) == own
    assert HEADER not in answer.headers
    seen = cached.span(answer).attributes
    assert seen["evenkeel.response_cache"] == "draft"
    assert seen["evenkeel.cache.draft_tokens"] > 0
    assert seen["evenkeel.cache.reason"] == "contrast"
    near = cached.status()["near_misses"][-1]
    assert (near["question"], near["other"], near["was_same"]) == (change, reset, False)


def test_shadow_compares_and_serves_nothing(cached: Cached) -> None:
    before = cached.status()["counts"]["stored"]
    question = "Do you have a shop?"
    cached.ask(question, "shadow", "shadow")
    cached.wait_until_stored(before + 1)
    again = cached.ask(question, "shadow", "shadow")
    assert HEADER not in again.headers
    seen = cached.span(again).attributes
    assert seen["evenkeel.response_cache"] == "shadow"
    assert seen["evenkeel.cache.verdict"] == "same"
    assert seen["gen_ai.usage.output_tokens"] > 0


def test_a_persons_answers_are_deleted(cached: Cached) -> None:
    question, other = "Do you repair lamps?", "Do you sell spare parts?"
    ask_twice(cached, question, "gdpr", user="ann")
    ask_twice(cached, other, "gdpr", user="bob")
    url = f"{cached.served.url}/v1/evenkeel/cache"
    assert httpx.delete(url, params={"subject": "ann"}).status_code == 400
    person = {"tenant": "gdpr", "subject": "ann"}
    gone = httpx.delete(url, params=person)
    assert gone.json() == {"deleted": 1}
    assert HEADER not in cached.ask(question, "serve", "gdpr", user="ann").headers
    assert HEADER in cached.ask(other, "serve", "gdpr", user="bob").headers
    events = [json.loads(line) for line in audit_log(cached).read_text().splitlines()]
    assert [e["entries"] for e in events if e["event"] == "deleted"] == [1]
    assert "ann" not in audit_log(cached).read_text()


def test_a_long_history_is_shortened_and_a_dense_one_is_not(cached: Cached) -> None:
    story = "It was a grey evening and we sat by the fire with tea. " * 12
    facts = "My lamp 4471 must stand in Bern. " * 12
    for history, verdict in ((story, "sent"), (facts, "no_gain")):
        messages = [
            {"role": "user", "content": history},
            {"role": "user", "content": "Do you have a shop?"},
        ]
        short = cached.ask("", "compress", "short", messages=messages)
        whole = cached.ask("", "off", "short", messages=messages)
        seen = cached.span(short).attributes
        assert seen["evenkeel.compression.verdict"] == verdict
        saved = seen["evenkeel.compression.saved_tokens"]
        tokens = [answer.json()["usage"]["prompt_tokens"] for answer in (whole, short)]
        # Counted text by text: where two meet, the tokenizer may join differently.
        assert abs(tokens[0] - tokens[1] - saved) <= 12
        assert (saved > 100) == (verdict == "sent")


def test_a_hit_needs_no_place_in_the_engine(cached: Cached) -> None:
    question = "Do you sell umbrellas?"
    ask_twice(cached, question, "gate")
    control_file = cached.log.parent / "control.toml"
    before = control_file.read_text()
    busy = "max_active = 1\n" + before.replace("[classes.patient]", QUICK + "[classes.patient]")
    cached.reload_control(busy, capacity=1)
    try:
        with long_answer(cached.served, "busy"):
            cached.wait_for_control(inside=1)
            # Streamed or not, what the cache knows is answered, and what it does not is refused.
            for options in ({}, {"stream": True}):
                hit = cached.ask(question, "serve", "gate", slo_class="quick")
                assert hit.headers[HEADER] == "exact"
                asked = f"Do you sell garden gnomes? {len(options)}"
                refused = cached.post(asked, "serve", "gate", slo_class="quick", **options)
                assert refused.status_code == 503
                assert refused.json()["error"]["type"] == "queue_deadline"
                assert int(refused.headers["retry-after"]) >= 1
        seen = cached.served.wait_for_requests(2, evenkeel__status="shed")
        assert {span.attributes["error.type"] for span in seen} == {"queue_deadline"}
    finally:
        cached.reload_control(before, capacity=None)
    assert cached.served.metric("evenkeel_runtime_internal_errors_total") == 0


def test_metrics_say_what_was_saved(cached: Cached) -> None:
    lines = httpx.get(f"{cached.served.url}/metrics").text.splitlines()
    values = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[:1] != "#"
    }
    assert values['evenkeel_cache_requests_total{outcome="exact"}'] >= 4
    assert values['evenkeel_cache_saved_tokens_total{layer="exact"}'] > 0
    assert values['evenkeel_cache_saved_seconds_total{layer="exact"}'] > 0
    assert values['evenkeel_cache_serve_threshold{route="serve"}'] == 0.75
    assert values['evenkeel_cache_wrong_hit_limit{route="serve"}'] == 0.4
    assert values['evenkeel_cache_errors_total{kind="backend"}'] == 0


def test_without_redis_the_model_answers(cached: Cached) -> None:
    question = "How do I return an item?"
    assert HEADER in cached.ask(question, "serve", "exact").headers
    cached.redis.process.kill()
    cached.redis.process.wait()
    for _ in range(3):
        answer = cached.ask(question, "serve", "exact")
        assert HEADER not in answer.headers and content(answer)
    assert cached.log.read_text().count("the cache does not answer") == 1
    assert cached.served.metric("evenkeel_cache_errors_total") >= 3
