"""Measure what an insert of a log segment costs the embedded store, by size and by step.

Each row is a separate process with its own store; each round visits the rows in random order.
Prints a table and writes JSON.

    python bench/insert.py                                  # sizes, and what each part costs
    python bench/insert.py --sizes 12 --inserts 20          # the fixed cost
    python bench/insert.py --sizes 40 --variants all --other ../before   # in turns with a checkout
    python bench/insert.py --views                          # what analysing each view costs
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.ingest import NUM_BODIES, build_body
from bench.report import write_report
from evenkeel_collector.intake.otlp_body import check_protobuf
from evenkeel_collector.log.segment_format import encode_segment
from evenkeel_collector.store.storage import insert_segment_file, open_embedded

ROOT = Path(__file__).parents[1]
SPANS_A_BODY = 512
TABLES = ("spans", "requests", "requests_1m", "requests_1h", "engine_state")
VIEWS = "SELECT name FROM system.tables WHERE database = 'evenkeel' AND engine = 'MaterializedView'"
VARIANTS = {
    "all": "what the collector does",
    "unsynced": "without fsync_after_insert and fsync_part_directory",
    "rollups": "without rollups",
    "spans": "into spans alone, without requests and rollups",
    "parse": "parsed, and into no table",
}


def change(client: Any, variant: str) -> None:
    """Make a store one of the variants."""
    if variant == "unsynced":
        for table in TABLES:
            client.command(
                f"ALTER TABLE {table} MODIFY SETTING fsync_after_insert = 0, "
                "fsync_part_directory = 0"
            )
    if variant == "rollups":
        client.command("DROP VIEW requests_to_requests_1m")
        client.command("DROP VIEW requests_to_requests_1h")
    kept = {"spans": {"otlp_traces_to_spans"}, "parse": set[str]()}.get(variant)
    for (view,) in client.query(VIEWS).result_rows:
        if kept is not None and view not in kept:
            client.command(f"DROP VIEW {view}")


def measure(variant: str, num_spans: int, num_inserts: int) -> dict[str, float]:
    """Insert into a fresh store, after two inserts that do not count."""
    spans_a_body = min(num_spans, SPANS_A_BODY)
    num_bodies = num_spans // spans_a_body
    bodies = [check_protobuf(build_body(spans_a_body, seed)).payload for seed in range(NUM_BODIES)]
    chosen = [bodies[index % NUM_BODIES] for index in range(num_bodies)]
    with tempfile.TemporaryDirectory(prefix="insert-") as name:
        path = Path(name) / "segment"
        path.write_bytes(encode_segment("segment", time.time_ns(), chosen))
        del bodies, chosen
        storage = open_embedded(Path(name) / "store")
        client = storage.connect()
        change(client, variant)
        for number in range(2):
            insert_segment_file(client, storage.insert_settings, f"warm-up-{number}", path)
        begin, begin_s = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        for number in range(num_inserts):
            insert_segment_file(client, storage.insert_settings, f"segment-{number}", path)
        end, end_s = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        client.close()
        storage.close()
    cpu_s = end.ru_utime + end.ru_stime - begin.ru_utime - begin.ru_stime
    return {
        "cpu_ms_an_insert": cpu_s / num_inserts * 1e3,
        "cpu_us_a_span": cpu_s / num_inserts / (num_bodies * spans_a_body) * 1e6,
        "wall_ms_an_insert": (end_s - begin_s) / num_inserts * 1e3,
        "peak_mib": end.ru_maxrss / 1024,
    }


def analyse_views(num_rounds: int = 15) -> list[dict[str, Any]]:
    """Return how long each view's query takes to analyse, as at an insert, and its size."""
    with tempfile.TemporaryDirectory(prefix="insert-") as name:
        storage = open_embedded(Path(name) / "store")
        client = storage.connect()
        rows = []
        for view, query in client.query(VIEWS.replace("name", "name, as_select", 1)).result_rows:
            times_s = []
            for _ in range(num_rounds):
                begin_s = time.process_time()
                client.query(
                    f"EXPLAIN PIPELINE {query} SETTINGS query_plan_enable_optimizations = 0"
                )
                times_s.append(time.process_time() - begin_s)
            num_nodes = len(client.query(f"EXPLAIN QUERY TREE {query}").result_rows)
            cpu_ms = statistics.median(times_s) * 1e3
            rows.append({"view": view, "cpu_ms": cpu_ms, "num_nodes": num_nodes})
        client.close()
        storage.close()
    return sorted(rows, key=lambda row: -row["cpu_ms"])


def run_one(tree: Path, variant: str, num_spans: int, num_inserts: int) -> dict[str, float]:
    """Measure one row in a process of a checkout."""
    python = sys.executable if tree == ROOT else str(tree / ".venv/bin/python")
    done = subprocess.run(
        [python, "bench/insert.py", "--one", "--variants", variant, "--sizes", str(num_spans),
         "--inserts", str(num_inserts)],
        stdout=subprocess.PIPE, text=True, check=True, cwd=tree,
    )  # fmt: skip
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> int:
    """Run every row, print the medians, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[12, 512, 8192, 51200])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--inserts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", dest="output", type=Path, default=Path("build/bench/insert.json"))
    parser.add_argument("--other", type=Path, help="another checkout, with a .venv of its own")
    parser.add_argument("--views", action="store_true", help="only analyse the views' queries")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.variants[0], args.sizes[0], args.inserts)), flush=True)
        os._exit(0)
    if args.views:
        views = analyse_views()
        for row in views:
            print(f"{row['view']:32} {row['cpu_ms']:6.1f} ms {row['num_nodes']:>7,} nodes")
        write_report(args.output, views)
        return 0
    trees = {"this": ROOT, **({"other": args.other.resolve()} if args.other else {})}
    rows = [(variant, size) for variant in args.variants for size in args.sizes]
    found: dict[tuple[str, str, int], list[dict[str, float]]] = {}
    for _ in range(args.rounds):
        for variant, size in random.sample(rows, len(rows)):
            for name, tree in trees.items():
                run = run_one(tree, variant, size, args.inserts)
                found.setdefault((name, variant, size), []).append(run)
    results = []
    for (name, variant, size), runs in found.items():
        middle = {figure: statistics.median(run[figure] for run in runs) for figure in runs[0]}
        results.append({"tree": name, "variant": variant, "spans_an_insert": size, **middle})
        figures = "  ".join(f"{figure} {value:8.1f}" for figure, value in middle.items())
        print(f"{name:5} {variant:9} {size:>7,}  {figures}")
    for variant, size in rows if args.other else ():
        pairs = zip(found["this", variant, size], found["other", variant, size], strict=True)
        ratios = [this["cpu_ms_an_insert"] / other["cpu_ms_an_insert"] for this, other in pairs]
        results.append({"variant": variant, "spans_an_insert": size, "cpu_ratios": ratios})
        spread = f"({min(ratios):.2f} to {max(ratios):.2f})"
        print(
            f"CPU, this / other: {variant:9} {size:>7,}  {statistics.median(ratios):.2f} {spread}"
        )
    write_report(args.output, results)
    print(args.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
