"""Implements `evenkeel eval compare`: two recorded runs, item by item, without any requests."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel.settings import load
from evenkeel.settings_flags import read_flags
from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.ask.journal import FILE_NAME, Journal
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.ask.run import CacheMode
from evenkeel_evals.ask.scoring import score_checked
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.ask.sides import ServeConfig, Side
from evenkeel_evals.compare.progress import make_console
from evenkeel_evals.dataset.dataset import Item, load_dataset, refuse_damaged
from evenkeel_evals.report.files import write_files
from evenkeel_evals.report.table import print_outcome
from evenkeel_evals.scorers.late import RUBRIC
from evenkeel_evals.verdict.decision import decide
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gates import (
    AccuracyGate,
    ErrorGate,
    PreferenceGate,
    parse_gates,
    with_errors,
)
from evenkeel_evals.verdict.looks import judge_once

LETTERS = {"baseline": "A", "candidate": "B"}


@dataclass(frozen=True, slots=True)
class RecordedSide:
    """One side of a finished run.

    Attributes:
        run_id: Id of the run.
        start_ns: Wall-clock time of its start.
        dataset_hash: Hash of the dataset.
        side: The side that answered.
        answers: Answers by item, each item's repeats in the order asked.
        checks: Digests of the judge and the Python assertions.
    """

    run_id: str
    start_ns: int
    dataset_hash: str
    side: Side
    answers: Mapping[str, list[Answer]]
    checks: Mapping[str, str] = field(default_factory=dict)


def run(args: argparse.Namespace) -> int:
    """Compare two recorded runs in accuracy and return the exit code of the verdict.

    Raises:
        ConfigurationError: If a folder holds no finished run, a run used other items than the
            dataset's, or a gate is on latency.
    """
    settings = load(EvalSettings, read_flags(EvalSettings, args)).settings
    gates = with_errors(parse_gates(args.gate))
    for gate in gates:
        if not isinstance(gate, AccuracyGate | ErrorGate) or isinstance(gate, PreferenceGate):
            raise ConfigurationError(
                f"gate {gate.text}: runs from different times can only be compared in accuracy and "
                "errors: machine noise makes 21-51% of unchanged candidates look slower; "
                "use `eval run`"
            )
    if args.report in (args.baseline, args.candidate):
        raise ConfigurationError("--report names one of the two runs and would overwrite it")
    dataset = load_dataset(args.dataset)
    refuse_damaged(dataset, is_allowed=args.allow_damaged)
    sides = [read_side(folder, args.side) for folder in (args.baseline, args.candidate)]
    for folder, recorded in zip((args.baseline, args.candidate), sides, strict=True):
        if recorded.dataset_hash != dataset.content_hash:
            raise ConfigurationError(
                f"{folder} used other items than {args.dataset} has now; "
                "check out that version (`evenkeel eval lock --check` lists what changed)"
            )
    refuse_other_checks(sides[0], sides[1])
    pairs = pair_up(dataset.items, sides[0], sides[1])
    for line in find_unpaired(dataset.items, sides[0], sides[1]):
        print(f"evenkeel: {line}", file=sys.stderr)
    if not pairs:
        raise ConfigurationError("the runs have no items in common")
    outcome = Outcome(
        run_id=f"{sides[0].run_id}+{sides[1].run_id}",
        start_ns=sides[1].start_ns,
        seconds=0.0,
        dataset=dataset,
        sides={"A": sides[0].side, "B": sides[1].side},
        seed=settings.seed,
        concurrency=settings.concurrency,
        cache=CacheMode.SHARED,
        plan=(),
        decision=decide(
            judge_once(gates, pairs, settings.seed),
            settings.max_unmeasured_ratio,
            args.allow_inconclusive,
        ),
    )
    if args.report is not None:
        write_files(outcome, args.report, settings.dashboard_url)
    if args.json:
        print(json.dumps(outcome.to_record(), allow_nan=False))
    else:
        print_outcome(outcome, make_console(stderr=False))
        print("latency is not judged: the runs did not share the machine")
    return outcome.decision.exit_code


def read_side(folder: Path, role: str) -> RecordedSide:
    """Return one side of the run in a `--report` folder.

    Raises:
        ConfigurationError: If the folder holds no finished run.
    """
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        side = _read_manifest_side(manifest["sides"][role])
        run_id, dataset_hash = str(manifest["run_id"]), str(manifest["dataset"]["content_hash"])
    except OSError as error:
        raise ConfigurationError(
            f"{error.filename} cannot be read: {error.strerror}; "
            "expected the --report folder of a finished run"
        ) from error
    except (ValueError, RecursionError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{folder}/manifest.json was not written by `evenkeel eval run`"
        ) from error
    if not (folder / FILE_NAME).is_file():
        raise ConfigurationError(f"{folder} has no {FILE_NAME}, so it has no answers")
    with Journal(folder / FILE_NAME) as journal:
        recorded = RecordedRun(journal)
        if recorded.beginning is None or recorded.beginning.run_id != run_id:
            raise ConfigurationError(
                f"{folder}: {FILE_NAME} and manifest.json belong to different runs"
            )
        start_ns = recorded.beginning.start_ns
        answers = recorded.answers_of(LETTERS[role])
        checks = recorded.beginning.identity.get("checks") or {}
    return RecordedSide(run_id, start_ns, dataset_hash, side, answers, checks)


def _read_manifest_side(record: Mapping[str, Any]) -> Side:
    fields = {key: value for key, value in record.items() if key != "content_hash"}
    serve = fields.pop("serve", None)
    config = None if serve is None else ServeConfig(serve["model"], tuple(serve["flags"]))
    return Side(**fields, serve=config)


def refuse_other_checks(baseline: RecordedSide, candidate: RecordedSide) -> None:
    """Reject runs with different rubric judges or different Python files.

    Raises:
        ConfigurationError: If they differ; the message names the difference.
    """
    a, b = baseline.checks, candidate.checks
    differing = sorted(name for name in a.keys() & b.keys() if a[name] != b[name])
    if differing:
        what = ", ".join("the rubric judge" if x == RUBRIC else x for x in differing)
        raise ConfigurationError(
            f"runs {baseline.run_id} and {candidate.run_id} were not judged the same way: "
            f"{what:.200} differs; repeat one of them"
        )


def _refuse_unchecked(item: Item, side: RecordedSide, answer: Answer) -> None:
    missing = [check for check in item.scorer.checks if check.digest not in answer.checks]
    if missing and answer.reply.text is not None:
        raise ConfigurationError(
            f"item {item.id!r:.80} is judged by {missing[0].kind}, and run {side.run_id} did not "
            "record the result; repeat the run"
        )


def find_unpaired(
    items: Sequence[Item], baseline: RecordedSide, candidate: RecordedSide
) -> list[str]:
    """Return one line per way in which the runs did not ask the same."""
    counts = [
        (len(baseline.answers.get(item.id, ())), len(candidate.answers.get(item.id, ())))
        for item in items
    ]
    asked = [(a, b) for a, b in counts if a or b]
    num_single = sum(not (a and b) for a, b in asked)
    num_uneven = sum(bool(a and b) and a != b for a, b in asked)
    lines = []
    if num_single:
        lines.append(
            f"{num_single} of {len(asked)} items were asked in one of the runs only: skipped"
        )
    if num_uneven:
        lines.append(
            f"{num_uneven} items were asked more often in one of the runs: its first answers count"
        )
    return lines


def pair_up(
    items: tuple[Item, ...], baseline: RecordedSide, candidate: RecordedSide
) -> list[AnsweredPair]:
    """Return the pairs of items that both runs asked, rescored with the dataset's scorers.

    If the numbers of repeats differ, the smaller one is used. The pairs have no latency. Rubrics
    and Python assertions are taken as the runs recorded them.

    Raises:
        ConfigurationError: If a run did not record the result of such an assertion.
    """
    pairs: list[AnsweredPair] = []
    for item in items:
        both = zip(
            baseline.answers.get(item.id, ()), candidate.answers.get(item.id, ()), strict=False
        )
        for a, b in both:
            for side, answer in ((baseline, a), (candidate, b)):
                _refuse_unchecked(item, side, answer)
            again = [replace(x, score=score_checked(item, x)) for x in (a, b)]
            pairs.append(AnsweredPair(len(pairs), item, "A", again[0], again[1], is_split=True))
    return pairs
