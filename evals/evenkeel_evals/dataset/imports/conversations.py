"""Converts questions to messages: plain texts, common chat formats and multiple choice."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel_evals.dataset.imports.entries import UnfitError

Turns = list[dict[str, str]]

_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "bot": "assistant"}
_KNOWN = ("system", "developer", "user", "assistant", "tool")


def to_messages(question: Any) -> Turns:
    """Return a question as text messages.

    Args:
        question: A text, or messages with `role` and `content`, or `from` and `value`; content
            may be a list of parts with text.

    Raises:
        UnfitError: If it is empty, or holds something other than text.
    """
    if isinstance(question, str):
        if not question.strip():
            raise UnfitError("its question is empty")
        return [{"role": "user", "content": question}]
    if isinstance(question, list) and question and all(isinstance(t, dict) for t in question):
        return [_turn(turn) for turn in question]
    raise UnfitError("its question is neither a text nor a list of messages with text")


def split_answer(turns: Turns) -> tuple[Turns, str]:
    """Return a conversation up to its last answer, and that answer.

    Raises:
        UnfitError: If it does not end with an answer, or has nothing before it.
    """
    if turns[-1]["role"] != "assistant" or len(turns) < 2:
        raise UnfitError("its messages do not end with a question and the assistant's answer")
    return turns[:-1], turns[-1]["content"]


def to_text(content: Any) -> str | None:
    """Return the text of a message's content; None if it is not text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and content:
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        if len(texts) == len(content) and all(isinstance(text, str) for text in texts):
            return "".join(str(text) for text in texts)
    return None


def _turn(turn: Mapping[str, Any]) -> dict[str, str]:
    role = turn.get("role", turn.get("from"))
    text = to_text(turn.get("content", turn.get("value")))
    if turn.get("tool_calls"):
        raise UnfitError("its question has tool calls, which an item cannot hold")
    if not isinstance(role, str) or text is None:
        raise UnfitError("its question is neither a text nor a list of messages with text")
    role = _ROLES.get(role, role)
    if role not in _KNOWN:
        raise UnfitError(f"role {role!r:.40} is not one of {', '.join(_KNOWN)}")
    return {"role": role, "content": text}


def ask_for_letter(messages: Turns, choices: Sequence[Any], right: int) -> dict[str, Any]:
    """Return messages, reference and scorer of a multiple-choice question.

    Args:
        messages: The question; the choices are added to its last message.
        choices: Texts of the choices.
        right: Index of the right choice.

    Raises:
        UnfitError: If there are too many or too few choices.
    """
    if not 2 <= len(choices) <= len(string.ascii_uppercase):
        raise UnfitError(f"has {len(choices)} choices, expected 2 to 26")
    letters = string.ascii_uppercase[: len(choices)]
    listed = "\n".join(f"{a}) {b}" for a, b in zip(letters, choices, strict=True))
    last = messages[-1]
    asked = f"{last['content']}\n\n{listed}\n\nAnswer with the letter alone."
    return {
        "messages": [*messages[:-1], {**last, "content": asked}],
        "reference": _choosing(letters[right]),
        "scorer": "regex",
    }


def _choosing(letter: str) -> str:
    """Return an expression for answers that begin with a letter, or with "the answer is" and it."""
    answer = r"(?:the\s+)?(?:correct\s+)?(?:answer|choice)"
    chosen = rf"(?i:{answer}(?:\s+is)?\s*:?\s*)?\W*{letter}\b"
    if letter not in "AI":
        return rf"^\W*{chosen}"
    # A and I are words too: "A good choice is B" does not choose A, but "A is correct" does.
    word = r"(?!\s+(?!(?:is|because|since)\b)[a-z])"
    return rf"^\W*(?:(?i:{answer}\s+is\s*:?\s*)\W*{letter}\b|{chosen}{word})"
