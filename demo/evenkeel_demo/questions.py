"""What the demo's clients ask: the golden questions, and popular ones in many wordings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

# A token of the demo model is about a character, and its context holds 4,096 of them: five turns
# of this length with their answers fit beside the system prompt.
MAX_TURN_CHARACTERS = 300
MAX_TOKENS = 64
NUM_POPULAR = 12
POPULAR_ROUTE = "popular"


@dataclass(frozen=True, slots=True)
class GoldenQuestion:
    """One golden question as chat messages, and its correct answer."""

    messages: Sequence[dict[str, str]]
    tag: str
    reference: str = ""
    max_tokens: int = MAX_TOKENS


def stands_alone(question: GoldenQuestion) -> bool:
    """Whether nothing was said before it, and nothing follows.

    So for popular questions, which are what the response cache is for, and for those that would
    make a chat longer than the model's context.
    """
    num_characters = sum(len(message["content"]) for message in question.messages)
    return question.tag == POPULAR_ROUTE or num_characters > MAX_TURN_CHARACTERS


def read_questions(path: Path) -> list[GoldenQuestion]:
    """Return the questions of a golden dataset's `.jsonl` file."""
    items = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line]
    return [GoldenQuestion(item["messages"], item["tags"][0], item["reference"]) for item in items]


def read_popular() -> list[GoldenQuestion]:
    """Return the popular questions in the wordings that the demo model knows.

    Each has one answer. On other wordings the small model is often wrong, and so is any cache that
    agrees with it.
    """
    from golden_datasets.support.rewordings import read_rewordings

    return [
        GoldenQuestion([{"role": "user", "content": wording}], POPULAR_ROUTE, question.answer)
        for question in read_rewordings()[:NUM_POPULAR]
        for wording in question.trained
    ]
