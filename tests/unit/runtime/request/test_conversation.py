"""Digests of messages: equal for what says the same, different otherwise."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.request.conversation import ANSWER_BIT, MAX_BYTES, digest

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "Where is my parcel?"}
ANSWER = {"role": "assistant", "content": "In Oslo."}


def of(*messages: Any, **more: Any) -> list[bytes]:
    found = digest(json.dumps({"messages": messages, **more}).encode())
    return [found[at : at + 8] for at in range(0, len(found), 8)]


def test_a_longer_conversation_begins_with_the_digests_of_the_shorter() -> None:
    assert of(SYSTEM, USER, ANSWER, USER)[:2] == of(SYSTEM, USER)


def test_answers_are_marked() -> None:
    assert [one[0] & ANSWER_BIT for one in of(SYSTEM, USER, ANSWER)] == [0, 0, 1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        pytest.param(
            USER,
            {"content": [{"type": "text", "text": USER["content"]}], "role": "user"},
            id="text as a list of one part",
        ),
        pytest.param(
            USER,
            {
                "role": "user",
                "content": [
                    {
                        "type": "text",
                        "text": USER["content"],
                        "cache_control": {"type": "ephemeral"},
                    }
                ],
            },
            id="a mark for the cache",
        ),
        pytest.param(ANSWER, {**ANSWER, "tool_calls": None}, id="an absent part"),
    ],
)
def test_what_says_the_same_has_one_digest(one: Any, other: Any) -> None:
    assert of(one) == of(other)


def test_tool_calls_count() -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    other = {"role": "assistant", "tool_calls": [{"function": {"name": "g", "arguments": "{}"}}]}
    assert of(call) != of(other)


def test_instructions_come_first() -> None:
    anthropic = json.dumps({"system": "Be brief.", "messages": [USER]}).encode()
    assert digest(anthropic) == b"".join(of(SYSTEM, USER))
    items = json.dumps({"instructions": "Be brief.", "input": [USER]}).encode()
    assert digest(items) == b"".join(of(SYSTEM, USER))


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"{", id="not JSON"),
        pytest.param(b'{"prompt": "x"}', id="no messages"),
        pytest.param(b'{"messages": "x"}', id="messages that are a text"),
        pytest.param(b'{"messages": []}', id="no message"),
        pytest.param(b'{"input": "hello"}', id="an input that is a text"),
        pytest.param(b'{"messages": [' + b"[" * 5000, id="nested without end"),
        pytest.param(
            b'{"messages": [{"role": "user", "x": ' + b"[" * 600 + b"]" * 600 + b"}]}",
            id="nested deeply",
        ),
        pytest.param(
            json.dumps({"messages": [{"role": "user", "content": "x" * MAX_BYTES}]}).encode(),
            id="too long",
        ),
    ],
)
def test_a_body_without_a_conversation_has_none(body: bytes) -> None:
    assert digest(body) == b""


@given(st.binary(max_size=300))
def test_no_body_fails(body: bytes) -> None:
    assert len(digest(body)) % 8 == 0
