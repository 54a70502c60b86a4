"""Measure what starting and stopping a collector costs, with a new store and with an old one.

Starts a real `evenkeel collect` in a temporary folder, which sets up its store, and then again and
again with that store; each is stopped as soon as it is ready. Prints a table and writes JSON.

    python bench/collector_start.py --json build/collector_start.json
    python bench/collector_start.py --other ../before   # in turns with another checkout
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.report import write_report

ROOT = Path(__file__).parents[1]
PORTS = ("--http-port", "0", "--grpc-port", "0", "--query-port", "0")
FIGURES = ("ready_s", "ready_cpu_s", "stop_s", "stop_cpu_s")


def start_and_stop(tree: Path, data_dir: Path, flags: Sequence[str]) -> dict[str, float]:
    """Start a checkout's collector, stop it once it is ready, and return what that took."""
    command = [str(tree / ".venv/bin/python"), "-m", "evenkeel", "collect", "--json"]
    began_s, cpu_before_s = time.monotonic(), children_cpu_s()
    with (data_dir / "stderr.txt").open("a") as stderr:
        process = subprocess.Popen(
            [*command, "--data-dir", str(data_dir), *PORTS, *flags],
            stdout=subprocess.PIPE, stderr=stderr, cwd=data_dir,
        )  # fmt: skip
    assert process.stdout is not None
    if not process.stdout.readline():
        raise SystemExit(f"collector_start: it did not start, see {data_dir}/stderr.txt")
    ready_s, ready_cpu_s = time.monotonic(), cpu_of_s(process.pid)
    process.terminate()
    process.wait()
    process.stdout.close()
    cpu_s = children_cpu_s() - cpu_before_s
    return {
        "ready_s": ready_s - began_s,
        "ready_cpu_s": ready_cpu_s,
        "stop_s": time.monotonic() - ready_s,
        "stop_cpu_s": cpu_s - ready_cpu_s,
    }


def children_cpu_s() -> float:
    times = os.times()
    return times.children_user + times.children_system


def cpu_of_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="new stores per checkout")
    parser.add_argument("--restarts", type=int, default=3, help="starts with each of them after")
    parser.add_argument("--other", type=Path, help="another checkout, with a .venv of its own")
    parser.add_argument("--slos", type=Path)
    parser.add_argument("--json", dest="output", type=Path,
                        default=Path("build/bench/collector_start.json"))  # fmt: skip
    args = parser.parse_args()
    flags = ["--slos", str(args.slos.resolve())] if args.slos else []
    trees = {"this": ROOT, **({"other": args.other.resolve()} if args.other else {})}
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.rounds):
        for name, tree in trees.items():
            with tempfile.TemporaryDirectory(prefix="start-") as folder:
                for number in range(1 + args.restarts):
                    kind = f"{name}, {'old' if number else 'new'} store"
                    found.setdefault(kind, []).append(start_and_stop(tree, Path(folder), flags))
    print(f"| {'collector':18} |" + "".join(f" {name:>20} |" for name in FIGURES))
    for kind, runs in found.items():
        print(f"| {kind:18} |", end="")
        for name in FIGURES:
            values = sorted(run[name] for run in runs)
            spread = f"({values[0]:.2f} to {values[-1]:.2f})"
            print(f" {statistics.median(values):4.2f} {spread:>15} |", end="")
        print()
    write_report(args.output, {"cores": os.cpu_count(), "runs": found})
    print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
