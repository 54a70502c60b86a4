"""How long `evenkeel whatif` takes, and how far a sample is from the truth.

    python bench/whatif.py --json build/bench/whatif.json
    python bench/whatif.py --requests 20000

An engine that takes each step by itself serves an hour of requests of four tenants. Their spans and
those of its steps go to a real collector. Then each tenant's absence is predicted from the store,
and compared with the same engine without that tenant.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.demo_load import save
from evenkeel.store import Store
from evenkeel.whatif.batching import BatchLimits, StepSpeed, Task
from evenkeel.whatif.reading import predicted_saving
from evenkeel.whatif.saving import PredictedSaving
from tests.fixtures.collector_process import PROTOBUF, post, running_collector, wait_for
from tests.fixtures.stored_work import bodies_of
from tests.unit.evenkeel.whatif.toy_engine import serve

HOUR_S = 3600.0
TENANTS = "abcd"
BEGIN_NS = 1_793_491_200_000_000_000
LIMITS = BatchLimits(seats=64, budget=2048)
# Fixed 6 ms; 8 ms with prompts, and 15 us per token.
SPEED = StepSpeed((6e-3, 5e-5, 2e-8, 0.0), (8e-3, 5e-5, 2e-8, 0.0, 1.5e-5, 1e-10), 1e-4)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--requests", type=int, default=100_000)
    args = parser.parse_args()
    tasks = make_tasks(args.requests)
    whole = serve(tasks, LIMITS, SPEED, TENANTS)
    print(
        f"{len(tasks)} requests, {len(whole.runs)} steps, busy {whole.busy_s:.0f} s of "
        f"{HOUR_S:.0f} s"
    )
    rows = []
    with (
        tempfile.TemporaryDirectory(prefix="ek-") as folder,
        running_collector(Path(folder)) as collector,
    ):
        for body in bodies_of(whole, {"service.name": "bench"}, BEGIN_NS):
            post(collector, body, PROTOBUF).raise_for_status()
        counts = "SELECT (SELECT count() FROM requests), (SELECT sum(num_steps) FROM engine_steps)"
        wait_for(lambda: collector.rows(counts) == [(len(tasks), len(whole.runs))])
        num_runs = collector.rows("SELECT count() FROM engine_steps")[0][0]
        print(f"{num_runs} stored runs of steps")
        store = Store(collector.query_url)
        for place, tenant in enumerate(TENANTS):
            rest = [task for number, task in enumerate(tasks) if number % len(TENANTS) != place]
            saved_s = whole.busy_s - serve(rest, LIMITS, SPEED).busy_s
            rows.append(measure(store, tenant, saved_s))
        store.close()
    took = [float(row["took_s"] or 0.0) for row in rows]
    print(f"took: median {statistics.median(took):.2f} s, longest {max(took):.2f} s")
    save(args.json, {"requests": len(tasks), "busy_s": whole.busy_s, "rows": rows})
    return 0


def make_tasks(num: int) -> list[Task]:
    """Return an hour of requests, whose rate goes up and down."""
    chosen = random.Random(9)
    times_s = sorted(chosen.triangular(0.0, HOUR_S, 0.4 * HOUR_S) for _ in range(num))
    return [
        Task(at_s, chosen.randint(20, 800), 0, chosen.randint(5, 15 + 20 * (number % 4)))
        for number, at_s in enumerate(times_s)
    ]


def measure(store: Store, tenant: str, saved_s: float) -> dict[str, float | str | None]:
    """Predict and compare."""
    from_ms = BEGIN_NS // 10**6
    began, began_cpu_s = time.perf_counter(), time.process_time()
    found = predicted_saving(store.rows, tenant, from_ms, from_ms + round(HOUR_S * 1000))
    took_s = time.perf_counter() - began
    cpu_s = time.process_time() - began_cpu_s
    if not isinstance(found, PredictedSaving):
        print(f"{tenant}: unknown after {took_s:.2f} s: {found.reason}")
        return {"tenant": tenant, "took_s": took_s, "reason": found.reason}
    error = found.saved_s / saved_s - 1
    print(
        f"{tenant}: {found.saved_s:.1f} s ± {found.margin_s or 0:.1f} s predicted from "
        f"{found.replayed_ratio:.0%} of the time, {saved_s:.1f} s saved ({error:+.1%}), replay of "
        f"what happened {found.replay_error:+.2%}, in {took_s:.2f} s, {cpu_s:.2f} s of CPU"
    )
    return {
        "tenant": tenant,
        "took_s": took_s,
        "cpu_s": cpu_s,
        "predicted_s": found.saved_s,
        "margin_s": found.margin_s,
        "saved_s": saved_s,
        "error": error,
        "replayed_ratio": found.replayed_ratio,
    }


if __name__ == "__main__":
    sys.exit(main())
