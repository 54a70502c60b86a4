"""Implements `evenkeel eval plan`."""

from __future__ import annotations

import argparse
import json
import sys

from evenkeel_evals.ask.schedule import spread
from evenkeel_evals.compare.calibration import read_assumptions
from evenkeel_evals.dataset.dataset import count_clusters, load_dataset, refuse_damaged
from evenkeel_evals.verdict.decision import EXIT_GOOD, EXIT_UNMEASURED
from evenkeel_evals.verdict.gates import parse_gates
from evenkeel_evals.verdict.plan import plan_gates


def run(args: argparse.Namespace) -> int:
    """Print what each gate can detect on the dataset; return 3 if one cannot be decided on it.

    Raises:
        ConfigurationError: If an argument or file is wrong.
    """
    gates = parse_gates(args.gate)
    dataset = load_dataset(args.dataset)
    refuse_damaged(dataset, is_allowed=args.allow_damaged)
    known, doubt = read_assumptions(args.calibration, dataset)
    for problem in [*dataset.problems, *([doubt] if doubt else [])]:
        print(f"evenkeel: {problem}", file=sys.stderr)
    items = spread(dataset.items, args.limit)
    plan = plan_gates(gates, len(items), known, count_clusters(items))
    refusals = [line.refusal for line in plan if line.refusal is not None]
    code = EXIT_UNMEASURED if refusals else EXIT_GOOD
    if args.json:
        record = {
            "dataset": f"{dataset.name}@{dataset.version}",
            "num_pairs": len(items),
            "gates": [line.to_record() for line in plan],
            "refused": refusals,
            "exit_code": code,
        }
        print(json.dumps(record, allow_nan=False))
        return code
    print(f"{dataset.name}@{dataset.version}, {len(items)} pairs, at 80% power:")
    for line in plan:
        print(f"  {line.describe()}")
    for refusal in refusals:
        print(f"refused: {refusal}")
    if not refusals:
        print("every gate can pass and can fail")
    return code
