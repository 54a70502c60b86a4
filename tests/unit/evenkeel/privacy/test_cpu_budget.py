"""Redaction's budget of CPU: what takes longer is withheld whole, and takes nothing from others."""

import itertools
import time

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from evenkeel.privacy.checks import find_url_password
from evenkeel.privacy.cpu_budget import (
    HASTY_RATIO,
    MAX_HASTY_VALUES,
    CpuBudget,
    OverBudgetError,
    allowance_s,
)
from evenkeel.privacy.text_redactor import (
    OVER_BUDGET,
    RedactionTally,
    TextRedactor,
    Tokens,
    built_in,
)
from evenkeel_collector.redaction.field_redactor import Redactor
from evenkeel_collector.redaction.field_rules import load_rules
from evenkeel_evals.scorers.rules import pii
from evenkeel_runtime.response_cache.private_text import PrivateText

RULES = load_rules()
NAMES = [rule.name for rule in RULES.values]
REDACTOR = TextRedactor(RULES.values, Tokens(None, NAMES))
# Far more than reading the clock late can add, far less than what such a text took before.
SLACK_RATIO = 10
SIZE = 1 << 20
# Texts that were made to take long, each of about a MiB.
HOSTILE = {
    "digits that are no number": "1 " * (SIZE // 2),
    "pluses": "+1" * (SIZE // 2),
    "numbers with brackets": "(202) 555-01" * (SIZE // 12),
    "cards that are none": "4111 1111 1111 1112 " * (SIZE // 20),
    "accounts that are none": "DE00 1234 5678 9012 3456 78 " * (SIZE // 28),
    "signs of mail addresses": "a@" * (SIZE // 2),
    "mail addresses": "a@b.co " * (SIZE // 7),
    "percent signs, nested": "%25" * (SIZE // 3),
    "percent signs, nested in each other": "%" + "25" * (SIZE // 2),
    "backslashes": "\\" * SIZE,
    "escapes": "\\u0040" * (SIZE // 6),
    "starts of keys": "-----BEGIN PRIVATE KEY-----" * (SIZE // 27),
    "names of passwords": 'password="' * (SIZE // 10),
    "names of passwords, single quotes": "password='\\" * (SIZE // 11),
    "names of passwords without values": "password=" * (SIZE // 9),
    "names of tokens without values": "token=,9" * (SIZE // 8),
    "passwords between separators": ",9password=aaaaa" * (SIZE // 16),
    "elements that do not end": "<password>" * (SIZE // 10),
    "addresses without a host": "ab://c:/" * (SIZE // 8),
    "words before passwords": "password " * (SIZE // 9),
    "colons and signs": "://:@" * (SIZE // 5),
    "forms": "a=+&" * (SIZE // 4),
    "tokens": "[email]" * (SIZE // 7),
    "numbers of state": "536-22-8145 " * (SIZE // 12),
}

# Texts that hold no secret but much that looks like the start of one.
FREQUENT = {
    "forms": '<label for="password">Your password</label><input name="password">',
    "tokens": '{"token": "hello", "logprob": -0.1}, ',
}


class Clock:
    """Seconds of CPU that pass at every look."""

    def __init__(self, step_s: float) -> None:
        self._times = itertools.count(0.0, step_s)

    def __call__(self) -> float:
        return next(self._times)


def request(*texts: str) -> ExportTraceServiceRequest:
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    for text in texts:
        span = spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, name="chat")
        span.attributes.add(key="app.note").value.string_value = text
    return message


def notes(message: ExportTraceServiceRequest) -> list[str]:
    return [
        span.attributes[0].value.string_value
        for span in message.resource_spans[0].scope_spans[0].spans
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_no_text_takes_much_more_than_its_allowance(name: str) -> None:
    text = HOSTILE[name].encode()
    began_s = time.thread_time()
    REDACTOR.redact(text, RedactionTally())
    assert time.thread_time() - began_s < SLACK_RATIO * allowance_s(len(text))


@pytest.mark.parametrize("name", FREQUENT)
def test_the_cost_of_a_frequent_start_does_not_grow_with_the_text(name: str) -> None:
    short, long = (FREQUENT[name].encode() * number for number in (500, 8_000))
    took_s = []
    for text in (short, long):
        tally = RedactionTally(budget=CpuBudget(clock=lambda: 0.0))
        began_s = time.thread_time()
        assert REDACTOR.redact(text, tally) == text
        took_s.append(time.thread_time() - began_s)
    assert took_s[1] < 3 * 16 * took_s[0]


def test_the_cost_of_an_address_does_not_grow_with_the_text_before_it() -> None:
    before = b"x" * (8 << 20)
    text = before + b"ab://h:8080/p@h"
    began_s = time.thread_time()
    for _ in range(500):
        assert not [*find_url_password(text, len(before) + 7, len(text) - 2, CpuBudget())]
    assert time.thread_time() - began_s < 0.1


def test_what_takes_too_long_is_withheld_whole_and_counted() -> None:
    tally = RedactionTally(budget=CpuBudget(clock=Clock(1.0)))
    text = ("ana@example.org " + "1 " * 2000).encode()
    assert REDACTOR.redact(text, tally) == b"[over_budget]"
    assert tally.counts == {OVER_BUDGET: 1}
    # What was withheld is a token, and stays one.
    assert REDACTOR.redact(b"[over_budget]", RedactionTally()) == b"[over_budget]"


def test_in_haste_somebody_with_more_time_is_asked() -> None:
    tally = RedactionTally(budget=CpuBudget(clock=Clock(1.0), is_hasty=True))
    with pytest.raises(OverBudgetError):
        REDACTOR.redact(b"1 " * 2000, tally)
    assert not tally.counts
    assert HASTY_RATIO < 1


def test_a_long_list_is_checked_by_somebody_with_more_time() -> None:
    message = request("ana@example.org")
    note = message.resource_spans[0].scope_spans[0].spans[0].attributes.add(key="list")
    note.value.array_value.values.add(string_value="ana@example.org")
    note.value.array_value.values.extend([AnyValue()] * MAX_HASTY_VALUES)
    redactor = Redactor(RULES, None, ["*"], clock=Clock(0.0))
    with pytest.raises(OverBudgetError):
        redactor.redact(message, is_hasty=True)
    # The first was replaced before.
    assert redactor.redact(message).counts["email"] == 1


def test_a_spent_request_looks_at_no_further_text() -> None:
    budget = CpuBudget(0, clock=Clock(1.0))
    with pytest.raises(OverBudgetError):
        for _ in range(1000):
            budget.begin(1)
            budget.spend()
    with pytest.raises(OverBudgetError):
        budget.begin(1)


def test_behind_a_long_text_only_what_needs_no_look_is_kept() -> None:
    seen_s = itertools.chain([0.0, 0.0], itertools.repeat(0.15))
    redactor = Redactor(RULES, None, ["*"], clock=lambda: next(seen_s))
    message = request(
        "write to ana@example.org", "1 202 555 " * 200, "card 4111 1111 1111 1111", "plain"
    )
    redacted = redactor.redact(message)
    assert notes(message) == ["write to [email]", "[over_budget]", "[over_budget]", "plain"]
    assert redacted.counts == {"email": 1, OVER_BUDGET: 2}


def test_a_request_of_long_texts_keeps_none_of_them_and_the_rest_of_its_spans() -> None:
    redactor = Redactor(RULES, None, ["*"], clock=Clock(0.2))
    hostile = "1 202 555 ana@example.org " * 200
    message = request(*[hostile] * 5)
    redacted = redactor.redact(message)
    assert notes(message) == ["[over_budget]"] * 5
    assert redacted.counts[OVER_BUDGET] == 5
    assert [span.name for span in message.resource_spans[0].scope_spans[0].spans] == ["chat"] * 5
    with pytest.raises(OverBudgetError):
        redactor.redact(request(hostile), is_hasty=True)


def test_cache_and_scorers_take_what_takes_too_long_for_private(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evenkeel.privacy.cpu_budget.ALLOWANCE_S", -1.0)
    text = "1 202 555 " * 2000
    assert PrivateText().find_personal(text) == OVER_BUDGET
    assert pii(None, {}).score(text).value == 0.0
    assert built_in().redact(text.encode(), RedactionTally()) == b"[over_budget]"
