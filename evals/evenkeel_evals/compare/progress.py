"""A bar on a terminal, a few plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from evenkeel_evals.ask.run import Progress as ReportProgress

LINES_OF_PROGRESS = 4
# Columns where nobody says how wide the screen is; a table must not be cut in a CI log.
PLAIN_WIDTH = 160


def make_console(*, stderr: bool) -> Console:
    """Return a console; on standard error where standard output belongs to JSON."""
    console = Console(stderr=stderr)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def tell(console: Console, line: str) -> None:
    """Show a line as it is: above the bar, while there is one."""
    console.print(line, markup=False, highlight=False)


@contextmanager
def show_progress(console: Console, title: str) -> Iterator[ReportProgress]:
    """Show a bar on a terminal, and a few plain lines elsewhere."""
    if not console.is_terminal:

        def line(done: int, total: int) -> None:
            step = max(1, total // LINES_OF_PROGRESS)
            if done % step == 0 or done == total:
                console.print(f"{title}: {done} of {total}", highlight=False)

        yield line
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
