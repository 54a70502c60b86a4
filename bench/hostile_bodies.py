"""Send malformed bodies to the collector and check that it survives them.

Mutations of valid protobuf and JSON bodies (changed bytes, values replaced by other JSON values)
are sent over HTTP and gRPC to a real collector. Each must be answered with success, or with a 4xx
and a Status (gRPC: OK, INVALID_ARGUMENT, RESOURCE_EXHAUSTED). The collector must keep running and
store what it acknowledged, and every table must stay readable. Prints the figures and writes JSON.

    python bench/hostile_bodies.py                        # 100,000 mutations
    python bench/hostile_bodies.py --mutations 2000       # a smoke run
"""

import argparse
import itertools
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import httpx
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from tests.fixtures.collector_process import CollectorProcess, running_collector
from tests.hostile.hostile_bodies import (
    FAIR_CODES,
    GRPC_METHODS,
    PROTOBUF,
    Body,
    complaint,
    mutations,
)

NUM_SENDERS = 4
# One in this many is sent over gRPC, if possible.
GRPC_ONE_IN = 4
DRAIN_S = 300
TABLES = ("spans", "requests", "requests_1m", "requests_1h", "engine_state", "feedback",
          "eval_results", "live_evaluations", "engine_steps", "refused_numbers")  # fmt: skip


@dataclass
class Tally:
    """Counts of the responses; shared by the senders."""

    statuses: Counter[str] = field(default_factory=Counter)
    unfair: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def record(self, status: str, wrong: str | None) -> None:
        """Count a response, and record what is wrong with it."""
        with self.lock:
            self.statuses[status] += 1
            if wrong is not None:
                self.unfair.append(wrong)


def send(collector: CollectorProcess, bodies: Iterable[Body], tally: Tally) -> None:
    """Send bodies, one after the other."""
    address = collector.grpc_url.removeprefix("http://")
    with httpx.Client(timeout=60) as client, grpc.insecure_channel(address) as channel:
        for number, body in enumerate(bodies):
            if number % GRPC_ONE_IN == 0 and body.path in GRPC_METHODS and body.headers == PROTOBUF:
                code = call(channel, body)
                tally.record(f"grpc {code}", None if code in FAIR_CODES else f"{code}: {body}")
                continue
            url = f"{collector.http_url}{body.path}"
            try:
                answer = client.post(url, content=body.content, headers=body.raw_headers)
            except httpx.HTTPError as error:
                tally.record("no answer", f"{error!r}: {body}")
                continue
            wrong = complaint(body, answer.status_code, answer.headers, answer.content)
            tally.record(
                f"http {answer.status_code}", None if wrong is None else f"{wrong}: {body}"
            )


def call(channel: grpc.Channel, body: Body) -> str:
    """Return the code that gRPC answers."""
    try:
        channel.unary_unary(GRPC_METHODS[body.path])(body.content, timeout=60)
    except grpc.RpcError as error:
        return str(error.code().name)
    return "OK"


def figure(collector: CollectorProcess, name: str) -> int:
    """Return a figure of `/metrics`, its labels summed up."""
    lines = httpx.get(f"{collector.http_url}/metrics", timeout=30).text.splitlines()
    return int(sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name)))


def unreadable(collector: CollectorProcess) -> list[str]:
    """Return the tables that cannot be read to their last value."""
    found = []
    for table in TABLES:
        answer = httpx.post(
            f"{collector.query_url}/?database=evenkeel",
            content=f"SELECT sum(cityHash64(*)) FROM {table}",
            timeout=60,
        )
        if answer.status_code != 200:
            found.append(f"{table}: {answer.text[:200]}")
    return found


def run(folder: Path, num_mutations: int, seed: int) -> dict[str, object]:
    """Return the figures of one run."""
    tally = Tally()
    with running_collector(folder) as collector:
        process = psutil.Process(collector.process.pid)
        before_bytes = process.memory_info().rss
        began_s = time.monotonic()
        share = num_mutations // NUM_SENDERS
        threads = [
            threading.Thread(
                target=send,
                args=(
                    collector,
                    itertools.islice(mutations(random.Random(seed + place)), share),
                    tally,
                ),
            )
            for place in range(NUM_SENDERS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took_s = time.monotonic() - began_s
        is_alive = collector.process.poll() is None
        accepted = figure(collector, "evenkeel_collector_spans_accepted_total")
        stored = wait_stored(collector, "spans", accepted)
        records = figure(collector, "evenkeel_collector_log_records_accepted_total")
        records_stored = wait_stored(collector, "logs", records)
        results: dict[str, object] = {
            "mutations": share * NUM_SENDERS,
            "answers": dict(sorted(tally.statuses.items())),
            "unfair_answers": len(tally.unfair),
            "first_unfair": tally.unfair[:3],
            "alive": is_alive,
            "spans_accepted": accepted,
            "spans_stored": stored,
            "log_records_accepted": records,
            "log_records_stored": records_stored,
            "numbers_refused": int(collector.rows("SELECT sum(num) FROM refused_numbers")[0][0]),
            "quarantined": figure(collector, "evenkeel_collector_segments_quarantined_total"),
            "insert_failures": figure(collector, "evenkeel_collector_insert_failures_total"),
            "unreadable": unreadable(collector),
            "tracebacks": collector.stderr().count("Traceback"),
            "unexpected_in_parsing": collector.stderr().count("cannot read a body"),
            "memory_grown_mib": (process.memory_info().rss - before_bytes) >> 20,
            "answers_per_s": round(share * NUM_SENDERS / took_s),
        }
    return results


def wait_stored(collector: CollectorProcess, table: str, accepted: int) -> int:
    """Return the number of a table's rows once it is what was accepted, or at the timeout."""
    stored = -1
    deadline = time.monotonic() + DRAIN_S
    while stored != accepted and time.monotonic() < deadline:
        time.sleep(0.5)
        stored = int(collector.rows(f"SELECT count() FROM {table}")[0][0])
    return stored


def is_good(results: dict[str, object]) -> bool:
    """Whether nothing went wrong."""
    faults = (
        "unfair_answers", "quarantined", "insert_failures", "unreadable", "tracebacks",
        "unexpected_in_parsing",
    )  # fmt: skip
    return (
        bool(results["alive"])
        and results["spans_accepted"] == results["spans_stored"]
        and results["log_records_accepted"] == results["log_records_stored"]
        and not any(results[name] for name in faults)
    )


def main() -> int:
    """Run, print the figures, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mutations", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=14)
    parser.add_argument(
        "--json", dest="output", type=Path, default=Path("build/bench/hostile_bodies.json")
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hostile-") as name:
        results = run(Path(name), args.mutations, args.seed)
    for key, value in results.items():
        print(f"{key:24} {value}")
    write_report(args.output, results)
    print(f"{args.output}; nothing went wrong: {'yes' if is_good(results) else 'NO'}")
    return 0 if is_good(results) else 1


if __name__ == "__main__":
    sys.exit(main())
