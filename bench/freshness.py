"""Measure how soon a request can be queried under light traffic, and how long a stop takes.

Starts a real `evenkeel collect`, sends one request at a time and queries until its row appears;
then stops the collector right after the last acknowledgement. Prints a table and writes JSON. On a
busy machine the figures mostly reflect the load.

    python bench/freshness.py                              # 60 requests, 10 stops
    python bench/freshness.py --requests 5 --stops 1       # a smoke run
"""

import argparse
import sys
import tempfile
import time
import uuid
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from tests.fixtures.collector_process import (
    PROTOBUF,
    CollectorProcess,
    post,
    running_collector,
    start_collector,
)
from tests.fixtures.otlp_payload import trace_request

REQUEST = {"evenkeel.status": "ok", "gen_ai.request.model": "m"}
GIVE_UP_S = 60.0
COUNT = "SELECT count() FROM requests WHERE service = {service:String}"


def send(collector: CollectorProcess) -> str:
    """Send one request, and return the name it is found by."""
    service = uuid.uuid4().hex
    body = trace_request(1, REQUEST, service=service).SerializeToString()
    post(collector, body, PROTOBUF).raise_for_status()
    return service


def queryable_after_s(collector: CollectorProcess) -> float:
    """Return the seconds from a request's answer to its row."""
    service = send(collector)
    begin_s = time.monotonic()
    client = collector.client()
    try:
        while client.query(COUNT, parameters={"service": service}).first_row[0] == 0:
            if time.monotonic() - begin_s > GIVE_UP_S:
                raise RuntimeError(f"not queryable after {GIVE_UP_S:g} s")
            time.sleep(0.01)
    finally:
        client.close()
    return time.monotonic() - begin_s


def stopped_after_s(folder: Path) -> float:
    """Return the seconds from SIGTERM to the end of a collector that has just taken requests."""
    collector = start_collector(folder)
    for _ in range(20):
        send(collector)
    begin_s = time.monotonic()
    code = collector.stop()
    took_s = time.monotonic() - begin_s
    if code != 0:
        raise RuntimeError(f"the collector ended with code {code}")
    return took_s


def main() -> None:
    """Measure, print, and write JSON if requested."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--pause-s", type=float, default=0.3, help="between two requests")
    parser.add_argument("--stops", type=int, default=10)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fresh = []
        with running_collector(Path(folder, "one")) as collector:
            for _ in range(args.requests):
                fresh.append(queryable_after_s(collector))
                time.sleep(args.pause_s)
        stops = [stopped_after_s(Path(folder, f"stop-{number}")) for number in range(args.stops)]
    fresh.sort()
    found = {
        "queryable_p50_s": fresh[len(fresh) // 2],
        "queryable_max_s": fresh[-1],
        "stop_max_s": max(stops),
    }
    for name, value in found.items():
        print(f"{name:20} {value:.3f}")
    write_report(args.json, found)


if __name__ == "__main__":
    main()
