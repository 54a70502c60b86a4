"""Gives replies their scores, with what was found out about them beforehand."""

from __future__ import annotations

from collections.abc import Mapping

from evenkeel.errors import EvenkeelError
from evenkeel_evals.ask.answers import Answer
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.dataset.dataset import Item
from evenkeel_evals.scorers.base import NOTHING_FOUND, Context, LateCheck, Score


def score_reply(item: Item, reply: Reply, context: Context | None = None) -> Score:
    """Return the score of a reply; what is no answer is unscored, never wrong.

    Args:
        item: What was asked.
        reply: What came back.
        context: What its scorer may know besides; None for what the reply says.
    """
    if reply.text is None:
        return Score.unscored(reply.error or "no answer")
    try:
        return item.scorer.score(reply.text, context or context_of(reply))
    except EvenkeelError:
        raise
    except Exception as error:
        # An odd answer must not end a run of hundreds: it has no score, and the reason is shown.
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        return Score.unscored(f"the scorer {item.scorer.name} failed: {what[:200]}")


def score_checked(item: Item, answer: Answer) -> Score:
    """Return the score of an answer by the results of its late checks that were recorded."""
    found = {
        check: answer.checks[check.digest]
        for check in item.scorer.checks
        if check.digest in answer.checks
    }
    return score_reply(item, answer.reply, context_of(answer.reply, found=found))


def context_of(
    reply: Reply, cost: float | None = None, found: Mapping[LateCheck, Score] = NOTHING_FOUND
) -> Context:
    """Return what scorers may know of a reply besides its text."""
    return Context(
        ttft_s=reply.ttft_s,
        e2e_s=reply.e2e_s,
        input_tokens=reply.input_tokens,
        output_tokens=reply.output_tokens,
        cost=cost,
        found=found,
    )
