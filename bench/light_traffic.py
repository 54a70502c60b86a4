"""Measure what light traffic costs the collector, and how soon a request can be queried.

Starts a real `evenkeel collect` in a temporary folder and sends requests one by one, like a server
with few users: first without readers, then with one that queries occasionally, then with one that
queries until it sees each request. Prints a table and writes JSON.

    python bench/light_traffic.py                                  # the full run, five minutes
    python bench/light_traffic.py --seconds 10 --probes 3 --idle-seconds 2   # a smoke run
    python bench/light_traffic.py --slos slos.yaml                 # with SLO evaluation
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import psutil
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from tests.fixtures.collector_process import CollectorProcess, running_collector
from tests.fixtures.otlp_payload import any_value, key_values

PROTOBUF = {"content-type": "application/x-protobuf"}
PHASES = ("evenkeel.queue", "evenkeel.prefill", "evenkeel.decode")
# Time for the collector's start to be over.
SETTLE_S = 10.0
POLL_S = 0.05
GLANCE_S = 10.0
VISIBLE_TIMEOUT_S = 60.0
STORED = "SELECT count() FROM requests"


def request_of(request_id: str, rng: random.Random) -> bytes:
    """Return the spans of one request as the runtime exports them: itself and its phases."""
    now_ns = time.time_ns()
    trace_id, span_id = rng.randbytes(16), rng.randbytes(8)
    gaps = [rng.expovariate(20) for _ in range(60)]
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "chat", "gen_ai.request.model": "demo",
        "gen_ai.response.finish_reasons": ["stop"], "gen_ai.usage.input_tokens": 412,
        "gen_ai.usage.output_tokens": 60, "gen_ai.usage.cache_read.input_tokens": 256,
        "evenkeel.request.id": request_id, "evenkeel.tenant": "acme", "evenkeel.status": "ok",
        "evenkeel.slo_class": "chat", "evenkeel.route": "/v1/chat/completions",
        "evenkeel.queue_s": 0.002, "evenkeel.prefill_s": 0.04, "evenkeel.decode_s": sum(gaps),
        "evenkeel.ttft_s": rng.random(), "evenkeel.tpot_s": sum(gaps) / 59,
        "evenkeel.itl_p50_s": sorted(gaps)[30], "evenkeel.itl_p99_s": max(gaps),
        "evenkeel.stall_s": max(gaps), "evenkeel.e2e_s": 1 + rng.random(),
        "evenkeel.emission_time_s": gaps, "evenkeel.emission_tokens": [1] * 60,
        "evenkeel.ledger.decode.compute": 0.5, "evenkeel.ledger.prefill.compute": 0.04,
    }  # fmt: skip
    message = ExportTraceServiceRequest()
    resource = message.resource_spans.add()
    resource.resource.attributes.extend(
        key_values({"service.name": "bench", "service.instance.id": "1"})
    )
    spans = resource.scope_spans.add().spans
    root = spans.add(
        trace_id=trace_id, span_id=span_id, name="chat demo", kind=2,
        start_time_unix_nano=now_ns - 10**9, end_time_unix_nano=now_ns,
    )  # fmt: skip
    for name, value in attributes.items():
        root.attributes.add(key=name, value=any_value(value))
    for phase in PHASES:
        spans.add(
            trace_id=trace_id, span_id=rng.randbytes(8), parent_span_id=span_id, name=phase, kind=1,
            start_time_unix_nano=now_ns - 10**9, end_time_unix_nano=now_ns,
            attributes=key_values({"gen_ai.request.model": "demo"}),
        )  # fmt: skip
    return message.SerializeToString()


class Sender(threading.Thread):
    """Sends requests at a steady rate until it is stopped."""

    def __init__(self, url: str, per_s: float, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self._url, self._per_s, self._rng = url, per_s, rng
        self.num_sent = 0
        self.stopped = threading.Event()
        self.error: Exception | None = None

    def run(self) -> None:
        """Send, each request at its time; an idle collector is not what is measured."""
        try:
            self._send()
        except httpx.HTTPError as error:
            self.error = error

    def end(self) -> None:
        """Send no more.

        Raises:
            SystemExit: If a request was not taken.
        """
        self.stopped.set()
        self.join()
        if self.error is not None:
            raise SystemExit(f"light_traffic: a request was not taken: {self.error!r}")

    def _send(self) -> None:
        begin_s = time.monotonic()
        with httpx.Client(timeout=30) as client:
            while not self.stopped.wait(
                max(begin_s + self.num_sent / self._per_s - time.monotonic(), 0)
            ):
                body = request_of(f"steady-{self.num_sent}", self._rng)
                client.post(self._url, content=body, headers=PROTOBUF).raise_for_status()
                self.num_sent += 1


def cpu_percent(process: psutil.Process, seconds: float, look: Any = None) -> float:
    """Return the fraction of a core that a process uses, with occasional queries."""
    before_s, begin_s = sum(process.cpu_times()[:2]), time.monotonic()
    while (left_s := begin_s + seconds - time.monotonic()) > 0:
        if look is not None:
            look()
        time.sleep(min(GLANCE_S, left_s))
    return 100 * (sum(process.cpu_times()[:2]) - before_s) / (time.monotonic() - begin_s)


def delays_s(collector: CollectorProcess, num_probes: int, rng: random.Random) -> list[float]:
    """Return the time from acknowledgement to first appearance in a query, per request."""
    found = []
    client = collector.client()
    with httpx.Client(timeout=30) as sender:
        for number in range(num_probes):
            time.sleep(rng.uniform(0, 3))
            body = request_of(f"probe-{number}", rng)
            url = f"{collector.http_url}/v1/traces"
            sender.post(url, content=body, headers=PROTOBUF).raise_for_status()
            begin_s = time.monotonic()
            sql = f"{STORED} WHERE request_id = 'probe-{number}'"
            while not client.query(sql).first_row[0]:
                if time.monotonic() - begin_s > VISIBLE_TIMEOUT_S:
                    raise SystemExit(f"a request is not visible after {VISIBLE_TIMEOUT_S} s")
                time.sleep(POLL_S)
            found.append(time.monotonic() - begin_s)
    client.close()
    return found


def ask_once(collector: CollectorProcess, num_probes: int, rng: random.Random) -> tuple[float, int]:
    """Query requests of 3 s ago, once each, without other readers.

    Returns:
        The longest time to an answer, and how many answers lacked the request.
    """
    longest_s, num_lacking = 0.0, 0
    client = collector.client()
    with httpx.Client(timeout=30) as sender:
        for number in range(num_probes):
            body = request_of(f"once-{number}", rng)
            url = f"{collector.http_url}/v1/traces"
            sender.post(url, content=body, headers=PROTOBUF).raise_for_status()
            time.sleep(3.0)
            begin_s = time.monotonic()
            sql = f"{STORED} WHERE request_id = 'once-{number}'"
            num_lacking += not client.query(sql).first_row[0]
            longest_s = max(longest_s, time.monotonic() - begin_s)
    client.close()
    return longest_s, num_lacking


def measure(args: argparse.Namespace, folder: Path) -> dict[str, float]:
    rng = random.Random(args.seed)
    flags = ["--slos", str(args.slos.resolve())] if args.slos else []
    with running_collector(folder, flags) as collector:
        process = psutil.Process(collector.process.pid)
        time.sleep(min(SETTLE_S, args.idle_seconds))
        figures = {"idle_cpu_percent": cpu_percent(process, args.idle_seconds)}
        sender = Sender(f"{collector.http_url}/v1/traces", args.per_s, rng)
        sender.start()
        try:
            figures["cpu_percent"] = cpu_percent(process, args.seconds)
            client = collector.client()
            figures["read_cpu_percent"] = cpu_percent(
                process, args.seconds, lambda: client.query(STORED)
            )
            client.close()
            longest_s, num_lacking = ask_once(collector, args.probes, rng)
            figures["answer_after_quiet_s"] = longest_s
            figures["answers_that_lacked_it"] = num_lacking
            delays = sorted(delays_s(collector, args.probes, rng))
        finally:
            sender.end()
        figures["visible_p50_s"] = delays[len(delays) // 2]
        figures["visible_max_s"] = delays[-1]
        figures["sent"] = sender.num_sent + 2 * args.probes
        deadline_s = time.monotonic() + VISIBLE_TIMEOUT_S
        while (stored := collector.rows(STORED)[0][0]) < figures["sent"]:
            if time.monotonic() > deadline_s:
                break
            time.sleep(POLL_S)
        figures["stored"] = stored
    return figures


def main() -> int:
    """Run, print the table, write the JSON; exit 1 if a request was lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--per-s", type=float, default=3.0, help="requests a second")
    parser.add_argument("--seconds", type=float, default=90.0, help="of each reading of CPU")
    parser.add_argument("--idle-seconds", type=float, default=20.0)
    parser.add_argument("--probes", type=int, default=30)
    parser.add_argument("--slos", type=Path)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument(
        "--json", dest="output", type=Path, default=Path("build/bench/light_traffic.json")
    )
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="light-") as name:
        figures = measure(args, Path(name))
    for key, value in figures.items():
        print(f"{key:22} {value:>10,.3f}")
    write_report(args.output, figures)
    print(args.output)
    return 0 if figures["stored"] == figures["sent"] else 1


if __name__ == "__main__":
    sys.exit(main())
