"""Late checks of a run, made once its answers are in; each result is recorded as it arrives."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError, EvenkeelError
from evenkeel_evals.ask.client import ChatClient
from evenkeel_evals.ask.pair_judge import PairJudge
from evenkeel_evals.ask.python_checks import PythonChecks
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.ask.rubric_judge import INSTRUCTION, RubricQuestion, ask_one
from evenkeel_evals.ask.schedule import PlannedPair
from evenkeel_evals.ask.scoring import context_of
from evenkeel_evals.dataset.dataset import Item
from evenkeel_evals.scorers.base import LateCheck, Score
from evenkeel_evals.scorers.late import PYTHON, RUBRIC

# Identical answers to an item are judged once per criterion, whichever side gave them.
_Text = tuple[str, LateCheck, str]


@dataclass(frozen=True, slots=True)
class CheckTools:
    """Everything needed to make late checks.

    Attributes:
        folder: The dataset's folder, with its Python assertion files.
        judge: The judge for rubrics; None if there are none.
        concurrency: Requests to the judge in flight at once.
        open_client: Creates the judge's client.
    """

    folder: Path | None
    judge: PairJudge | None
    concurrency: int
    open_client: Callable[[], ChatClient]


@dataclass(frozen=True, slots=True)
class OpenCheck:
    """A check that is still to be made.

    Attributes:
        pair: The pair with the answer.
        letter: The side of the answer, A or B.
        check: The check.
        text: The answer.
    """

    pair: PlannedPair
    letter: str
    check: LateCheck
    text: str

    @property
    def key(self) -> _Text:
        """Return the question for the judge."""
        return self.pair.item.id, self.check, self.text


def open_checks(recorded: RecordedRun, planned: Sequence[PlannedPair]) -> list[OpenCheck]:
    """Return the checks of recorded answers that have no result yet, in the order asked."""
    found = []
    for pair in planned:
        checks = pair.item.scorer.checks
        for letter in pair.order if checks else ():
            answer = recorded.answer(pair, letter)
            if answer is None or answer.reply.text is None or len(answer.checks) >= len(checks):
                continue
            found += [
                OpenCheck(pair, letter, check, answer.reply.text)
                for check in checks
                if check.digest not in answer.checks
            ]
    return found


async def make_checks(
    recorded: RecordedRun, planned: Sequence[PlannedPair], tools: CheckTools
) -> None:
    """Make the checks that have no result yet and record their results.

    Python assertions run one after the other. The judge sees identical answers to an item once,
    whichever side they are from, even across an interruption.

    Raises:
        ConfigurationError: If a function's file is gone, or the judge does not serve the model.
        CannotMeasureError: If the judge's server does not answer for too long, or the disk is full.
    """
    waiting = open_checks(recorded, planned)
    await _run_functions(recorded, [one for one in waiting if one.check.kind == PYTHON], tools)
    rubrics: dict[_Text, list[OpenCheck]] = {}
    for one in waiting:
        if one.check.kind == RUBRIC:
            rubrics.setdefault(one.key, []).append(one)
    for key, score in _said(recorded, planned).items():
        _record(recorded, rubrics.pop(key, []), score)
    if rubrics and tools.judge is not None:
        await _ask_judge(recorded, rubrics, tools.judge, tools)
    await recorded.sync()


async def _run_functions(
    recorded: RecordedRun, waiting: Sequence[OpenCheck], tools: CheckTools
) -> None:
    if not waiting or tools.folder is None:
        return
    with PythonChecks(tools.folder) as functions:
        for one in waiting:
            answer = recorded.answer(one.pair, one.letter)
            assert answer is not None
            context = context_of(answer.reply)
            score = functions.run(one.check, one.pair.item, one.text, context)
            _record(recorded, [one], score)
            await recorded.sync()
            # Nothing else runs meanwhile, but Ctrl-C has to work.
            await asyncio.sleep(0)


async def _ask_judge(
    recorded: RecordedRun,
    rubrics: Mapping[_Text, Sequence[OpenCheck]],
    judge: PairJudge,
    tools: CheckTools,
) -> None:
    waiting = iter(rubrics.values())
    async with tools.open_client() as client:
        model = await client.find_model(judge.side.url, judge.side.model)
        side = replace(judge.side, model=model)

        async def work() -> None:
            for same in waiting:
                first = same[0]
                question = RubricQuestion(first.check, first.pair.item, first.text)
                _record(recorded, same, await ask_one(client, side, question))
                await recorded.sync()

        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(tools.concurrency, len(rubrics))):
                    group.create_task(work())
        except* EvenkeelError as group_error:
            # One line for the user, however many workers hit it.
            raise group_error.exceptions[0] from None


def _said(recorded: RecordedRun, planned: Sequence[PlannedPair]) -> dict[_Text, Score]:
    """Return the judge's recorded results."""
    said: dict[_Text, Score] = {}
    for pair in planned:
        rubrics = [check for check in pair.item.scorer.checks if check.kind == RUBRIC]
        for letter in pair.order if rubrics else ():
            answer = recorded.answer(pair, letter)
            if answer is None or answer.reply.text is None:
                continue
            for check in rubrics:
                if check.digest in answer.checks:
                    key = (pair.item.id, check, answer.reply.text)
                    said[key] = answer.checks[check.digest]
    return said


def _record(recorded: RecordedRun, same: Sequence[OpenCheck], score: Score) -> None:
    for one in same:
        recorded.record_check(one.pair, one.letter, one.check, score)


def identify_checks(
    items: Sequence[Item], judge: PairJudge | None, folder: Path | None
) -> dict[str, str] | None:
    """Return digests of what makes the items' late checks: the judge and each Python file.

    The judge's digest covers its model (or its address if it names none), its sampling and its
    prompt. A file's digest covers the other .py files in its folder, which it may import.

    Args:
        items: The items; the result is None if none of them needs late checks.
        judge: The judge for rubrics.
        folder: The dataset's.

    Raises:
        ConfigurationError: If a function's file cannot be read, or is not in the dataset's folder.
    """
    checks = sorted({check for item in items for check in item.scorer.checks}, key=_order)
    found: dict[str, str] = {}
    if judge is not None and any(check.kind == RUBRIC for check in checks):
        side = judge.side
        found[RUBRIC] = _digest([INSTRUCTION, side.model or side.url, dict(side.sampling)])
    for check in checks:
        name = check.what.rpartition(":")[0]
        if check.kind == PYTHON and folder is not None and name not in found:
            found[name] = _digest(_read_code(PythonChecks(folder).find(check).parent))
    return found or None


def _read_code(folder: Path) -> list[tuple[str, str]]:
    found = []
    try:
        for path in sorted(folder.glob("*.py")):
            if path.is_file():
                with path.open("rb") as file:
                    found.append((path.name, hashlib.file_digest(file, "sha256").hexdigest()))
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be read: {error.strerror}") from error
    return found


def _order(check: LateCheck) -> tuple[str, str, str]:
    return check.kind, check.what, check.detail


def _digest(value: Any) -> str:
    return f"sha256:{hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()}"
