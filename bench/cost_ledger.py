"""Whether costs add up to the bill, and whether a tenant's saving is predicted.

    python bench/cost_ledger.py --json build/bench/cost_ledger.json
    python bench/cost_ledger.py --only day|mixes|new|tight|served

day: a day of requests through vLLM's scheduler and our step hook, on a virtual clock that says how
long each step takes. Requests, waste, idle and the rest must add up to the day. Again with a batch
of records that never arrives; and ten busy minutes with preemptions, cancellations,
rejected drafts and lost batches. Then in money: all charges of the export against the time of the
engine times the price of a second.

mixes: 20 mixes of tenants, on engines whose steps cost as on a CPU (parts add) and as on a GPU
(computing and reading overlap): what `evenkeel whatif` predicts from the rows that the store would
have, against the same mix through vLLM's scheduler without the tenant.

new: 40 other mixes, which nobody looked at while the prediction was written.

tight: the mixes again with a sixth of the KV cache, so that requests wait for it or are preempted.

served: one mix on the demo model, served by vLLM on this machine's CPU, with and without a tenant,
in seconds of the engine, in CPU-seconds of its process and, with NVIDIA GPUs, in joules.
"""

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import psutil

from bench.demo_load import Ask as Call
from bench.demo_load import demo_server, question, save, send, spans_of
from evenkeel.prices.price_file import IdleShare
from evenkeel.whatif.saving import PredictedSaving, Unpredictable, predict_saving
from evenkeel.whatif.stored_work import StoredWork
from tests.fixtures import random_model
from tests.fixtures.engine_bill import HOUR, make_bill
from tests.fixtures.replayed_engine import (
    FIRST_WORD,
    NUM_WORDS,
    Ask,
    Replay,
    ReplayedEngine,
    Speed,
    additive,
    open_engine,
    roofline,
)
from tests.fixtures.stored_work import work_of_spans

NUM_MIXES, NUM_NEW = 20, 40
NUM_BLOCKS, TIGHT_BLOCKS = 3000, 500
MIX_S = 40.0
DAY_S = 86_400.0
BUSY_S, BUSY_RATE = 600.0, 0.8
MAX_ERROR = 0.10
MAX_GAP = 0.001


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of tenant: lengths of its shared prefix, of the rest of a prompt, and of an answer."""

    shared: int
    prompt: tuple[int, int]
    answer: tuple[int, int]
    requests_per_s: float
    is_bursty: bool = False


KINDS = {
    "chat": Kind(64, (30, 400), (20, 200), 2.0),
    "documents": Kind(32, (800, 2500), (10, 60), 0.8),
    "agent": Kind(512, (50, 600), (30, 250), 1.2, is_bursty=True),
    "batch": Kind(0, (100, 300), (100, 300), 1.0, is_bursty=True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=("day", "mixes", "new", "tight", "served"))
    args = parser.parse_args()
    figures: dict[str, Any] = {}
    parts: dict[str, Callable[[], Any]] = {
        "day": lambda: with_engine(run_day),
        "mixes": lambda: with_engine(run_mixes),
        "new": lambda: with_engine(partial(run_mixes, first=NUM_MIXES, num=NUM_NEW)),
        "tight": lambda: with_engine(partial(run_mixes, num_blocks=TIGHT_BLOCKS)),
        "served": run_served,
    }
    for name, part in parts.items():
        if args.only in (None, name):
            figures[name] = part()
    save(args.json, figures)
    return 0


def with_engine(run: Callable[[ReplayedEngine], Any]) -> Any:
    """Run with an engine that replays."""
    with tempfile.TemporaryDirectory(prefix="ek-") as folder:
        model = random_model.build(Path(folder), hidden=64, layers=1)
        with open_engine(model) as engine:
            return run(engine)


def make_mix(
    seed: int, num_tenants: int, seconds: float, rate: float
) -> tuple[list[Ask], list[str]]:
    """Return a mix of tenants in the order of arrival, and their names."""
    chosen = random.Random(seed)
    asks: list[Ask] = []
    names = []
    for number in range(num_tenants):
        kind = KINDS[chosen.choice(list(KINDS))]
        names.append(f"tenant-{number}")
        shared = words(chosen, kind.shared)
        at = chosen.expovariate(kind.requests_per_s * rate)
        while at < seconds:
            for _ in range(chosen.randint(1, 6) if kind.is_bursty else 1):
                prompt = shared + words(chosen, chosen.randint(*kind.prompt))
                asks.append(Ask(at, names[-1], prompt, chosen.randint(*kind.answer)))
            gap_s = 3.5 if kind.is_bursty else 1.0
            at += chosen.expovariate(kind.requests_per_s * rate / gap_s)
    return sorted(asks, key=lambda ask: ask.time_s), names


def words(chosen: random.Random, count: int) -> list[int]:
    """Return random tokens."""
    return [FIRST_WORD + chosen.randrange(NUM_WORDS) for _ in range(count)]


def run_mixes(
    engine: ReplayedEngine, first: int = 0, num: int = NUM_MIXES, num_blocks: int = NUM_BLOCKS
) -> dict[str, Any]:
    """Compare the predicted saving with the replay without the tenant."""
    print(
        f"{'mix':>3} {'engine':>8} {'tenants':>7} {'busy':>5} {'predicted':>16} {'replayed':>8} "
        f"{'error':>7} {'by share':>8} {'took':>7}"
    )
    rows = [measure_mix(engine, number, num_blocks) for number in range(first, first + num)]
    errors = [abs(row["error"]) for row in rows if row["error"] is not None]
    within = sum(error <= MAX_ERROR for error in errors)
    covered = [row["is_in_margin"] for row in rows if row["is_in_margin"] is not None]
    print(
        f"within {MAX_ERROR:.0%}: {within} of {len(rows)}; median {statistics.median(errors):.1%}, "
        f"largest {max(errors):.1%}; in the stated margin: {sum(covered)} of {len(covered)}; by "
        "its share of the bill instead: median "
        f"{statistics.median(abs(row['error_of_share']) for row in rows):.1%}"
    )
    return {
        "rows": rows,
        "num_within": within,
        "num_unpredictable": len(rows) - len(errors),
        "median_error": statistics.median(errors),
        "largest_error": max(errors),
        "num_in_margin": sum(covered),
        "num_with_margin": len(covered),
    }


def measure_mix(engine: ReplayedEngine, number: int, num_blocks: int) -> dict[str, Any]:
    """Replay one mix with and without a tenant."""
    chosen = random.Random(1000 + number)
    speed: Speed = (additive, roofline)[number % 2]
    rate = chosen.choice((0.15, 0.4, 0.8, 1.5, 3.0))
    asks, names = make_mix(number, chosen.randint(2, 5), MIX_S, rate)
    dropped = chosen.choice(names)
    options = {"num_blocks": num_blocks, "max_num_seqs": 32}
    whole = engine.replay(asks, speed, seed=number, **options)
    rest = [ask for ask in asks if ask.tenant != dropped]
    without = engine.replay(rest, speed, seed=number + 500, **options)
    saved = whole.busy_s - without.busy_s
    began = time.perf_counter()
    found = predict(whole, dropped)
    took_s = time.perf_counter() - began
    row: dict[str, Any] = {
        "mix": number,
        "engine": speed.__name__,
        "tenants": len(names),
        "requests": len(asks),
        "preempted": whole.num_preempted,
        "utilisation": whole.busy_s / whole.wall_s,
        "replayed_s": saved,
        "error_of_share": whole.spent_s(dropped) / saved - 1,
        "predicted_s": None,
        "margin_s": None,
        "error": None,
        "is_in_margin": None,
        "took_s": took_s,
    }
    words = "unknown"
    if isinstance(found, PredictedSaving):
        margin_s = found.margin_s
        words = f"{found.saved_s:.2f}s ±{'?' if margin_s is None else f'{margin_s:.2f}s'}"
        row |= {
            "predicted_s": found.saved_s,
            "margin_s": margin_s,
            "error": found.saved_s / saved - 1,
            "is_in_margin": None if margin_s is None else abs(found.saved_s - saved) <= margin_s,
        }
    print(
        f"{number:>3} {row['engine']:>8} {row['tenants']:>7} {row['utilisation']:>5.0%} "
        f"{words:>16} {saved:>7.2f}s "
        f"{'' if row['error'] is None else format(row['error'], '+.1%'):>7} "
        f"{row['error_of_share']:>+8.1%} {took_s * 1e3:>5.0f}ms",
        flush=True,
    )
    return row


def predict(whole: Replay, tenant: str) -> PredictedSaving | Unpredictable:
    """Return what the product would predict from the stored rows."""
    requests = sorted(whole.stored_requests, key=lambda row: float(row["time_s"]))
    last = whole.stored_runs[-1]
    end_s = last["time_s"] + last["duration_s"]
    stored = StoredWork(0.0, 0.0, end_s, requests, whole.stored_runs)
    return predict_saving([stored], tenant, whole.busy_s, end_s)


def run_day(engine: ReplayedEngine, seconds: float = DAY_S, rate: float = 0.02) -> dict[str, Any]:
    """Add up a day, whole and with a lost batch, and a busy time in which everything goes wrong."""
    found = {}
    asks = make_day(seconds, rate, leaving=0.05)
    for name, lost in (("whole", ()), ("a lost batch", (40,))):
        replay = engine.replay(asks, additive, lost_batches=lost, num_blocks=400, max_num_seqs=32)
        found[name] = describe_day(name, replay)
    asks = make_day(min(seconds, BUSY_S), BUSY_RATE, leaving=0.15)
    for name, lost in (("busy", ()), ("busy, lost batches", range(100, 105))):
        chosen = random.Random(6)
        replay = engine.replay(
            asks,
            additive,
            lost_batches=lost,
            accept=lambda drafted, chosen=chosen: chosen.randint(0, drafted),
            drafts=3,
            num_blocks=300,
            max_num_seqs=32,
        )
        found[name] = describe_day(name, replay)
    return found


def make_day(seconds: float, rate: float, leaving: float) -> list[Ask]:
    """Return the requests of four tenants; of a part of them, the client leaves early."""
    asks, _ = make_mix(77, 4, seconds, rate)
    chosen = random.Random(5)
    return [
        replace(ask, cancelled_after_s=chosen.uniform(0.1, 1.5))
        if chosen.random() < leaving
        else ask
        for ask in asks
    ]


def describe_day(name: str, replay: Replay) -> dict[str, Any]:
    """Print and return how a day adds up, in seconds and in money."""
    account = replay.account
    wasted, spent = replay.wasted_s(), replay.spent_s()
    parts = {
        "useful_s": spent - wasted,
        "wasted_s": wasted,
        "other_s": account.other_s,
        "lost_s": account.requests_s - spent,
        "between_s": account.between_s,
        "idle_s": account.idle_s,
        "unrecorded_s": account.unrecorded_s,
    }
    gap = (sum(parts.values()) - parts["lost_s"]) / replay.wall_s - 1
    uncharged = 1 - spent / replay.busy_s
    idle_gap = (account.idle_s - replay.idle_s) / replay.wall_s
    num_left = sum(each.was_cancelled for each in replay.requests)
    print(
        f"{name}: {len(replay.requests)} requests, {num_left} cancelled, {replay.num_preempted} "
        f"preemptions, {replay.num_steps} steps, ",
        end="",
    )
    print(", ".join(f"{key.removesuffix('_s')} {value:.2f} s" for key, value in parts.items()))
    print(
        f"  sum without lost / wall time - 1 = {gap:+.5%} (at most {MAX_GAP:.1%}); step time that "
        f"no request is charged with: {uncharged:.4%}; idle, less the clock's: {idle_gap:+.5%} of "
        "the wall time"
    )
    return {
        **parts,
        "wall_s": replay.wall_s,
        "gap": gap,
        "uncharged_ratio": uncharged,
        "idle_gap": idle_gap,
        "num_requests": len(replay.requests),
        "num_cancelled": num_left,
        "num_preempted": replay.num_preempted,
        "num_steps": replay.num_steps,
        "money": {idle.value: describe_bill(replay, idle) for idle in IdleShare},
    }


def describe_bill(replay: Replay, idle: IdleShare) -> dict[str, Any]:
    """Print and return how the charges of a day add up to what its engine costs."""
    used = [(r.tenant, None if r.engine is None else r.engine.spent_s) for r in replay.requests]
    bill = make_bill(used, replay.account, idle)
    owed = replay.wall_s * HOUR / 3600
    gap = bill.effective / owed - 1
    print(
        f"  idle {idle.value}: charges {bill.effective:.4f}, engine {owed:.4f} EUR, {gap:+.5%}; "
        + ", ".join(f"{tenant} {cost:.4f}" for tenant, cost in sorted(bill.of_tenant.items()))
    )
    return {"charged": bill.effective, "owed": owed, "gap": gap, "of_tenant": bill.of_tenant}


def run_served(seconds: float = 40.0, repeats: int = 2) -> dict[str, Any]:
    """Measure one mix on the demo model with and without a tenant, in turn."""
    chosen = random.Random(11)
    asks: list[tuple[float, str, int]] = []
    for tenant, per_s, tokens in (("short", 3.0, (10, 40)), ("long", 1.2, (60, 200))):
        at = chosen.expovariate(per_s)
        while at < seconds:
            asks.append((at, tenant, chosen.randint(*tokens)))
            at += chosen.expovariate(per_s)
    asks.sort(key=lambda each: each[0])
    runs = []
    predicted: list[PredictedSaving | Unpredictable] = []
    with demo_server("--speculate", "none") as served:
        for number in range(2 * repeats):
            kept = ("short",) if number % 2 else ("short", "long")
            # No run finds the prompts of another in the cache.
            mine = [
                (at, f"{tenant}-{number}", Call(question(1000 * number + i), tokens, streams=True))
                for i, (at, tenant, tokens) in enumerate(asks)
                if tenant in kept
            ]
            run = play_served(served, mine)
            work = run.pop("work")
            runs.append(run)
            if not number % 2:
                found = predict_saving([work], f"long-{number}", run["engine_s"], run["wall_s"])
                predicted.append(found)
    whole, without = (sum_up(runs[place::2]) for place in (0, 1))
    measured = {kind: whole[kind] - without[kind] for kind in ("engine_s", "cpu_s")}
    known = [each for each in predicted if isinstance(each, PredictedSaving)]
    figures: dict[str, Any] = {"measured": measured, "runs": runs}
    if len(known) < len(predicted):
        print(f"served: unknown: {predicted}")
        return figures
    saved_s = sum(each.saved_s for each in known)
    cpu_s = saved_s * whole["cpu_s"] / whole["engine_s"]
    figures |= {
        "predicted_engine_s": saved_s,
        "margin_s": [each.margin_s for each in known],
        "replay_error_ratio": [each.replay_error for each in known],
        "error": saved_s / measured["engine_s"] - 1,
        "predicted_cpu_s": cpu_s,
        "error_cpu": cpu_s / measured["cpu_s"] - 1,
    }
    print(
        f"served, {repeats} times: without 'long' {saved_s:.2f} s of engine predicted, "
        f"{measured['engine_s']:.2f} s measured ({figures['error']:+.1%}); CPU {cpu_s:.2f} s "
        f"predicted, {measured['cpu_s']:.2f} s measured ({figures['error_cpu']:+.1%}); replays of "
        f"what happened: {', '.join(f'{each.replay_error:+.1%}' for each in known)}"
    )
    figures["joules"] = describe_joules(whole, without, saved_s)
    return figures


def sum_up(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return seconds of the engine and of the CPU, and joules, over runs."""
    kinds = ("engine_s", "cpu_s", "wall_s", "charged_j")
    by_kind = {
        name: {kind: sum(run[name].get(kind, 0.0) for run in runs) for kind in runs[0][name]}
        for name in ("seconds", "joules")
    }
    return {kind: sum(run[kind] for run in runs) for kind in kinds} | by_kind


def play_served(served: Any, calls: Sequence[tuple[float, str, Call]]) -> dict[str, Any]:
    """Send calls at their times; return engine seconds and CPU-seconds."""
    before_s = settled_engine_time(served)
    before = [counters(served, metric) for metric in ("seconds", "energy_joules")]
    before_cpu_s = cpu_seconds(served)
    began, began_ns = time.perf_counter(), time.time_ns()
    threads = []
    for at, tenant, call in calls:
        time.sleep(max(0.0, began + at - time.perf_counter()))
        threads.append(threading.Thread(target=send, args=(served, call, tenant)))
        threads[-1].start()
    for thread in threads:
        thread.join()
    cpu_s = cpu_seconds(served) - before_cpu_s
    tenants = sorted({tenant for _, tenant, _ in calls})
    spans = {t: spans_of(served, t, sum(each[1] == t for each in calls)) for t in tenants}
    ended_ns = time.time_ns()
    engine_s = settled_engine_time(served) - before_s
    after = [counters(served, metric) for metric in ("seconds", "energy_joules")]
    seconds, joules = (
        {kind: value - was.get(kind, 0.0) for kind, value in now.items()}
        for was, now in zip(before, after, strict=True)
    )
    return {
        "seconds": seconds,
        "joules": joules,
        "charged_j": sum(s.get("evenkeel.energy_j", 0.0) for t in tenants for s in spans[t]),
        "cpu_s": cpu_s,
        "engine_s": engine_s,
        "wall_s": (ended_ns - began_ns) / 1e9,
        "charged_s": {t: sum(s["evenkeel.engine_s"] for s in spans[t]) for t in tenants},
        "work": work_of_spans(served.spans(), began_ns, ended_ns),
    }


def settled_engine_time(served: Any) -> float:
    """Return the seconds that the engine has spent in steps, once they no longer grow."""
    known_s = -1.0
    while (now_s := engine_time(served)) != known_s:
        known_s = now_s
        # The exporter's figures are up to a second old.
        time.sleep(2.0)
    return now_s


def engine_time(served: Any) -> float:
    """Return the seconds that the engine has spent in steps."""
    seconds = counters(served, "seconds")
    return seconds.get("requests", 0.0) + seconds.get("other", 0.0)


def cpu_seconds(served: Any) -> float:
    """Return the CPU-seconds of the server and its children."""
    tree = psutil.Process(served.process.pid)
    times = [p.cpu_times() for p in (tree, *tree.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def counters(served: Any, metric: str) -> dict[str, float]:
    """Return what a counter of the engine says, by kind; nothing without it."""
    import httpx

    found = {}
    for line in httpx.get(f"{served.url}/metrics").text.splitlines():
        if line.startswith(f"evenkeel_engine_{metric}_total") and 'kind="' in line:
            found[line.split('kind="')[1].split('"')[0]] = float(line.split()[-1])
    return found


def watts_of(run: dict[str, Any]) -> tuple[float, float]:
    """Return the power of the GPUs while requests were computed, and without any, in W."""
    busy, idle = (run["joules"][k] / run["seconds"][k] for k in ("requests", "idle"))
    return busy, idle


def describe_joules(whole: dict[str, Any], without: dict[str, Any], saved_s: float) -> Any:
    """Print and return predicted and measured joules above those of an idle engine."""
    if not whole["joules"]:
        print("  joules: not measured (no NVIDIA GPU)")
        return None
    busy_w, idle_w = watts_of(whole)
    used = [sum(run["joules"].values()) - idle_w * run["wall_s"] for run in (whole, without)]
    predicted_j, measured_j = saved_s * (busy_w - idle_w), used[0] - used[1]
    print(
        f"  joules: {busy_w:.0f} W busy, {idle_w:.0f} W idle; {predicted_j:.0f} J predicted, "
        f"{measured_j:.0f} J measured ({predicted_j / measured_j - 1:+.1%}); charged to requests "
        f"{whole['charged_j']:.0f} of {whole['joules']['requests']:.0f} J in their steps"
    )
    return {"predicted_j": predicted_j, "measured_j": measured_j, "runs": [whole, without]}


if __name__ == "__main__":
    sys.exit(main())
