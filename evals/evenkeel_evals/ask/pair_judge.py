"""Judges pairs of answers with a model, blind and in both orders; flips are discarded."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from evenkeel.toml_file import read_toml_file
from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.ask.client import Call, ChatClient, check_key
from evenkeel_evals.ask.judge_reply import SHOWN, JudgeReply, read_choice
from evenkeel_evals.ask.sides import Side, base_url

DEFAULT_CRITERIA = (
    "Which answer serves the person who asked better? Correct facts come before everything else; "
    "of two correct answers, prefer the one that is clearer. Length by itself is no merit."
)
INSTRUCTION = (
    "You compare two answers to the same request. {criteria}\n"
    "Reply with one word: 1 if Answer 1 is better, 2 if Answer 2 is better, tie if neither is."
)
ORDERS = ("AB", "BA")
_NAME_OF_WINNER = {("AB", "1"): "A", ("AB", "2"): "B", ("BA", "1"): "B", ("BA", "2"): "A"}


@dataclass(frozen=True, slots=True)
class PairJudge:
    """A judge model and its criteria.

    Attributes:
        side: The judge's server, model and sampling.
        criteria: What makes an answer better.
    """

    side: Side
    criteria: str

    @property
    def content_hash(self) -> str:
        """Return a digest of everything that can change a verdict."""
        text = f"{self.side.content_hash}\n{INSTRUCTION}\n{self.criteria}"
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def messages(self, pair: AnsweredPair, order: str) -> list[dict[str, str]]:
        """Return the request; it does not reveal which side an answer is from."""
        question = "\n\n".join(f"{m.role}: {m.content}" for m in pair.item.messages)
        first, second = (pair.a, pair.b) if order == "AB" else (pair.b, pair.a)
        # An answer cannot contain the end marker: it would have to contain its own digest.
        texts = "\0".join(sorted(str(answer.reply.text) for answer in (pair.a, pair.b)))
        mark = hashlib.sha256(texts.encode("utf-8", "replace")).hexdigest()[:12]
        text = (
            f"Request:\n{question}\n\nAnswer 1:\n{first.reply.text}\n{mark}\n\n"
            f"Answer 2:\n{second.reply.text}\n{mark}\n\n"
            f"Each answer ends with the line {mark}. Which is better: 1, 2 or tie?"
        )
        return [
            {"role": "system", "content": INSTRUCTION.format(criteria=self.criteria)},
            {"role": "user", "content": text},
        ]

    async def ask(self, client: ChatClient, pair: AnsweredPair, order: str) -> JudgeReply:
        """Return the judge's reply on a pair in one order.

        Raises:
            KeyRefusedError: If the judge's server refuses the key.
        """
        call = Call(
            side=self.side,
            messages=self.messages(pair, order),
            trace_id=secrets.token_hex(16),
            span_id=secrets.token_hex(8),
            session="judge",
            cache_salt=None,
        )
        reply = await client.ask(call)
        check_key(reply, self.side.url, is_judge=True)
        if reply.text is None:
            return JudgeReply(None)
        verdict = read_verdict(reply.text, order)
        return JudgeReply(verdict, reply.text[:SHOWN] if verdict is None else None)


def read_verdict(text: str, order: str) -> str | None:
    """Return the winner, A, B or tie; None if the text has no verdict or several.

    Args:
        text: The judge's reply.
        order: The order the answers were shown in, AB or BA.
    """
    choice = read_choice(text)
    return choice if choice in (None, "tie") else _NAME_OF_WINNER[order, str(choice)]


class _JudgeFile(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = "judge"
    url: str | None = Field(default=None, pattern="^https?://")
    model: str | None = None
    criteria: str = DEFAULT_CRITERIA
    temperature: float = Field(default=0.0, ge=0)
    # Enough for a reasoning model; others stop after one word.
    max_tokens: int = Field(default=512, ge=1)


def load_judge(path: Path, default_url: str) -> PairJudge:
    """Read a judge from TOML: name, url, model, criteria, temperature, max_tokens.

    Raises:
        ConfigurationError: If the file is missing, is not TOML, or has an unknown or wrong key.
    """
    file = read_toml_file(path, _JudgeFile, secrets=frozenset({"url"}))
    sampling = {"temperature": file.temperature, "max_tokens": file.max_tokens}
    url = base_url(file.url or default_url)
    side = Side(file.name, url, file.model, "evenkeel-judge", "1", None, sampling)
    return PairJudge(side, file.criteria)
