"""Tool calls that did not parse, by the answer and what its parser found."""

import pytest

from evenkeel_runtime.request.tool_calls import MAX_CHARS, StreamedCalls, count_failed

MARKS = ("<tool_call>",)
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'

ANSWERS = {
    "no call": ("Hello.", MARKS, [], False, 0),
    "one call, parsed": (CALL, MARKS, ['{"a": 1}'], False, 0),
    "two begun, one parsed": (CALL + "<tool_call>{", MARKS, ['{"a": 1}'], False, 1),
    "one begun, none parsed": ("Sure. <tool_call>f(1)</tool_call>", MARKS, [], False, 1),
    "parsed, but the arguments were cut": (CALL[:40], MARKS, ['{"a": '], False, 1),
    "parsed, but without arguments": ("<tool_call>", MARKS, [""], False, 1),
    "a section of calls counts as one": (
        "<calls><call><call></calls>", ("<calls>", "<call>"), ["{}"], False, 1,
    ),
    "a call was demanded, none came": ("Hello.", (), [], True, 1),
    "a call was demanded and came": ("[]", (), ["{}"], True, 0),
    "bare JSON that no parser read": ('{"name": "f", "parameters": {}}', (), [], False, 1),
    "bare JSON that the parser read": ('{"name": "f", "parameters": {}}', (), ["{}"], False, 0),
    "an answer in JSON": ('{"name": "Ada", "born": 1815}', MARKS, [], False, 0),
    "nothing": ("", MARKS, [], False, 0),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "marks", "arguments", "is_forced", "expected"), ANSWERS.values(), ids=ANSWERS
)
def test_failed_calls(
    text: str, marks: tuple[str, ...], arguments: list[str], is_forced: bool, expected: int
) -> None:
    assert count_failed(text, marks, arguments, is_forced) == expected


def test_deeply_nested_arguments_are_no_error() -> None:
    assert count_failed("", (), ["[" * 100_000], False) == 1


def test_a_streamed_answer_is_put_together() -> None:
    calls = StreamedCalls()
    for text in ("<tool_", "call>", "x"):
        calls.add_text(text)
    for index, part in ((0, ""), (0, '{"a"'), (1, "{}"), (0, ": 1}")):
        calls.add_call(index, part)
    assert calls.text == "<tool_call>x"
    assert calls.arguments == ['{"a": 1}', "{}"]


def test_a_streamed_answer_is_kept_up_to_a_limit() -> None:
    calls = StreamedCalls()
    for _ in range(10):
        calls.add_text("x" * MAX_CHARS)
        calls.add_call(0, "x" * MAX_CHARS)
    assert len(calls.text) == MAX_CHARS
    assert calls.arguments == []
