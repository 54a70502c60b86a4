"""What is missing because nobody sends it is told apart from what just was not there."""

import pytest

from evenkeel.engines.reported import is_reported, silent_sources


@pytest.mark.parametrize(
    ("source", "field", "expected"),
    [
        ("evenkeel", "stall_s", True),
        ("vllm", "tpot_s", True),
        ("vllm", "cached_tokens", False),
        ("sglang", "cached_tokens", True),
        ("sglang", "queue_s", False),
        ("tgi", "ttft_s", False),
        ("tgi", "queue_s", True),
        ("tensorrt-llm", "tpot_s", False),
        ("gen_ai", "input_tokens", True),
        ("openinference", "queue_s", False),
        ("triton", "e2e_s", True),
    ],
)
def test_a_source_reports_what_its_spans_have(source: str, field: str, expected: bool) -> None:
    assert is_reported(source, field) is expected


def test_silent_sources_are_named_for_people() -> None:
    assert silent_sources(["tgi", "gen_ai", "evenkeel"], "ttft_s") == ["Text Generation Inference"]
    assert silent_sources(["gen_ai"], "queue_s") == ["OpenTelemetry's client spans"]
