"""Scores replies, using their late check results."""

from __future__ import annotations

from collections.abc import Mapping

from evenkeel_evals.ask.answers import Answer
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.dataset.dataset import Item
from evenkeel_evals.scorers.base import NOTHING_FOUND, Context, LateCheck, Score


def score_reply(item: Item, reply: Reply, context: Context | None = None) -> Score:
    """Return the score of a reply; a failed request is unscored, never wrong.

    Args:
        item: The item that was asked.
        reply: What came back.
        context: Other facts the scorer may use; None takes them from the reply.
    """
    if reply.text is None:
        return Score.unscored(reply.error or "no answer")
    return item.scorer.score(reply.text, context or context_of(reply))


def score_checked(item: Item, answer: Answer) -> Score:
    """Return the score of an answer from its recorded late check results."""
    found = {
        check: answer.checks[check.digest]
        for check in item.scorer.checks
        if check.digest in answer.checks
    }
    return score_reply(item, answer.reply, context_of(answer.reply, found=found))


def context_of(
    reply: Reply, cost: float | None = None, found: Mapping[LateCheck, Score] = NOTHING_FOUND
) -> Context:
    """Return the facts about a reply, besides its text, that scorers may use."""
    return Context(
        ttft_s=reply.ttft_s,
        e2e_s=reply.e2e_s,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cost=cost,
        found=found,
    )
