"""Implements `evenkeel eval judge`: scores and judges answers recorded elsewhere, as a run does."""

from __future__ import annotations

import argparse
import datetime as dt
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.prices.price_file import read_price_file
from evenkeel.settings import load
from evenkeel.settings_flags import read_flags
from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.ask.pair_judge import PairJudge, load_judge
from evenkeel_evals.ask.run import CacheMode
from evenkeel_evals.ask.scoring import context_of, score_reply
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.compare.answer_files import AnswerFile, read_answers
from evenkeel_evals.compare.late_checks import (
    AnswerToCheck,
    CheckResults,
    ask_preferences,
    ask_rubrics,
    needs_judge,
    require_check_tools,
    require_judge,
    run_python,
)
from evenkeel_evals.compare.progress import make_console, show_progress
from evenkeel_evals.dataset.dataset import (
    Dataset,
    Item,
    count_clusters,
    load_dataset,
    refuse_damaged,
)
from evenkeel_evals.report.files import write_files
from evenkeel_evals.report.table import print_outcome
from evenkeel_evals.scorers.base import Score
from evenkeel_evals.verdict.decision import decide
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gate_verdicts import OVERALL, GateResult, slices_of
from evenkeel_evals.verdict.gates import (
    AccuracyGate,
    CostGate,
    Gate,
    LatencyGate,
    PreferenceGate,
    parse_gates,
    with_errors,
)
from evenkeel_evals.verdict.looks import judge_once
from evenkeel_evals.verdict.plan import plan_gates
from evenkeel_evals.verdict.preferences import JudgeQuality
from evenkeel_evals.verdict.pricing import Pricing, with_unit

# Problems of a file that are printed; the JSON has more.
LINES_SHOWN = 20


def run(args: argparse.Namespace) -> int:
    """Judge recorded answers and return the exit code of the verdict.

    Raises:
        ConfigurationError: If a file or argument is wrong, or an assertion cannot be judged.
        CannotMeasureError: If a gate's metric was not recorded, or the judge does not answer.
    """
    settings = load(EvalSettings, read_flags(EvalSettings, args)).settings
    gates = with_errors(parse_gates(args.gate))
    dataset = load_dataset(args.dataset)
    refuse_damaged(dataset, is_allowed=args.allow_damaged)
    judge = None if args.judge is None else load_judge(args.judge, settings.url.get_secret_value())
    require_judge(gates, judge)
    prices = None if args.prices is None else read_price_file(args.prices, "--prices")
    has_preference = any(isinstance(gate, PreferenceGate) for gate in gates)
    files = [read_answers(path) for path in (args.baseline, args.candidate)]
    items = _find_items(dataset, files, args)
    require_check_tools(items, judge, args.allow_python)
    warnings = [*dataset.problems, *find_mismatches(dataset, items, files)]
    if judge is not None and not has_preference and not needs_judge(items):
        warnings.append("--judge is unused: no item has a rubric and no gate is on preference")
    for line in [*warnings[:LINES_SHOWN], *_more(warnings)]:
        print(f"evenkeel: {line}", file=sys.stderr)
    console = make_console(stderr=args.json)
    pairs = _score(items, files, judge, settings, args.dataset, console)
    if prices is not None and any(isinstance(gate, CostGate) for gate in gates):
        models = {"A": args.baseline_model, "B": args.candidate_model}
        gates = with_unit(gates, prices)
        pairs = Pricing(prices, dt.datetime.now(dt.UTC), models).apply(pairs)
    check_latencies(gates, pairs)
    judge_quality: JudgeQuality | None = None
    if has_preference and judge is not None:
        with show_progress(console, "asking the judge which is better") as report:
            pairs, judge_quality = ask_preferences(pairs, judge, settings, report)
    outcome = Outcome(
        run_id=_run_id(dataset, files),
        start_ns=0,
        seconds=0.0,
        dataset=dataset,
        sides={letter: _side(file) for letter, file in zip("AB", files, strict=True)},
        seed=settings.seed,
        concurrency=settings.concurrency,
        cache=CacheMode.SHARED,
        plan=plan_gates(gates, len(pairs), num_clusters=count_clusters(items)),
        decision=decide(
            judge_once(gates, pairs, settings.seed),
            settings.max_unmeasured_ratio,
            args.allow_inconclusive,
            judge_quality,
        ),
    )
    if args.report is not None:
        write_files(outcome, args.report, settings.dashboard_url)
    if args.json:
        print(json.dumps(to_record(outcome, warnings), allow_nan=False))
    else:
        print_outcome(outcome, console)
        if any(isinstance(gate, LatencyGate) for gate in gates):
            print("latency is as recorded: the comparison is only fair if the two sides took turns")
    return outcome.decision.exit_code


def _find_items(
    dataset: Dataset, files: Sequence[AnswerFile], args: argparse.Namespace
) -> list[Item]:
    """Return the items that an answers file covers.

    Raises:
        ConfigurationError: If there are none.
    """
    items = [item for item in dataset.items if any(item.id in file.answers for file in files)]
    if not items:
        first = next(iter(files[0].answers))
        raise ConfigurationError(
            f"no answer has the id of an item in {args.dataset}; the first item is "
            f"{dataset.items[0].id!r:.80}, the first answer in {args.baseline} {first!r:.80}"
        )
    return items


def to_record(outcome: Outcome, warnings: Sequence[str]) -> dict[str, Any]:
    """Return the outcome as JSON, with a short record per gate and slice, plus the warnings."""
    return {
        **outcome.to_record(),
        "gates": [_gate_record(result, outcome.pairs) for result in outcome.results],
        "problems": list(warnings),
    }


def _gate_record(result: GateResult, pairs: Sequence[AnsweredPair]) -> dict[str, Any]:
    effect = result.effect
    members = [
        pair
        for pair in pairs
        if result.slice_name == OVERALL or result.slice_name in slices_of(pair.item)
    ]
    lost, gained = _moved(result.gate, members)
    return {
        "gate": result.gate.text,
        "slice": result.slice_name,
        "verdict": result.verdict.value,
        "effect": effect.estimate,
        "low": effect.lower,
        "high": effect.upper,
        "pairs": effect.num_pairs,
        "lost": lost,
        "gained": gained,
    }


def _moved(gate: Gate, pairs: Sequence[AnsweredPair]) -> tuple[int | None, int | None]:
    """Return the numbers of pairs the candidate lost and won; None if the gate has none."""
    if isinstance(gate, PreferenceGate):
        preferred = [pair.preference for pair in pairs]
        return preferred.count("A"), preferred.count("B")
    if not isinstance(gate, AccuracyGate):
        return None, None
    scored = [pair for pair in pairs if pair.is_measured]
    lost = sum(bool(pair.a.is_right) and not pair.b.is_right for pair in scored)
    return lost, sum(bool(pair.b.is_right) and not pair.a.is_right for pair in scored)


def find_mismatches(
    dataset: Dataset, items: Sequence[Item], files: Sequence[AnswerFile]
) -> list[str]:
    """Return one line per mismatch between the dataset and the answers files."""
    lines = [line for file in files for line in file.problems]
    if len(items) < len(dataset.items):
        used = {item.id for item in items}
        left = [item.id for item in dataset.items if item.id not in used]
        lines.append(f"{_items(left)} of {len(dataset.items)} answered in neither file: skipped")
    known = {item.id for item in dataset.items}
    for role, file in zip(("baseline", "candidate"), files, strict=True):
        missing = [item.id for item in items if item.id not in file.answers]
        if missing:
            lines.append(f"{role} {file.name}: {_items(missing)} without an answer: unscored")
        unknown = [name for name in file.answers if name not in known]
        if unknown:
            lines.append(f"{role} {file.name}: {_items(unknown)} not in the dataset: skipped")
    return lines


def _items(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"item {names[0]!r:.80}"
    return f"{len(names):,} items ({', '.join(f'{name!r:.40}' for name in names[:3])}, …)"


def _more(lines: Sequence[str]) -> list[str]:
    return [f"and {len(lines) - LINES_SHOWN:,} more"] if len(lines) > LINES_SHOWN else []


def check_latencies(gates: Sequence[Gate], pairs: Sequence[AnsweredPair]) -> None:
    """Check that every latency gate has data.

    Raises:
        CannotMeasureError: If no pair has a gate's latency on both sides.
    """
    for gate in gates:
        if isinstance(gate, LatencyGate) and all(
            pair.latencies_s(gate.metric) is None for pair in pairs
        ):
            needs = (
                "ttft_s, e2e_s and output_tokens" if gate.metric == "tpot" else f"{gate.metric}_s"
            )
            raise CannotMeasureError(
                f"gate {gate.text}: no item has {needs} above 0 in both files; remove the gate"
            )


def _score(
    items: Sequence[Item],
    files: Sequence[AnswerFile],
    judge: PairJudge | None,
    settings: EvalSettings,
    folder: Path,
    console: Console,
) -> list[AnsweredPair]:
    """Return the scored pairs, after making the late checks that their scorers need."""
    given = [[file.answers.get(item.id) for item in items] for file in files]
    wanted = [
        AnswerToCheck(item, answer.reply.text, context_of(answer.reply, answer.cost))
        for side in given
        for item, answer in zip(items, side, strict=True)
        if answer is not None and answer.reply.text is not None
    ]
    with show_progress(console, "running Python assertions") as report:
        found: list[CheckResults] = run_python(wanted, folder, report)
    if judge is not None:
        with show_progress(console, "asking the judge about rubrics") as report:
            rubrics = ask_rubrics(wanted, judge, settings, report)
        found = [{**a, **b} for a, b in zip(found, rubrics, strict=True)]
    later = iter(found)
    sides = [[_answer(item, file, later) for item in items] for file in files]
    return [
        AnsweredPair(index, item, "A", a, b)
        for index, (item, a, b) in enumerate(zip(items, *sides, strict=True))
    ]


def _answer(item: Item, file: AnswerFile, found: Iterator[CheckResults]) -> Answer:
    given = file.answers.get(item.id)
    if given is None:
        # Not recorded, which is not a failed request.
        return Answer(Reply(0, 0), Score.unscored(f"no answer in {file.name}"), "", "")
    reply = given.reply
    checks = {} if reply.text is None else next(found)
    score = score_reply(item, reply, context_of(reply, given.cost, checks))
    return Answer(reply, score, given.trace_id, "", model=given.model, cost=given.cost)


def _side(file: AnswerFile) -> Side:
    version = file.content_hash.removeprefix("sha256:")[:12]
    return Side(file.name, "", None, "recorded", version, None, {})


def _run_id(dataset: Dataset, files: Sequence[AnswerFile]) -> str:
    """Return a run id that is the same for the same files."""
    text = "\n".join([dataset.content_hash, *(file.content_hash for file in files)])
    return f"judge-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
