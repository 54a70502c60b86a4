"""Sessions of requests that name none: by trace, else by messages."""

from typing import Any

import pytest

from evenkeel_runtime.exporter.session_finder import SessionFinder
from evenkeel_runtime.request.conversation import digest
from evenkeel_runtime.wire.caller import TraceParent
from evenkeel_runtime.wire.observation import Observation, pack_tokens

TRACE, OTHER_TRACE = b"t" * 16, b"u" * 16


def numbers() -> Any:
    count = iter(range(1, 1000))
    return lambda size: next(count).to_bytes(size, "big")


@pytest.fixture
def finder() -> SessionFinder:
    return SessionFinder(new_id=numbers())


def turn(*texts: str, trace: bytes | None = None, answer: str = "", **more: Any) -> Observation:
    """Return a request: texts are a user's and the assistant's, in turn."""
    roles = ("user", "assistant")
    parts = [f'{{"role": "{roles[n % 2]}", "content": "{text}"}}' for n, text in enumerate(texts)]
    return Observation(
        request_id="r",
        model="m",
        arrival_unix_ns=0,
        arrival_ns=0,
        end_ns=1,
        parent=None if trace is None else TraceParent(trace, b"s" * 8, 1),
        message_digests=digest(f'{{"messages": [{", ".join(parts)}]}}'.encode()),
        prompt=pack_tokens(ord(each) for each in "|".join((*texts, ""))),
        answer=pack_tokens(map(ord, answer)),
        **more,
    )


def found(finder: SessionFinder, seen: Observation) -> tuple[str | None, str | None]:
    finder.find(seen)
    return seen.session_id, seen.session_source


FIRST = ("chain-0000000000000001", "chain")
SECOND = ("chain-0000000000000002", "chain")


def test_a_header_is_taken_as_it_is(finder: SessionFinder) -> None:
    assert found(finder, turn("a", trace=TRACE, session_id="s")) == ("s", "header")


def test_requests_of_one_trace_are_one_session(finder: SessionFinder) -> None:
    trace = (TRACE.hex(), "trace")
    assert found(finder, turn("a", trace=TRACE)) == trace
    assert found(finder, turn("b", trace=TRACE)) == trace
    assert found(finder, turn("c", trace=OTHER_TRACE)) == (OTHER_TRACE.hex(), "trace")


def test_a_trace_belongs_to_the_session_that_one_of_its_requests_names(
    finder: SessionFinder,
) -> None:
    finder.find(turn("a", trace=TRACE, session_id="s"))
    assert found(finder, turn("b", trace=TRACE)) == ("s", "trace")


def test_a_prompt_continues_the_conversation_that_it_begins_with(finder: SessionFinder) -> None:
    assert found(finder, turn("a")) == FIRST
    assert found(finder, turn("x")) == SECOND
    assert found(finder, turn("a", "answer", "b")) == FIRST
    assert found(finder, turn("a", "answer", "b", "answer", "c")) == FIRST
    assert found(finder, turn("x", "answer", "b")) == SECOND


def test_a_conversation_goes_on_in_another_trace(finder: SessionFinder) -> None:
    finder.find(turn("a", trace=TRACE))
    assert found(finder, turn("a", "answer", "b", trace=OTHER_TRACE)) == (TRACE.hex(), "chain")


def test_equal_prompts_are_told_apart_by_their_answers(finder: SessionFinder) -> None:
    finder.find(turn("hi", answer="yes"))
    finder.find(turn("hi", answer="no"))
    assert found(finder, turn("hi", "no", "b")) == SECOND
    assert found(finder, turn("hi", "yes", "c")) == FIRST


def test_equal_prompts_and_answers_are_continued_once_each(finder: SessionFinder) -> None:
    finder.find(turn("hi"))
    finder.find(turn("hi"))
    assert found(finder, turn("hi", "yes", "b")) == SECOND
    assert found(finder, turn("hi", "yes", "c")) == FIRST


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(turn("a"), id="the same prompt again"),
        pytest.param(turn("a", "answer", "b", tenant="other"), id="another tenant"),
        pytest.param(turn("a", "answer", "b", cache_salt="x"), id="another salt"),
        pytest.param(turn("z", "answer", "b"), id="another beginning"),
    ],
)
def test_what_continues_nothing_is_a_session_of_its_own(
    finder: SessionFinder, other: Observation
) -> None:
    finder.find(turn("a"))
    assert found(finder, other) == SECOND


def test_without_messages_and_trace_there_is_no_session(finder: SessionFinder) -> None:
    assert found(finder, turn()) == (None, None)


def test_memory_is_bounded_and_forgets_the_oldest() -> None:
    finder = SessionFinder(max_traces=2, max_prompts=2, new_id=numbers())
    for text in "abc":
        finder.find(turn(text, trace=text.encode() * 16))
    assert found(finder, turn("a", "answer", "b"))[1] == "chain"
    assert found(finder, turn("a", "answer", "b"))[0] != (b"a" * 16).hex()
    assert found(finder, turn("c", "answer", "b"))[0] == (b"c" * 16).hex()
