"""Implements `evenkeel eval calibrate`."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from evenkeel.errors import CannotMeasureError
from evenkeel.settings import load
from evenkeel.settings_flags import read_flags
from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.ask.journal import open_journal
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.ask.run import CacheMode
from evenkeel_evals.ask.schedule import interleave, spread
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.ask.sides import load_side
from evenkeel_evals.compare.calibration import Calibration, calibrate
from evenkeel_evals.compare.comparison import Comparison
from evenkeel_evals.compare.late_checks import refuse_late_checks
from evenkeel_evals.compare.progress import ask_and_judge, make_console, show_progress
from evenkeel_evals.dataset.dataset import count_clusters, load_dataset, refuse_damaged
from evenkeel_evals.verdict.decision import EXIT_GOOD, EXIT_UNMEASURED
from evenkeel_evals.verdict.gates import parse_gates, with_errors
from evenkeel_evals.verdict.plan import GatePlan, plan_gates

FILE_NAME = "calibration.json"


def run(args: argparse.Namespace) -> int:
    """Run one side against itself and print its noise; return 3 if a gate is below the noise.

    Raises:
        ConfigurationError: If an argument, file or setting is wrong.
        CannotMeasureError: If a server does not answer.
    """
    settings = load(EvalSettings, read_flags(EvalSettings, args)).settings
    gates = with_errors(parse_gates(args.gate))
    dataset = load_dataset(args.dataset)
    refuse_damaged(dataset, is_allowed=args.allow_damaged)
    refuse_late_checks(dataset.items)
    for problem in dataset.problems:
        print(f"evenkeel: {problem}", file=sys.stderr)
    side = load_side(args.side, settings.url.get_secret_value(), settings.prompts_dir)
    items = spread(dataset.items, args.limit)
    console = make_console(stderr=args.json)
    runs = []
    for number in range(args.runs):
        comparison = Comparison(
            settings=settings.model_copy(update={"seed": settings.seed + number}),
            gates=gates,
            dataset=dataset,
            sides=(side, replace(side, name=f"{side.name} again")),
            planned=interleave(items, settings.seed + number),
            cache=CacheMode(args.cache),
            warmup=settings.concurrency,
            plan=(),
            allows_inconclusive=True,
        )
        title = f"run {number + 1} of {args.runs}, {side.name} against itself"
        folder = None if args.report is None else args.report / f"aa-{number + 1}"
        runs.append(_ask(comparison, folder, console, title, args))
    with show_progress(console, "judging resampled runs") as report:
        identity = (dataset.content_hash, side.content_hash)
        calibration = calibrate(gates, runs, identity, args.resamples, report)
    plan = plan_gates(gates, len(items), calibration.to_assumptions(), count_clusters(items))
    if args.report is not None:
        text = json.dumps(calibration.to_record(), indent=2) + "\n"
        (args.report / FILE_NAME).write_text(text, encoding="utf-8")
    refused = [line for line in plan if line.is_below_noise]
    if args.json:
        gates_record = [line.to_record() for line in plan]
        print(json.dumps({**calibration.to_record(), "gates": gates_record}, allow_nan=False))
    else:
        _print(calibration, plan, args.report, console)
    return EXIT_UNMEASURED if refused else EXIT_GOOD


def _ask(
    comparison: Comparison,
    folder: Path | None,
    console: Console,
    title: str,
    args: argparse.Namespace,
) -> list[AnsweredPair]:
    with open_journal(folder, is_fresh=args.fresh) or nullcontext() as journal:
        recorded = RecordedRun(journal)
        judgement = ask_and_judge(comparison, recorded, title, console, args)
        decision = comparison.conclude(recorded, judgement).decision
    if decision.unmeasured is not None:
        raise CannotMeasureError(decision.headline)
    return recorded.pairs(comparison.planned)


def _print(
    calibration: Calibration, plan: list[GatePlan], folder: Path | None, console: Console
) -> None:
    low, high = calibration.false_alarm_ci95
    lines = [
        f"{calibration.num_runs} runs of {calibration.num_pairs} pairs, nothing changed:",
        f"  items right on one side only: {calibration.discordance:.1%}",
        *(
            f"  {metric} of one item varies by {spread:.1%}"
            for metric, spread in calibration.scatter.items()
        ),
        *(
            f"  {name} moves by up to {floor:.1%} in 19 of 20 runs (noise floor)"
            for name, floor in calibration.noise_floor.items()
        ),
        f"  called regressed: {calibration.num_false_alarms} of {calibration.num_resamples} "
        f"resampled runs ({low:.1%} to {high:.1%})",
        "with these figures:",
        *(f"  {line.describe()}" for line in plan),
        *(f"refused: {line.refusal}" for line in plan if line.is_below_noise),
    ]
    if folder is not None:
        lines.append(f"saved to {folder / FILE_NAME}; use it with --calibration")
    for line in lines:
        console.print(line, markup=False, highlight=False)
