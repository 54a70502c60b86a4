"""Implements `evenkeel eval run`."""

from __future__ import annotations

import argparse
import datetime as dt
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from rich.console import Console

from evenkeel.errors import ConfigurationError
from evenkeel.prices.price_file import PriceFile, read_price_file
from evenkeel.settings import load
from evenkeel.settings_flags import read_flags
from evenkeel_evals.ask.answer_cache import AnswerCache
from evenkeel_evals.ask.journal import FILE_NAME, held, open_journal
from evenkeel_evals.ask.pair_judge import load_judge
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.ask.run import CacheMode
from evenkeel_evals.ask.schedule import interleave, spread
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.ask.sides import Side, load_side
from evenkeel_evals.compare.calibration import read_assumptions
from evenkeel_evals.compare.comparison import Comparison
from evenkeel_evals.compare.late_checks import require_check_tools, require_judge
from evenkeel_evals.compare.progress import ask_and_judge, make_console
from evenkeel_evals.compare.server_side import record_server_times
from evenkeel_evals.dataset.dataset import (
    Dataset,
    count_clusters,
    load_dataset,
    refuse_damaged,
)
from evenkeel_evals.production.recorded_traffic import NAME
from evenkeel_evals.production.traffic_items import load_traffic
from evenkeel_evals.report import spans as result_spans
from evenkeel_evals.report.files import write_files
from evenkeel_evals.report.table import print_outcome
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gates import CostGate, Gate, parse_gates, with_errors
from evenkeel_evals.verdict.looks import StoppingRule
from evenkeel_evals.verdict.plan import GatePlan, plan_gates, refuse_undecidable
from evenkeel_evals.verdict.pricing import needs_engine_seconds, require_prices, with_unit


def run(args: argparse.Namespace) -> int:
    """Run the comparison given by the arguments and return its exit code.

    Raises:
        ConfigurationError: If an argument, file or setting is wrong; no requests were made then.
        CannotMeasureError: If a server does not answer.
    """
    loaded = load(EvalSettings, read_flags(EvalSettings, args))
    if args.print_config:
        print(loaded.describe())
        return 0
    settings = loaded.settings
    gates = with_errors(parse_gates(args.gate))
    dataset = _read_items(args, settings)
    refuse_damaged(dataset, is_allowed=args.allow_damaged)
    sides = (
        load_side(args.baseline, settings.url.get_secret_value(), settings.prompts_dir),
        load_side(args.candidate, settings.url.get_secret_value(), settings.prompts_dir),
    )
    prices = _read_prices(args, settings, gates, sides)
    gates = with_unit(gates, prices)
    items = spread(dataset.items, args.limit)
    judge = None if args.judge is None else load_judge(args.judge, settings.url.get_secret_value())
    require_check_tools(items, judge, args.allow_python)
    require_judge(gates, judge)
    # With --json, standard output holds one object and nothing else.
    console = make_console(stderr=args.json)
    known, doubt = read_assumptions(args.calibration, dataset)
    for problem in [*dataset.problems, *([doubt] if doubt else [])]:
        print(f"evenkeel: {problem}", file=sys.stderr)
    plan = plan_gates(gates, len(items), known, count_clusters(items))
    is_anytime = StoppingRule(args.mode) is StoppingRule.ANYTIME
    _print_plan(plan, len(items), console, is_anytime=is_anytime)
    if not args.allow_inconclusive:
        refuse_undecidable(plan)
    comparison = Comparison(
        settings=settings,
        gates=gates,
        dataset=dataset,
        sides=sides,
        planned=interleave(items, settings.seed, args.repeats, keeps_clusters=is_anytime),
        cache=CacheMode(args.cache),
        warmup=settings.concurrency if args.warmup is None else args.warmup,
        plan=plan,
        allows_inconclusive=args.allow_inconclusive,
        judge=judge,
        mode=StoppingRule(args.mode),
        guards=args.guard,
        answer_cache=None if args.answer_cache is None else AnswerCache(args.answer_cache),
        folder=args.dataset,
        prices=prices,
    )
    comparison.looks()
    if comparison.num_repeats > 1 and is_anytime:
        raise ConfigurationError("--mode anytime asks each item once; remove --repeats")
    with open_journal(args.report, is_fresh=args.fresh) or nullcontext() as journal:
        recorded = RecordedRun(journal)
        title = f"asking {sides[0].name} and {sides[1].name}"
        judgement = ask_and_judge(comparison, recorded, title, console, args)
        record_server_times(settings, recorded, judgement.pairs)
        return _publish(
            comparison.conclude(recorded, judgement), recorded, comparison, args, console
        )


def _read_prices(
    args: argparse.Namespace,
    settings: EvalSettings,
    gates: Sequence[Gate],
    sides: Sequence[Side],
) -> PriceFile | None:
    """Return the price file, if there is a gate on cost.

    Raises:
        ConfigurationError: If the file is wrong, or nothing can tell what an answer costs.
        CannotMeasureError: If a side's model has no price.
    """
    if not any(isinstance(gate, CostGate) for gate in gates):
        return None
    file = None if args.prices is None else read_price_file(args.prices, "--prices")
    models, now = [side.model for side in sides], dt.datetime.now(dt.UTC)
    if file is not None:
        require_prices(file, models, now)
    if args.mode != StoppingRule.FIXED and needs_engine_seconds(file, models, now):
        raise ConfigurationError(
            "engine seconds are known only after a run; remove --mode, or give prices per "
            "token with --prices"
        )
    if file is None and not settings.store_address(""):
        raise ConfigurationError(
            "a gate on cost needs --prices FILE, or --store-url for the seconds of your own engine"
        )
    return file


def _print_plan(
    plan: Sequence[GatePlan], num_pairs: int, console: Console, *, is_anytime: bool
) -> None:
    console.print(f"what {num_pairs} pairs can detect:", highlight=False)
    for line in plan:
        console.print(f"  {line.describe()}", markup=False, highlight=False)
    if is_anytime:
        console.print("  if judged once, at the end; judging after every pair takes more pairs")


def _read_items(args: argparse.Namespace, settings: EvalSettings) -> Dataset:
    if (args.dataset is None) == (args.traffic is None):
        raise ConfigurationError("give either a dataset folder or --traffic FILE_OR_URL")
    if args.dataset is not None:
        return load_dataset(args.dataset)
    kept = None if args.report is None else args.report / NAME
    if kept is not None and args.fresh and kept.is_dir():
        with held(args.report / FILE_NAME):
            kept.rename(args.report / f"{NAME}-{kept.stat().st_mtime_ns}")
    return load_traffic(args.traffic, args.since, args.limit, settings.seed, kept)


def _publish(
    outcome: Outcome,
    recorded: RecordedRun,
    comparison: Comparison,
    args: argparse.Namespace,
    console: Console,
) -> int:
    endpoint = comparison.settings.otlp_endpoint.get_secret_value()
    if not recorded.is_sent and endpoint != result_spans.NO_ENDPOINT:
        repeat = f"repeat this command later{' without --fresh' if args.fresh else ''}"
        problem: str | None = f"the store lacks engine seconds of it; {repeat}"
        # Without --report, this command would ask everything again, as another run.
        if args.report is None or not comparison.may_be_priced_later(recorded, outcome.pairs):
            problem = result_spans.send(outcome, endpoint)
            if problem is not None and args.report is not None:
                problem += f"; {repeat}: it asks nothing again"
        if problem is None:
            recorded.record_sent()
        else:
            print(f"evenkeel: results were not stored: {problem}", file=sys.stderr)
    if args.report is not None:
        write_files(outcome, args.report, comparison.settings.dashboard_url)
    if args.json:
        record = {**outcome.to_record(), "stored": recorded.is_sent}
        print(json.dumps(record, allow_nan=False))
    else:
        print_outcome(outcome, console)
    return outcome.decision.exit_code
