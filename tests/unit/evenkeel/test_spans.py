"""The request record and its attributes."""

from dataclasses import fields

from evenkeel import spans
from evenkeel.spans import RequestRecord


def test_absent_values_have_no_attribute() -> None:
    attributes = RequestRecord(request_id="r", model="m").to_attributes()
    assert attributes == {
        spans.PROVIDER: "vllm",
        spans.STATUS: "ok",
        spans.REQUEST_ID: "r",
        spans.REQUEST_MODEL: "m",
        spans.RESPONSE_MODEL: "m",
        spans.OPERATION: "chat",
        spans.SAMPLE_WEIGHT: 1.0,
    }


def test_zero_is_a_value() -> None:
    record = RequestRecord(request_id="r", model="m", output_tokens=0, ttft_s=0.0)
    assert record.to_attributes()[spans.OUTPUT_TOKENS] == 0
    assert record.to_attributes()[spans.TTFT_S] == 0.0


def test_every_field_has_an_attribute() -> None:
    by_hand = {"status", "finish_reason", "ledger", "cache", "drafts_by_source"}
    names = {field.name for field in fields(RequestRecord)}
    assert names - by_hand == set(spans._ATTRIBUTE_OF_FIELD)


def test_the_ledger_is_one_attribute_a_cause() -> None:
    record = RequestRecord(request_id="r", model="m", ledger={"queue": 0.5})
    assert record.to_attributes()["evenkeel.ledger.queue"] == 0.5


def test_what_the_cache_says_is_kept_by_its_names() -> None:
    record = RequestRecord(request_id="r", model="m", cache={spans.CACHE_BOUND: 0.01})
    assert record.to_attributes()[spans.CACHE_BOUND] == 0.01
