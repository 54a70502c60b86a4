"""`/why`: what is kept, who may see it, and what is answered to whom."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace as with_fields

from evenkeel_runtime.exporter.why_answers import WhyStore
from evenkeel_runtime.ledger.attribution import Aftermath, Ledger, PrefixUse
from evenkeel_runtime.ledger.explanation import Explanation, describe
from evenkeel_runtime.ledger.prefix_explanation import Miss, PrefixExplanation
from evenkeel_runtime.ledger.rivals import Rival
from evenkeel_runtime.wire.observation import Observation

SEEN = Observation(
    request_id="chatcmpl-1",
    model="m",
    operation="chat",
    arrival_unix_ns=1_700_000_000_000_000_000,
    arrival_ns=5_000_000_000,
    end_ns=6_000_000_000,
    tenant="acme",
    ttft_s=0.2,
    decode_s=0.5,
    e2e_s=1.0,
)
USE = PrefixUse(500, 128, 256, 128, 4_000_000_000, "chatcmpl-3")
LEDGER = Ledger(
    {"ttft.prefill.own": 0.02, "ttft.prefill.others": 0.18},
    (Rival(2, 0.18, 2000, 0, "chatcmpl-2"), Rival(3, 0.01, 0, 4, "chatcmpl-3")),
    0.12,
    USE,
    aftermath=Aftermath(0, 2, 0.004),
)
STORY = PrefixExplanation(
    USE, Miss.EVICTED, 256, 0.01, 300, "chatcmpl-0", own_around=(1, 2), near_around=(1, 3)
)


EXPLANATION = Explanation(LEDGER, STORY)


def answer(explanation: Explanation | None = EXPLANATION) -> dict[str, Any]:
    return describe(SEEN, explanation, "ab" * 16)


def attributes_of(explanation: Explanation) -> dict[str, Any]:
    record = with_fields(SEEN)
    explanation.fill(record)
    return record.to_attributes()


def test_the_answer_says_what_it_would_have_been_without_whom() -> None:
    found = answer()
    assert (found["ttft_s"], found["decode_s"], found["e2e_s"]) == (0.2, 0.5, 1.0)
    assert found["arrival"] == "2023-11-14T22:13:20+00:00"
    # The worst cause first.
    assert list(found["ledger"]) == ["ttft.prefill.others", "ttft.prefill.own"]
    assert (found["shared_by"], found["model_error_ratio"]) == ("cost_model", 0.12)
    assert found["note"] is None
    assert found["without"][0] == {
        "request_id": "chatcmpl-2",
        "prefill_tokens": 2000,
        "decode_tokens": 0,
        "spared_s": 0.18,
        "text": "180 ms faster without the concurrent 2,000-token prompt",
    }
    assert found["prefix_cache"]["evicted"] == {
        "before_arrival_s": 1.0,
        "for_request": "chatcmpl-3",
    }
    assert found["cancelled"] == {
        "steps_after": 0,
        "tokens_after": 2,
        "engine_let_go_after_s": 0.004,
    }


def test_a_ledger_made_before_the_cost_model_was_tested_says_so() -> None:
    explanation = Explanation(replace(LEDGER, error_ratio=None))
    found = answer(explanation)
    assert (found["shared_by"], found["model_error_ratio"]) == ("tokens", None)
    assert found["note"].startswith("cost model not yet fitted")
    attributes = attributes_of(explanation)
    assert attributes["evenkeel.ledger_shared_by"] == "tokens"
    assert "evenkeel.ledger_error_ratio" not in attributes


def test_a_request_without_a_ledger_is_known_all_the_same() -> None:
    found = answer(None)
    assert (found["ledger"], found["without"], found["prefix_cache"]) == (None, [], None)


def test_spans_carry_the_rivals_and_the_error() -> None:
    attributes = attributes_of(EXPLANATION)
    assert attributes["evenkeel.rivals.request_ids"] == ["chatcmpl-2", "chatcmpl-3"]
    assert attributes["evenkeel.rivals.prefill_tokens"] == [2000, 0]
    assert attributes["evenkeel.ledger_error_ratio"] == 0.12
    assert attributes["evenkeel.ledger_shared_by"] == "cost_model"
    assert attributes["evenkeel.cancel.tokens"] == 2
    assert attributes["evenkeel.prefix.miss"] == "evicted"


def test_a_tenant_sees_its_own_requests_and_no_ids_of_others() -> None:
    store = WhyStore()
    store.put("chatcmpl-1", "acme", answer())
    store.put("chatcmpl-2", "acme", answer())
    assert store.find("chatcmpl-1", "other") is None
    body = store.find("chatcmpl-1", "acme")
    assert body is not None
    found = msgspec.json.decode(body)
    assert [rival["request_id"] for rival in found["without"]] == ["chatcmpl-2", None]
    assert found["prefix_cache"]["evicted"]["for_request"] is None
    # Whoever names no tenant runs the place.
    everything = store.find("chatcmpl-1", None)
    assert everything is not None
    assert msgspec.json.decode(everything) == msgspec.json.decode(msgspec.json.encode(answer()))


def test_a_request_of_another_tenant_with_the_same_id_replaces_none() -> None:
    store = WhyStore(max_requests=2)
    for tenant in ("acme", "other"):
        store.put("r", tenant, answer() | {"tenant": tenant})
    found = [store.find("r", tenant) for tenant in ("acme", "other", None)]
    tenants = [msgspec.json.decode(body)["tenant"] for body in found if body is not None]
    # An operator sees the last one.
    assert tenants == ["acme", "other", "other"]
    store.put("s", "acme", answer())
    assert (store.find("r", "acme"), len(store)) == (None, 2)
    assert store.find("r", None) is not None
    store.put("t", "acme", answer())
    assert store.find("r", None) is None


@pytest.mark.parametrize("kept", ["cmpl-1", "cmpl-1-0", "cmpl-1_0"])
def test_a_request_is_found_by_the_id_in_its_response(kept: str) -> None:
    store = WhyStore()
    store.put(kept, None, answer())
    assert store.find("cmpl-1", None) is not None
    assert store.find("cmpl-2", None) is None


def test_what_is_kept_is_bounded_by_number_and_by_bytes() -> None:
    few = WhyStore(max_requests=3)
    small = WhyStore(max_bytes=3 * len(msgspec.json.encode(answer())))
    for store in (few, small):
        for number in range(10):
            store.put(str(number), None, answer())
        store.put("9", None, answer())
        assert len(store) == 3
        assert [store.find(str(i), None) is not None for i in (6, 7, 9)] == [False, True, True]


def test_describing_needs_no_tenant() -> None:
    assert describe(with_fields(SEEN, tenant=None), None, "")["tenant"] is None
