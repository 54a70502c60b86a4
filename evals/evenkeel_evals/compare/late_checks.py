"""Makes the late checks that scorers need: verdicts of a model, results of Python functions."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.answers import AnsweredPair, are_identical, merge
from evenkeel_evals.ask.client import ChatClient
from evenkeel_evals.ask.judge_reply import NOTHING_SAID, JudgeReply
from evenkeel_evals.ask.pair_judge import ORDERS, PairJudge
from evenkeel_evals.ask.python_checks import PythonChecks
from evenkeel_evals.ask.retries import PatientClient
from evenkeel_evals.ask.rubric_judge import RubricQuestion, ask_all
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.dataset.dataset import Item
from evenkeel_evals.scorers.base import Context, LateCheck, Score
from evenkeel_evals.scorers.late import PYTHON, RUBRIC
from evenkeel_evals.verdict.gates import Gate, PreferenceGate
from evenkeel_evals.verdict.preferences import JudgeQuality, quality

Progress = Callable[[int, int], None]
CheckResults = Mapping[LateCheck, Score]


@dataclass(frozen=True, slots=True)
class AnswerToCheck:
    """One answer that needs late checks.

    Attributes:
        item: The item that was asked.
        answer: The answer.
        context: The facts known about it.
    """

    item: Item
    answer: str
    context: Context


def refuse_late_checks(items: Sequence[Item]) -> None:
    """Reject items that a verb cannot score.

    Raises:
        ConfigurationError: If there are any; the message names the first.
    """
    for item in items:
        if item.scorer.checks:
            raise ConfigurationError(
                f"item {item.id!r:.80} is judged by {item.scorer.checks[0].kind}: only `eval run` "
                "and `eval judge` support that"
            )


def require_check_tools(
    items: Sequence[Item], judge: PairJudge | None, allows_python: bool
) -> None:
    """Check that every item can be scored.

    Raises:
        ConfigurationError: If rubrics have no judge, or Python functions are not allowed.
    """
    for kind, is_allowed, wanted in (
        (PYTHON, allows_python, "run code from the dataset; review it, then pass --allow-python"),
        (RUBRIC, judge is not None, "need a judge model; pass --judge FILE"),
    ):
        found = [item for item in items if any(c.kind == kind for c in item.scorer.checks)]
        if found and not is_allowed:
            others = f" and {len(found) - 1} more" if len(found) > 1 else ""
            raise ConfigurationError(
                f"item {found[0].id!r:.80}{others}: {kind} assertions {wanted}"
            )


def require_judge(gates: Sequence[Gate], judge: PairJudge | None) -> None:
    """Check that a gate on preference has a judge.

    Raises:
        ConfigurationError: If there is such a gate and no judge.
    """
    if judge is None and any(isinstance(gate, PreferenceGate) for gate in gates):
        raise ConfigurationError("a gate on preference needs a judge; pass --judge FILE")


def needs_judge(items: Sequence[Item]) -> bool:
    """Return whether an item has a rubric."""
    return any(check.kind == RUBRIC for item in items for check in item.scorer.checks)


def run_python(
    wanted: Sequence[AnswerToCheck], folder: Path, progress: Progress
) -> list[CheckResults]:
    """Return the results of each answer's Python functions, in the order of the answers.

    Raises:
        ConfigurationError: If a function's file is not in the dataset's folder.
    """
    found: list[CheckResults] = []
    with PythonChecks(folder) as checks:
        for check in {c for w in wanted for c in w.item.scorer.checks if c.kind == PYTHON}:
            checks.find(check)
        for number, want in enumerate(wanted, start=1):
            mine = [check for check in want.item.scorer.checks if check.kind == PYTHON]
            found.append({c: checks.run(c, want.item, want.answer, want.context) for c in mine})
            if mine:
                progress(number, len(wanted))
    return found


def ask_rubrics(
    wanted: Sequence[AnswerToCheck], judge: PairJudge, settings: EvalSettings, progress: Progress
) -> list[CheckResults]:
    """Return the judge's scores of the answers, in order; identical texts are judged once.

    Raises:
        CannotMeasureError: If the judge's server does not answer.
        ConfigurationError: If it does not have the model.
    """
    questions = {
        (want.item.id, check, want.answer): RubricQuestion(check, want.item, want.answer)
        for want in wanted
        for check in want.item.scorer.checks
        if check.kind == RUBRIC
    }

    async def ask() -> list[Score]:
        async with _client(judge, settings) as client:
            model = await client.find_model(judge.side.url, judge.side.model)
            side = replace(judge.side, model=model)
            listed = list(questions.values())
            return await ask_all(client, side, listed, settings.concurrency, progress)

    said = dict(zip(questions, asyncio.run(ask()), strict=True)) if questions else {}
    return [
        {
            check: said[want.item.id, check, want.answer]
            for check in want.item.scorer.checks
            if check.kind == RUBRIC
        }
        for want in wanted
    ]


def ask_preferences(
    pairs: Sequence[AnsweredPair], judge: PairJudge, settings: EvalSettings, progress: Progress
) -> tuple[list[AnsweredPair], JudgeQuality]:
    """Return the pairs with the judge's preferences, and the judge's reliability.

    Raises:
        CannotMeasureError: If the judge's server does not answer.
        ConfigurationError: If it does not have the model.
    """
    spoken: dict[tuple[int, str], JudgeReply] = {}
    open_ = [
        (pair, order)
        for pair in pairs
        if pair.a.reply.text is not None and pair.b.reply.text is not None
        if not are_identical(pair)
        for order in ORDERS
    ]

    async def ask() -> None:
        async with _client(judge, settings) as client:
            model = await client.find_model(judge.side.url, judge.side.model)
            known = replace(judge, side=replace(judge.side, model=model))
            waiting = iter(open_)

            async def work() -> None:
                for pair, order in waiting:
                    spoken[pair.index, order] = await known.ask(client, pair, order)
                    progress(len(spoken), len(open_))

            await asyncio.gather(*(work() for _ in range(settings.concurrency)))

    if open_:
        asyncio.run(ask())
    said = [[spoken.get((pair.index, order), NOTHING_SAID) for order in ORDERS] for pair in pairs]
    verdicts = [(forward.verdict, backward.verdict) for forward, backward in said]
    unreadable = [[one.said for one in both if one.said is not None] for both in said]
    preferred = [
        replace(pair, preference="tie" if are_identical(pair) else merge(both))
        for pair, both in zip(pairs, verdicts, strict=True)
    ]
    found = quality(pairs, verdicts, unreadable)
    return found.apply(preferred), found


def _client(judge: PairJudge, settings: EvalSettings) -> ChatClient:
    key = settings.judge_key(judge.side.url, (settings.url.get_secret_value(),))
    return PatientClient(
        settings.concurrency,
        settings.timeout_s,
        key,
        settings.retry_s,
        lambda line: print(f"evenkeel: {line}", file=sys.stderr),
        settings.slo_class,
    )
