"""Prompts and answers as the spans carry them, where the operator wants it."""

import json

import pytest

from evenkeel_runtime.request.content import input_messages, output_messages


def text(role: str, content: str) -> dict[str, object]:
    return {"role": role, "parts": [{"type": "text", "content": content}]}


def event(payload: object) -> bytes:
    return f"data: {json.dumps(payload)}\n\n".encode()


@pytest.mark.parametrize(
    ("asked", "messages"),
    [
        pytest.param(
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hé"}]},
            [text("system", "s"), text("user", "hé")],
            id="chat",
        ),
        pytest.param(
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "text", "text": "a"}, {"type": "image_url"}],
                    }
                ]
            },
            [text("user", "a")],
            id="parts",
        ),
        pytest.param({"prompt": "p"}, [text("user", "p")], id="completion"),
        pytest.param({"prompt": [1, 2]}, None, id="token ids"),
        pytest.param({"messages": 3}, None, id="no list"),
    ],
)
def test_what_was_asked(asked: object, messages: object) -> None:
    found = input_messages(json.dumps(asked).encode())
    assert (None if found is None else json.loads(found)) == messages


@pytest.mark.parametrize(
    ("answered", "answer"),
    [
        pytest.param(
            json.dumps({"choices": [{"message": {"content": "yes"}}]}).encode(), "yes", id="whole"
        ),
        pytest.param(json.dumps({"choices": [{"text": "yes"}]}).encode(), "yes", id="completion"),
        pytest.param(
            event({"choices": [{"index": 0, "delta": {"content": "y"}}]})
            + event({"choices": [{"index": 1, "delta": {"content": "no"}}]})
            + event({"choices": [{"index": 0, "delta": {"content": "es"}}]})
            + event({"choices": [], "usage": {}})
            + b"data: [DONE]\n\n",
            "yes",
            id="stream",
        ),
        pytest.param(event({"choices": [{"delta": {"content": "y"}}]}) + b"data: {", "y", id="cut"),
        pytest.param(b"", None, id="nothing"),
        pytest.param(b"<html>", None, id="something else"),
    ],
)
def test_what_was_answered(answered: bytes, answer: str | None) -> None:
    found = output_messages(answered)
    assert (None if found is None else json.loads(found)[0]) == (
        None if answer is None else text("assistant", answer)
    )
