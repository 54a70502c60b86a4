"""The response cache in front of a real vLLM, its entries in a real Redis."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
from vllm.sampling_params import RequestOutputKind, SamplingParams

from evenkeel.errors import CannotMeasureError
from evenkeel_evals.production.dial_targets import put_into_shadow
from evenkeel_runtime.response_cache.vllm_outputs import read_sampling
from evenkeel_runtime.wire.observation import LEAST_HOLD_S
from tests.fixtures.collector_process import wait_for
from tests.fixtures.equipped_server import CACHE_HEADER, EquippedServer
from tests.fixtures.served_model import long_answer

# Room for one; who is in a hurry is refused soon.
ONE_PLACE = """
default_class = "patient"
max_active = 1

[classes.patient]
ttft_s = 60

[classes.quick]
ttft_s = 60
queue_deadline_s = 0.3
"""
# Whose turn does not come at once is shed, where others wait before it.
HASTY_LAST = (
    ONE_PLACE
    + """
[classes.hasty]
ttft_s = 120
queue_deadline_s = 0.01
"""
)
# At once, if the gate foresees that the deadline passes; else when it has passed.
REFUSED = {"shed", "queue_deadline"}
# Turns after which the gate knows its pace, and more.
NUM_TURNS = 24
# In other words, but of the same words of weight: the guards let each pair pass.
REWORDED = (
    ("Is there express shipping?", "Please tell me, is there any express shipping?"),
    ("Can you connect me with a real person?", "Could you connect me with some real person?"),
    ("Which ways to pay do you accept?", "What ways to pay do you accept?"),
    ("How long does standard shipping take?", "How long would the standard shipping take?"),
    ("How much is the Comet kettle?", "So how much is the Comet kettle?"),
)


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


def ask_twice(
    equipped: EquippedServer, text: str, tenant: str, **more: Any
) -> list[httpx.Response]:
    answers = [equipped.ask(text, "serve", tenant, **more)]

    def is_kept() -> bool:
        # By the answer: those of earlier tests may be stored meanwhile, so a count says nothing.
        answers[1:] = [equipped.ask(text, "serve", tenant, **more)]
        return CACHE_HEADER in answers[1].headers

    wait_for(is_kept)
    return answers


def test_the_same_request_is_answered_in_vllms_own_form(equipped: EquippedServer) -> None:
    miss, hit = ask_twice(equipped, "How do I return an item?", "exact")
    assert CACHE_HEADER not in miss.headers
    assert hit.headers[CACHE_HEADER] == "exact"
    assert content(hit) == content(miss)
    assert shape(hit.json()) == shape(miss.json())
    assert hit.json()["usage"] == miss.json()["usage"]
    assert hit.json()["id"] != miss.json()["id"]

    first, second = equipped.span(miss), equipped.span(hit)
    assert first.attributes["evenkeel.response_cache"] == "miss"
    assert first.attributes["evenkeel.ledger.ttft.host.cache"] > 0
    seen = second.attributes
    assert seen["evenkeel.response_cache"] == "exact"
    assert seen["evenkeel.status"] == "ok"
    assert seen["evenkeel.cache.saved_tokens"] == miss.json()["usage"]["completion_tokens"]
    assert seen["evenkeel.cache.saved_s"] > 0
    assert seen["evenkeel.ttft_s"] > 0
    # The engine was not asked: nothing was queued, computed or decoded, and no time went there.
    assert "gen_ai.usage.output_tokens" not in seen
    assert equipped.served.children(second).keys() <= {"evenkeel.compression", "evenkeel.cache"}
    assert not [key for key in seen if "ledger" in key and ("prefill" in key or "decode" in key)]
    assert [key for key in first.attributes if "ledger.ttft.prefill" in key]


def test_a_stream_is_answered_in_vllms_own_form(equipped: EquippedServer) -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    miss, hit = ask_twice(equipped, "How do I return an item, streamed?", "stream", **options)
    assert hit.headers[CACHE_HEADER] == "exact" and CACHE_HEADER not in miss.headers
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


def test_other_tenants_and_other_parameters_get_no_hit(equipped: EquippedServer) -> None:
    question = "Do you sell gift cards?"
    ask_twice(equipped, question, "a")
    assert CACHE_HEADER not in equipped.ask(question, "serve", "b").headers
    assert CACHE_HEADER not in equipped.ask(question, "serve", "a", max_tokens=8).headers
    assert CACHE_HEADER not in equipped.ask(question, "serve", "a", temperature=0.7).headers
    assert CACHE_HEADER in equipped.ask(f"  {question}\r\n", "serve", "a").headers


@pytest.mark.parametrize(
    ("reason", "text", "more"),
    [
        ("about_asker", "Where is my order?", {}),
        ("personal_data", "Mail the price list to ann@example.org", {}),
        ("sampled", "Do you have lamps?", {"temperature": 0.7}),
        ("several_answers", "Do you have lamps?", {"n": 2, "temperature": 0, "seed": 1}),
    ],
)
def test_what_is_none_for_the_cache_bypasses_it(
    equipped: EquippedServer, reason: str, text: str, more: dict[str, Any]
) -> None:
    if reason == "several_answers":
        more = more | {"temperature": 0.5}
    response = equipped.ask(text, "serve", "bypass", **more)
    seen = equipped.span(response).attributes
    assert seen["evenkeel.response_cache"] == "bypass"
    assert seen["evenkeel.cache.reason"] == reason


def test_near_hits_are_verified_until_the_evidence_suffices(equipped: EquippedServer) -> None:
    served_as = []
    for known, reworded in REWORDED:
        own = content(equipped.ask(reworded, "off", "near"))
        miss, _ = ask_twice(equipped, known, "near")
        assert CACHE_HEADER not in miss.headers
        answer = equipped.ask(reworded, "serve", "near")
        assert content(answer) == own
        served_as.append(equipped.span(answer).attributes["evenkeel.response_cache"])
        assert answer.headers.get(CACHE_HEADER) == (
            "semantic" if served_as[-1] == "semantic" else None
        )
    # Three right verdicts bound the rate below 0.4, at this alpha.
    assert served_as == ["verified"] * 3 + ["semantic"] * 2
    # Both served hits were replayed.
    replayed = equipped.served.receiver.wait_for(lambda s: s.name == "evenkeel.cache.replay", 2)
    replay = replayed[0].attributes
    assert "evenkeel.status" not in replay
    assert replay["evenkeel.cache.verdict"] == "same"
    assert replay["evenkeel.cache.similarity"] >= 0.75
    control = equipped.cache()["routes"]["serve"]
    assert control["serves_from"] == 0.75
    assert control["evidence"][0]["bound"] < control["limit"]
    changed = [s for s in equipped.served.spans() if "evenkeel.cache.change" in s.attributes]
    assert len(changed) == 1 and "certified" in str(changed[0].attributes["evenkeel.cache.change"])
    log = [json.loads(line) for line in audit_log(equipped).read_text().splitlines()]
    assert [e["after"] for e in log if e["event"] == "control"] == ["cosine 0.75, lead 0"]


def audit_log(equipped: EquippedServer) -> Path:
    return equipped.log.parent / "data" / "cache-audit.jsonl"


def test_a_near_miss_is_a_draft_and_never_an_answer(equipped: EquippedServer) -> None:
    reset = "How can I reset the password of my account?"
    change = "How can I change the password of my account?"
    own = content(equipped.ask(change, "off", "miss"))
    equipped.ask(reset, "draft", "miss")
    wait_for(lambda: CACHE_HEADER in equipped.ask(reset, "draft", "miss").headers)
    answer = equipped.ask(change, "draft", "miss")
    assert content(answer) == own
    assert CACHE_HEADER not in answer.headers
    seen = equipped.span(answer).attributes
    assert seen["evenkeel.response_cache"] == "draft"
    assert seen["evenkeel.cache.draft_tokens"] > 0
    assert seen["evenkeel.cache.reason"] == "contrast"
    near = equipped.cache()["near_misses"][-1]
    assert (near["question"], near["other"], near["was_same"]) == (change, reset, False)


def test_shadow_compares_and_serves_nothing(equipped: EquippedServer) -> None:
    question, seen = "Do you have a shop?", dict[str, Any]()

    def is_compared() -> bool:
        answer = equipped.ask(question, "shadow", "shadow")
        assert CACHE_HEADER not in answer.headers
        seen.update(equipped.span(answer).attributes)
        return bool(seen["evenkeel.response_cache"] == "shadow")

    wait_for(is_compared)
    assert seen["evenkeel.cache.verdict"] == "same"
    assert seen["gen_ai.usage.output_tokens"] > 0


def test_a_route_put_into_shadow_serves_nothing_until_it_is_taken_back(
    equipped: EquippedServer,
) -> None:
    url = f"{equipped.served.url}/v1/evenkeel/cache"
    questions = ("Do you ship to islands?", "Do you ship to mountains?")
    for question in questions:
        ask_twice(equipped, question, "dialled")
    # As a live evaluation does it.
    assert put_into_shadow(equipped.served.url, "serve", None) == "serve"
    for question in (*questions, "Do you ship to the islands?"):
        answer = equipped.ask(question, "serve", "dialled")
        assert CACHE_HEADER not in answer.headers
        seen = equipped.span(answer).attributes
        assert seen["evenkeel.response_cache"] == "shadow"
        assert seen["gen_ai.usage.output_tokens"] > 0
    assert equipped.cache()["modes"]["serve"] == "shadow"
    with pytest.raises(CannotMeasureError, match="answered HTTP 404"):
        put_into_shadow(equipped.served.url, "nowhere", None)
    assert httpx.post(url, params={"route": "serve", "mode": "loud"}).status_code == 400
    assert httpx.post(url, params={"route": "shadow", "mode": "serve"}).status_code == 409
    back = httpx.post(url, params={"route": "serve", "mode": "serve"})
    assert back.json() == {"route": "serve", "mode": "serve", "was": "shadow"}
    assert equipped.ask(questions[0], "serve", "dialled").headers[CACHE_HEADER] == "exact"
    events = [json.loads(line) for line in audit_log(equipped).read_text().splitlines()]
    assert [e["after"] for e in events if e["event"] == "mode"] == ["shadow", "serve"]


def test_a_persons_answers_are_deleted(equipped: EquippedServer) -> None:
    question, other = "Do you repair lamps?", "Do you sell spare parts?"
    ask_twice(equipped, question, "gdpr", user="ann")
    ask_twice(equipped, other, "gdpr", user="bob")
    url = f"{equipped.served.url}/v1/evenkeel/cache"
    assert httpx.delete(url, params={"subject": "ann"}).status_code == 400
    person = {"tenant": "gdpr", "subject": "ann"}
    gone = httpx.delete(url, params=person)
    assert gone.json() == {"deleted": 1}
    assert CACHE_HEADER not in equipped.ask(question, "serve", "gdpr", user="ann").headers
    assert CACHE_HEADER in equipped.ask(other, "serve", "gdpr", user="bob").headers
    events = [json.loads(line) for line in audit_log(equipped).read_text().splitlines()]
    assert [e["entries"] for e in events if e["event"] == "deleted"] == [1]
    assert "ann" not in audit_log(equipped).read_text()


def test_a_long_history_is_shortened_and_a_dense_one_is_not(equipped: EquippedServer) -> None:
    story = "It was a grey evening and we sat by the fire with tea. " * 12
    facts = "My lamp 4471 must stand in Bern. " * 12
    for history, verdict in ((story, "sent"), (facts, "no_gain")):
        messages = [
            {"role": "user", "content": history},
            {"role": "user", "content": "Do you have a shop?"},
        ]
        short = equipped.ask("", "compress", "short", messages=messages)
        whole = equipped.ask("", "off", "short", messages=messages)
        span = equipped.span(short)
        seen = span.attributes
        assert seen["evenkeel.compression.verdict"] == verdict
        took_s = seen["evenkeel.ledger.ttft.host.compression"]
        assert took_s > 0
        # A span of its own, within the request, if it took long enough.
        own = equipped.served.children(span).get("evenkeel.compression")
        assert (own is not None) == (took_s >= LEAST_HOLD_S)
        if own is not None:
            assert span.start_ns <= own.start_ns < own.end_ns <= span.end_ns
            assert (own.end_ns - own.start_ns) / 1e9 == pytest.approx(took_s, abs=1e-6)
        saved = seen["evenkeel.compression.saved_tokens"]
        tokens = [answer.json()["usage"]["prompt_tokens"] for answer in (whole, short)]
        # Counted text by text: where two meet, the tokenizer may join differently.
        assert abs(tokens[0] - tokens[1] - saved) <= 12
        assert (saved > 100) == (verdict == "sent")


def test_what_wants_log_probabilities_is_read_from_vllms_own_parameters() -> None:
    # Not asked of the server: vLLM compiles for half a minute before its first log probability.
    for more in ({"logprobs": 0}, {"prompt_logprobs": 1}):
        sampling = read_sampling(SamplingParams(**more, output_kind=RequestOutputKind.DELTA))
        assert sampling is not None and sampling.wants_logprobs
    plain = read_sampling(SamplingParams(n=3, output_kind=RequestOutputKind.DELTA))
    assert plain is not None
    assert (plain.wants_logprobs, plain.num_sequences) == (False, 3)


def test_a_hit_needs_no_place_in_the_engine(equipped: EquippedServer) -> None:
    question = "Do you sell umbrellas?"
    ask_twice(equipped, question, "gate")
    with equipped.controlled_by(ONE_PLACE):
        equipped.wait_for_control(capacity=1)
        with long_answer(equipped.served, "busy"):
            equipped.wait_for_control(inside=1)
            # Streamed or not, what the cache knows is answered, and what it does not is refused.
            for options in ({}, {"stream": True}):
                hit = equipped.ask(question, "serve", "gate")
                assert hit.headers[CACHE_HEADER] == "exact"
                asked = f"Do you sell garden gnomes? {len(options)}"
                refused = equipped.post(asked, "serve", "gate", slo_class="quick", **options)
                assert refused.status_code == 503
                assert refused.json()["error"]["type"] == "queue_deadline"
                assert int(refused.headers["retry-after"]) >= 1
        seen = equipped.served.wait_for_requests(
            2, evenkeel__status="shed", evenkeel__tenant="gate"
        )
        assert {span.attributes["error.type"] for span in seen} == {"queue_deadline"}
    equipped.wait_for_control(inside=0)
    assert equipped.served.metric("evenkeel_runtime_internal_errors_total") == 0


def test_of_what_is_shed_only_what_the_cache_knows_is_answered(equipped: EquippedServer) -> None:
    question, tenant = "Do you sell lanterns?", "shed"
    ask_twice(equipped, question, tenant)

    def ask_off(number: int) -> httpx.Response:
        return equipped.ask(f"hello {number}", "off", "patient", max_tokens=2)

    with equipped.controlled_by(HASTY_LAST), ThreadPoolExecutor(NUM_TURNS) as pool:
        equipped.wait_for_control(capacity=1)
        list(pool.map(ask_off, range(NUM_TURNS)))
        with long_answer(equipped.served, "busy"):
            equipped.wait_for_control(inside=1)
            waiting = [pool.submit(ask_off, number) for number in range(4)]
            equipped.wait_for_control(waiting={"patient": 4})
            for options in ({}, {"stream": True}):
                hit = equipped.ask(question, "serve", tenant, slo_class="hasty", **options)
                assert hit.headers[CACHE_HEADER] == "exact"
                asked = f"Do you sell ropes? {len(options)}"
                refused = equipped.post(asked, "serve", tenant, slo_class="hasty", **options)
                assert refused.status_code == 503
                assert refused.json()["error"]["type"] in REFUSED
                assert int(refused.headers["retry-after"]) >= 1
            # On other paths no cache is asked: refused before vLLM's app.
            body = {"model": equipped.served.model, "prompt": "hello", "max_tokens": 2}
            headers = {"x-evenkeel-tenant": tenant, "x-evenkeel-slo-class": "hasty"}
            url = f"{equipped.served.url}/v1/completions"
            refused = httpx.post(url, json=body, headers=headers, timeout=120)
            assert refused.status_code == 503
            assert refused.json()["error"]["type"] in REFUSED
        assert {asking.result().status_code for asking in waiting} == {200}
    equipped.served.wait_for_requests(3, evenkeel__status="shed", evenkeel__tenant=tenant)
    equipped.wait_for_control(inside=0)


def test_the_wait_at_the_gate_is_a_cause_of_its_own(equipped: EquippedServer) -> None:
    waited_s = 0.2
    with equipped.controlled_by(ONE_PLACE), ThreadPoolExecutor(1) as pool:
        equipped.wait_for_control(capacity=1)
        with long_answer(equipped.served, "busy"):
            equipped.wait_for_control(inside=1)
            asking = pool.submit(equipped.ask, "Do you sell hammocks?", "serve", "waits")
            equipped.wait_for_control(waiting={"patient": 1})
            time.sleep(waited_s)
        seen = equipped.span(asking.result()).attributes
    prefix = "evenkeel.ledger.ttft."
    causes = {k.removeprefix(prefix): v for k, v in seen.items() if k.startswith(prefix)}
    assert waited_s <= causes["queue.gate"] <= seen["evenkeel.ttft_s"]
    assert sum(causes.values()) == pytest.approx(seen["evenkeel.ttft_s"], rel=0.02)


def test_a_question_about_the_asker_gets_drafts_but_is_never_stored(
    equipped: EquippedServer,
) -> None:
    ask_twice(equipped, "How long does a parcel to Austria take?", "asker")

    def is_drafted() -> bool:
        answer = equipped.ask("How long does my parcel to Austria take?", "serve", "asker")
        assert CACHE_HEADER not in answer.headers
        seen = equipped.span(answer).attributes
        assert seen["evenkeel.response_cache"] == "bypass"
        assert seen["evenkeel.cache.reason"] == "about_asker"
        assert seen["evenkeel.cache.draft_tokens"] > 0
        return sum(seen.get("evenkeel.drafted.cache", ())) > 0

    for _ in range(2):
        # Of every few requests one goes without drafts, to compare.
        wait_for(is_drafted)


def test_a_corrupt_entry_is_said_once_counted_and_answered_by_the_model(
    equipped: EquippedServer,
) -> None:
    with redis.Redis.from_url(equipped.redis.url) as client:
        known = set(client.scan_iter("evenkeel:cache:2:entry:*"))
        for number in range(2):
            question = f"Do you sell carpets of type {number}?"
            own, hit = ask_twice(equipped, question, "corrupt")
            assert hit.headers[CACHE_HEADER] == "exact"
            (entry,) = set(client.scan_iter("evenkeel:cache:2:entry:*")) - known
            known.add(entry)
            client.set(entry, b"\xc1rubbish", keepttl=True)
            answer = equipped.ask(question, "serve", "corrupt")
            assert CACHE_HEADER not in answer.headers
            assert content(answer) == content(own)
    assert equipped.log.read_text().count("corrupt cache entry deleted") == 1
    page = httpx.get(f"{equipped.served.url}/metrics").text
    assert 'evenkeel_cache_errors_total{kind="corrupt_entry"} 2.0' in page


def test_metrics_say_what_was_saved(equipped: EquippedServer) -> None:
    lines = httpx.get(f"{equipped.served.url}/metrics").text.splitlines()
    values = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[:1] != "#"
    }
    assert values['evenkeel_cache_requests_total{outcome="exact"}'] >= 4
    assert values['evenkeel_cache_saved_tokens_total{layer="exact"}'] > 0
    assert values['evenkeel_cache_saved_seconds_total{layer="exact"}'] > 0
    assert values['evenkeel_cache_serve_threshold{route="serve"}'] == 0.75
    assert values['evenkeel_cache_wrong_hit_limit{route="serve"}'] == 0.4
    assert values['evenkeel_cache_errors_total{kind="backend"}'] == 0
    # The model verified near answers as drafts.
    assert values["evenkeel_cache_verified_tokens_total"] > 0
    assert values['evenkeel_speculation_drafted_tokens_total{source="cache"}'] > 0


def test_without_redis_the_model_answers(equipped: EquippedServer) -> None:
    question = "How do I return an item?"
    assert CACHE_HEADER in equipped.ask(question, "serve", "exact").headers
    equipped.redis.process.kill()
    equipped.redis.process.wait()
    for _ in range(3):
        answer = equipped.ask(question, "serve", "exact")
        assert CACHE_HEADER not in answer.headers and content(answer)
    assert equipped.log.read_text().count("cache backend not responding") == 1
    assert equipped.served.metric("evenkeel_cache_errors_total") >= 3
