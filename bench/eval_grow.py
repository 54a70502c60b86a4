"""Measure `evenkeel eval grow` on the support dataset, with and without cached embeddings.

Each figure is the wall time of a new Python process, from its start to the last proposal: imports,
dataset, model, lexical and semantic comparison. Only the store is left out: the failures are made
here by rewording the dataset's own questions. Cold has an empty cache folder, warm the one that the
cold run filled. Medians of several rounds, alternating cold and warm.
"""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.report import write_report

sys.path[0] = str(Path(__file__).parents[1])

ROOT = Path(__file__).parents[1]
DATASET = ROOT / "golden_datasets" / "support"
WANTED_S = 10.0


def propose(folder: Path, cache: Path, num_failures: int) -> None:
    """Do the command's work without a store, and print the result as JSON."""
    from evenkeel_evals.commands.grow import kept_encoder
    from evenkeel_evals.dataset.dataset import find_items_file, load_dataset
    from evenkeel_evals.production.candidates import CandidateFile, ProductionFailure

    dataset = load_dataset(folder)
    questions = [item.messages[-1].content for item in dataset.items]
    failures = [
        ProductionFailure(
            trace_id=f"{number:032x}",
            messages=(("user", f"Hello, could you tell me this: {question} Thank you!"),),
            answer="An answer.",
            reasons=("judge: bad",),
            corrected=None,
        )
        for number, question in enumerate((questions * num_failures)[:num_failures])
    ]
    encode_all = kept_encoder(cache, lambda stage, done, total: None)
    file = CandidateFile(find_items_file(folder))
    proposal = file.propose(failures, dataset, encode_all)
    result = {"items": len(dataset.items), "fresh": len(proposal.fresh)}
    print(json.dumps({**result, "duplicates": len(proposal.duplicates)}))


def measure(folder: Path, cache: Path, num_failures: int) -> tuple[float, dict[str, int]]:
    """Return the seconds of one process and what it proposed."""
    shutil.copytree(DATASET, folder)
    inside = [str(folder), str(cache), "--failures", str(num_failures)]
    began_s = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, "--inside", *inside], check=True, capture_output=True, text=True
    )
    seconds = time.perf_counter() - began_s
    shutil.rmtree(folder)
    result: dict[str, int] = json.loads(done.stdout)
    return seconds, result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--failures", type=int, default=200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--inside", nargs=2, type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside is not None:
        folder, cache = args.inside
        propose(folder, cache, args.failures)
        return 0
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    proposed: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as made:
        for number in range(args.rounds):
            cache = Path(made) / f"cache-{number}"
            for name, taken in seconds.items():
                took_s, found = measure(Path(made) / "support", cache, args.failures)
                if proposed not in ({}, found):
                    print(f"eval_grow: {name} proposes {found}, not {proposed}", file=sys.stderr)
                    return 1
                proposed = found
                taken.append(took_s)
    result = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **proposed,
        "failures": args.failures,
        "wanted_s": WANTED_S,
        "seconds": {
            name: {"median": statistics.median(taken), "min": min(taken), "max": max(taken)}
            for name, taken in seconds.items()
        },
    }
    print(f"{proposed['items']} items, {args.failures} failures, {os.cpu_count()} cores")
    for name, row in result["seconds"].items():  # type: ignore[attr-defined]
        print(f"{name:6} {row['median']:6.1f} s  ({row['min']:.1f} to {row['max']:.1f})")
    write_report(args.json, result)
    return 0


if __name__ == "__main__":
    sys.exit(main())
