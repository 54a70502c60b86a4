"""Shows the progress of a run: a bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from evenkeel.errors import CannotMeasureError
from evenkeel.outside_text import drawn_on
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.ask.retries import saying_how_to_go_on
from evenkeel_evals.ask.run import Progress as ReportProgress
from evenkeel_evals.compare.comparison import Comparison
from evenkeel_evals.verdict.gate_verdicts import Judgement

LINES_OF_PROGRESS = 4
# Columns if the width is unknown; a table must not be cut off in a CI log.
PLAIN_WIDTH = 160


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        # Without this, rich exits with 1, a regression, in the middle of the run.
        raise CannotMeasureError("the reader of the output has exited")


def make_console(*, stderr: bool) -> Console:
    """Return a console; on standard error if standard output is for JSON.

    It raises CannotMeasureError if the reader of what is printed has exited.
    """
    console = _Screen(stderr=stderr)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


@contextmanager
def show_progress(console: Console, title: str) -> Iterator[ReportProgress]:
    """Show a progress bar on a terminal, a few plain lines elsewhere."""
    if not console.is_terminal:

        def line(done: int, total: int) -> None:
            step = max(1, total // LINES_OF_PROGRESS)
            if done % step == 0 or done == total:
                console.print(f"{title}: {done} of {total}", highlight=False)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    moving = Console(file=drawn_on(console.file))
    with Progress(*columns, TimeRemainingColumn(), console=moving, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def ask_and_judge(
    comparison: Comparison,
    recorded: RecordedRun,
    title: str,
    console: Console,
    args: argparse.Namespace,
) -> Judgement:
    """Ask what is missing and return the judgement; on interruption, print how to resume.

    Raises:
        ConfigurationError: If the records belong to another run, or a server lacks the model.
        CannotMeasureError: If a server does not answer for too long.
    """
    recorded.check_is_same(comparison.identity())
    comparison.find_engine_seconds(recorded)
    judgement = comparison.judge_if_complete(recorded)
    if recorded.beginning is not None:
        there = comparison.describe_answers(recorded)
        state = "is complete, so nothing is asked again (--fresh starts over)"
        if judgement is None:
            state = f"resumes with {there}"
        _print(console, f"run {recorded.beginning.run_id} {state}")
    if judgement is not None:
        return judgement
    with (
        saying_how_to_go_on(args, partial(comparison.describe_answers, recorded)),
        show_progress(console, title) as report,
    ):
        return asyncio.run(comparison.ask(recorded, report, partial(_print, console)))


def _print(console: Console, line: str) -> None:
    """Print a line verbatim, above the bar if there is one."""
    console.print(line, markup=False, highlight=False)
