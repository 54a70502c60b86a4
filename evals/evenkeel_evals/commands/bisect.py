"""Implements `evenkeel eval bisect`."""

from __future__ import annotations

import argparse
import json
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.settings import load
from evenkeel.settings_flags import read_flags
from evenkeel.store import DEFAULT_URL, Store
from evenkeel_evals.ask.journal import open_journal
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.ask.run import CacheMode
from evenkeel_evals.ask.schedule import interleave, spread
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.compare.bisect_file import load_changes
from evenkeel_evals.compare.bisection import Bisection, Ending, bisect, name_of
from evenkeel_evals.compare.comparison import Comparison
from evenkeel_evals.compare.late_checks import refuse_late_checks
from evenkeel_evals.compare.progress import ask_and_judge, make_console
from evenkeel_evals.dataset.dataset import Dataset, load_dataset, refuse_damaged
from evenkeel_evals.production.recorded_traffic import NAME, keep_traffic, read_traffic
from evenkeel_evals.report.files import write_files
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.decision import EXIT_GOOD, EXIT_REGRESSED
from evenkeel_evals.verdict.gate_verdicts import OVERALL
from evenkeel_evals.verdict.gates import ErrorGate, Gate, parse_gates, with_errors

MOST_REQUESTS = 10_000


def run(args: argparse.Namespace) -> int:
    """Find the change that moved a metric; return 1 if there is one, 0 if nothing moved.

    Raises:
        ConfigurationError: If a file or argument is wrong.
        CannotMeasureError: If a comparison is inconclusive.
    """
    settings = load(EvalSettings, read_flags(EvalSettings, args)).settings
    gates = parse_gates(args.gate)
    if len(gates) > 1:
        raise ConfigurationError("--gate: bisect takes one gate at a time")
    base, changes = load_changes(
        args.changes, settings.url.get_secret_value(), settings.prompts_dir
    )
    dataset = _read_items(args, settings)
    refuse_late_checks(dataset.items)
    console = make_console(stderr=args.json)
    sides = [base, *(change.side for change in changes)]
    names_of_changes = [change.name for change in changes]
    step = _Step(settings, gates[0], dataset, sides, args, console)
    found = bisect(len(changes), lambda a, b: step.compare(a, b, names_of_changes))
    if args.json:
        print(json.dumps(found.to_record(names_of_changes)))
    else:
        _print(found, names_of_changes, gates[0], console)
    return EXIT_GOOD if found.ending is Ending.UNMOVED else EXIT_REGRESSED


def _read_items(args: argparse.Namespace, settings: EvalSettings) -> Dataset:
    if args.dataset is not None:
        dataset = load_dataset(args.dataset)
        refuse_damaged(dataset, is_allowed=args.allow_damaged)
        return dataset
    kept = None if args.report is None else args.report / NAME
    if kept is not None and kept.is_dir() and not args.fresh:
        return load_dataset(kept)
    url = settings.store_address(DEFAULT_URL)
    store = Store(url)
    try:
        rows = read_traffic(store, args.since, args.limit or MOST_REQUESTS)
    finally:
        store.close()
    if kept is not None:
        return keep_traffic(kept, rows)
    with TemporaryDirectory() as folder:
        return keep_traffic(Path(folder) / NAME, rows)


class _Step:
    def __init__(
        self,
        settings: EvalSettings,
        gate: Gate,
        dataset: Dataset,
        sides: list[Side],
        args: argparse.Namespace,
        console: Console,
    ) -> None:
        self._settings = settings
        self._gate = gate
        self._dataset = dataset
        self._sides = sides
        self._args = args
        self._console = console

    def compare(self, before: int, after: int, names: list[str]) -> tuple[Verdict, str]:
        """Return the result of one comparison, run now or read from --report."""
        items = spread(self._dataset.items, self._args.limit)
        comparison = Comparison(
            settings=self._settings,
            gates=with_errors([self._gate]),
            dataset=self._dataset,
            sides=(self._sides[before], self._sides[after]),
            planned=interleave(items, self._settings.seed, self._args.repeats),
            cache=CacheMode(self._args.cache),
            warmup=self._settings.concurrency,
            plan=(),
            allows_inconclusive=False,
        )
        title = f"{name_of(before, names)} against {name_of(after, names)}"
        folder: Path | None = None
        if self._args.report is not None:
            folder = self._args.report / f"{before}-{after}"
        with open_journal(folder, is_fresh=self._args.fresh) or nullcontext() as journal:
            recorded = RecordedRun(journal)
            judgement = ask_and_judge(comparison, recorded, title, self._console, self._args)
            outcome = comparison.conclude(recorded, judgement)
        if folder is not None:
            write_files(outcome, folder, self._settings.dashboard_url)
        headline = f"{title}: {outcome.decision.headline}"
        fails = judgement.has_too_many_errors and not isinstance(self._gate, ErrorGate)
        if outcome.decision.unmeasured is not None or fails:
            raise CannotMeasureError(headline)
        self._console.print(headline, markup=False, highlight=False)
        overall = next(r for r in outcome.results if r.slice_name == OVERALL)
        # Slices are judged too, but the bisection is on the metric over all requests.
        return overall.verdict, outcome.decision.headline


def _print(found: Bisection, names: list[str], gate: Gate, console: Console) -> None:
    if found.change is None:
        line = f"{gate.text} still holds with all {len(names)} changes"
    else:
        name = names[found.change - 1]
        line = f"{gate.text} fails since {name!r} (change {found.change} of {len(names)})"
        if found.ending is Ending.INTERACTION:
            line += "; this change alone does not show it, so several changes add up"
    console.print(line, markup=False, highlight=False)
