"""Where in an encoded request a card number is looked for."""

import pytest

from evenkeel_collector.redaction.field_redactor import Redactor
from evenkeel_collector.redaction.field_rules import load_rules
from tests.fixtures.otlp_payload import trace_request

REDACTOR = Redactor(load_rules(), None)


@pytest.mark.parametrize("num_behind", [*range(130), 5000, 6200, 9000, 900_000])
def test_a_card_at_the_start_of_a_text_is_found_whatever_the_length_before_it_looks_like(
    num_behind: int,
) -> None:
    # The text's length stands right before it, and may be the byte of a letter or a digit.
    text = "4111111111111111" + "." * num_behind
    for message in (
        trace_request(1, {"x": text}),
        trace_request(1, name=text),
        trace_request(1, {"x": [text]}),
    ):
        assert set(REDACTOR.redact(message).counts) == {"card"}


@pytest.mark.parametrize("text", ["a4111111111111111", "cafe4111111111111111", "_4111111111111111"])
def test_digits_inside_of_a_word_are_no_card(text: str) -> None:
    message = trace_request(1, {"x": text})
    assert REDACTOR.redact(message).counts == {}
