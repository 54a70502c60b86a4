"""The request record: one list of fields, and what follows from it."""

import re

import pytest

from evenkeel import spans
from evenkeel.request_record import REQUEST_FIELDS, RequestField, RequestRecord


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
        spans.ENGINE_NAME: "vllm",
    }


def test_zero_is_a_value() -> None:
    record = RequestRecord(request_id="r", model="m", output_tokens=0, ttft_s=0.0)
    assert record.to_attributes()[spans.OUTPUT_TOKENS] == 0
    assert record.to_attributes()["evenkeel.ttft_s"] == 0.0
    assert record.to_attributes()[spans.TIME_TO_FIRST_CHUNK] == 0.0


def test_every_field_says_where_it_goes_and_what_it_means() -> None:
    assert list(REQUEST_FIELDS) == list(RequestRecord.__struct_fields__)
    names = [field.attribute for field in REQUEST_FIELDS.values()]
    assert len(set(names)) == len(names)
    assert [field.name for field in REQUEST_FIELDS.values() if not field.meaning] == []


def example(field: RequestField) -> object:
    """Return a value of a field that is like no other's."""
    (index,) = (i for i, name in enumerate(REQUEST_FIELDS) if name == field.name)
    hint = RequestRecord.__annotations__[field.name]
    kind = re.match(r"Annotated\[\s*([\w.\[\]]+)", hint)
    assert kind is not None
    examples = {"str": f"v{index}", "int": index, "float": index / 2}
    lists = {"list[str]": [f"v{index}"], "list[int]": [index], "list[float]": [index / 2]}
    return (examples | lists)[kind[1]]


@pytest.mark.parametrize(
    "field",
    [
        field
        for field in REQUEST_FIELDS.values()
        if field.name not in {"status", "finish_reason", "drafts_by_source", "ledger", "cache"}
    ],
    ids=lambda field: field.name,
)
def test_a_value_becomes_its_attribute(field: RequestField) -> None:
    record = RequestRecord(request_id="r", model="m")
    setattr(record, field.name, example(field))
    assert record.to_attributes()[field.attribute] == example(field)


def test_the_ledger_is_one_attribute_a_cause() -> None:
    record = RequestRecord(request_id="r", model="m", ledger={"queue": 0.5})
    assert record.to_attributes()["evenkeel.ledger.queue"] == 0.5


def test_what_the_cache_says_is_kept_by_its_names() -> None:
    record = RequestRecord(request_id="r", model="m", cache={spans.CACHE_BOUND: 0.01})
    assert record.to_attributes()[spans.CACHE_BOUND] == 0.01


def test_what_drafts_came_to_is_two_attributes_per_source() -> None:
    record = RequestRecord(request_id="r", model="m", drafts_by_source={"cache": ([2, 1], [1, 0])})
    attributes = record.to_attributes()
    assert attributes["evenkeel.drafted.cache"] == [2, 1]
    assert attributes["evenkeel.accepted.cache"] == [1, 0]


def test_the_reason_is_that_of_the_first_answer() -> None:
    record = RequestRecord(request_id="r", model="m", finish_reason="stop")
    assert record.to_attributes()[spans.FINISH_REASONS] == ["stop"]
