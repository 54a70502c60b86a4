"""Server-sent events, whole and split anywhere."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_evals.ask.stream import BROKE_OFF, StreamedAnswer


def event(payload: Any) -> bytes:
    text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
    return f"data: {text}\n\n".encode()


def delta(content: str | None, finish: str | None = None) -> bytes:
    return event({"choices": [{"delta": {"content": content}, "finish_reason": finish}]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
WHOLE = b"".join(
    [
        b": comment\n\n",
        delta(""),
        delta("Grü"),
        delta("ße"),
        delta(None, "stop"),
        USAGE,
        event("[DONE]"),
    ]
)


def test_times_and_counts_of_a_whole_answer() -> None:
    answer = StreamedAnswer(sent_ns=1_000_000_000)
    answer.feed(delta(""), 1_100_000_000)
    answer.feed(delta("a"), 1_200_000_000)
    answer.feed(delta("b"), 1_400_000_000)
    answer.feed(delta("", "stop") + USAGE + event("[DONE]"), 1_900_000_000)
    assert answer.text == "ab"
    # The empty first chunk with the role is not a token.
    assert answer.ttft_s == pytest.approx(0.2)
    assert answer.e2e_s == pytest.approx(0.4)
    assert answer.tpot_s == pytest.approx(0.2 / 2)
    assert (answer.input_tokens, answer.output_tokens) == (7, 3)
    assert (answer.finish_reason, answer.problem()) == ("stop", None)


@pytest.mark.parametrize(
    ("details", "expected"),
    [({"cached_tokens": 4}, 4), ({"cached_tokens": None}, None), (None, None), ([], None)],
    ids=["some", "not counted", "no details", "nonsense"],
)
def test_cached_tokens_are_known_if_the_server_reports_them(
    details: Any, expected: int | None
) -> None:
    answer = StreamedAnswer(0)
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": details}
    answer.feed(event({"choices": [], "usage": usage}), 1)
    assert (answer.input_tokens, answer.cached_tokens) == (7, expected)


def test_reasoning_tokens_are_known_if_the_server_reports_them() -> None:
    answer = StreamedAnswer(0)
    usage = {"completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 6}}
    answer.feed(event({"choices": [], "usage": usage}), 1)
    assert (answer.output_tokens, answer.reasoning_tokens) == (9, 6)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"], ids=["LF", "CRLF", "CR"])
def test_a_line_may_end_in_each_way_that_the_standard_allows(line_end: bytes) -> None:
    stream = WHOLE.replace(b"\n", line_end)
    answer = StreamedAnswer(0)
    for start in range(0, len(stream), 5):
        answer.feed(stream[start : start + 5], start)
    answer.end()
    assert (answer.text, answer.output_tokens, answer.problem()) == ("Grüße", 3, None)


def test_the_last_event_needs_no_line_end() -> None:
    answer = StreamedAnswer(0)
    answer.feed(delta("a"), 1_000_000_000)
    answer.feed(delta("b", "stop").rstrip(b"\n"), 2_000_000_000)
    answer.end()
    assert (answer.text, answer.e2e_s, answer.problem()) == ("ab", 2.0, None)


def test_an_event_that_is_cut_off_is_no_event() -> None:
    answer = StreamedAnswer(0)
    answer.feed(delta("a") + delta("b", "stop")[:-9], 1)
    answer.end()
    assert (answer.text, answer.problem()) == ("a", BROKE_OFF)


def test_an_event_that_is_nested_too_deeply_is_an_error() -> None:
    answer = StreamedAnswer(0)
    answer.feed(event("[" * 100_000), 1)
    assert "not JSON" in str(answer.problem())


def test_an_error_of_null_is_none() -> None:
    answer = StreamedAnswer(0)
    choice = {"delta": {"content": "a"}, "finish_reason": "stop"}
    answer.feed(event({"choices": [choice], "error": None}), 1)
    assert (answer.text, answer.problem()) == ("a", None)


@given(st.lists(st.integers(1, len(WHOLE) - 1), max_size=12))
def test_where_the_stream_is_cut_does_not_matter(cuts: list[int]) -> None:
    answer = StreamedAnswer(0)
    edges = [0, *sorted(set(cuts)), len(WHOLE)]
    for start, end in pairwise(edges):
        answer.feed(WHOLE[start:end], end)
    assert (answer.text, answer.output_tokens, answer.problem()) == ("Grüße", 3, None)


def test_carriage_returns_are_line_ends_too() -> None:
    answer = StreamedAnswer(0)
    answer.feed(WHOLE.replace(b"\n", b"\r\n"), 1)
    assert (answer.text, answer.problem()) == ("Grüße", None)


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (delta("half"), "ended before"),
        (b"", "ended before"),
        (
            delta("half") + event({"error": {"message": "out of memory\nat line 3"}}),
            "out of memory",
        ),
        (event("{broken"), "not JSON"),
        (b'{"choices": [{"message": {"content": "42"}}]}', "did not stream: it sent b'{"),
        (b"<html>\n<body>", "did not stream: it sent b'<html>'"),
        (b": a comment\n\nevent: ping\nid: 1\nretry: 3\n", "ended before"),
        (delta("half") + b"oops\n", "ended before"),
        (event("[1]"), "not an object"),
    ],
)
def test_a_stream_that_breaks_says_why(stream: bytes, problem: str) -> None:
    answer = StreamedAnswer(0)
    answer.feed(stream, 1)
    answer.end()
    assert problem in (answer.problem() or "")
    assert "\n" not in (answer.problem() or "")


def test_an_answer_without_text_has_no_times() -> None:
    answer = StreamedAnswer(0)
    answer.feed(delta("", "stop"), 5)
    assert (answer.text, answer.ttft_s, answer.e2e_s, answer.tpot_s) == ("", None, None, None)
    assert answer.problem() is None


def test_reasoning_counts_as_the_first_token() -> None:
    answer = StreamedAnswer(0)
    answer.feed(event({"choices": [{"delta": {"reasoning_content": "hm"}}]}), 1_000_000_000)
    answer.feed(delta("a", "stop"), 3_000_000_000)
    assert (answer.ttft_s, answer.text) == (1.0, "a")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}], "Hello"),
        (["Hel", "lo"], "Hello"),
        ([], ""),
    ],
)
def test_content_in_parts_is_one_text(content: Any, text: str) -> None:
    answer = StreamedAnswer(0)
    answer.feed(event({"choices": [{"delta": {"content": content}, "finish_reason": "stop"}]}), 1)
    assert (answer.text, answer.problem()) == (text, None)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "delta", "content", "usage", "text", "type", "finish_reason"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@given(ODD, ODD, ODD)
def test_nothing_that_a_server_sends_ends_the_run(choices: Any, delta_: Any, usage: Any) -> None:
    answer = StreamedAnswer(0)
    for payload in (
        choices,
        {"choices": choices, "usage": usage},
        {"choices": [{"delta": delta_, "finish_reason": usage}]},
        {"choices": [{"delta": {"content": delta_}}], "usage": {"completion_tokens": usage}},
    ):
        answer.feed(event(json.dumps(payload)), 1)
    assert isinstance(answer.text, str)
    assert answer.output_tokens is None or answer.output_tokens >= 0
