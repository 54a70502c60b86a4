"""Measure how late the webhook of a breach arrives, beyond the windows' closed-form delay.

    python bench/slo_delay.py --json build/bench/slo_delay.json

A real `evenkeel collect` gets six hours of good requests over OTLP, then only bad ones, at the same
rate. With default windows a page of target t is due limit × 1 h after the first bad one (limit =
14.4 × (1 − t)); the printed figure is how much later its notification arrived.
"""

import argparse
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx

from bench.report import write_report
from evenkeel.slo.burn_rates import DAY_S, alert_windows
from tests.fixtures.alert_receiver import AlertReceiver, serve_alerts
from tests.fixtures.collector_process import running_collector, wait_for
from tests.fixtures.otlp_payload import trace_request

SECOND_NS = 10**9
# As long as the longest window of a page: with less, what exists is judged, and fires earlier.
HISTORY_S = 22_200
STEP_S = 0.5
ALERTING = """\
apiVersion: evenkeel/v1
kind: Alerting
spec: {{receivers: [{{name: hook, url: '{url}', allowPrivate: true, severities: [page]}}]}}
"""
SLO = """\
---
apiVersion: openslo/v1
kind: SLO
metadata: {{name: target-{number}}}
spec:
  indicator: {{metric: ttft}}
  objectives: [{{op: lte, value: 0.5, target: {target}}}]
  timeWindow: [{{duration: 30d, isRolling: true}}]
"""


def send(client: httpx.Client, url: str, count: int, seconds: list[float], ttft_s: float) -> None:
    """Send `count` requests at each of these moments, unix seconds, in one OTLP request."""
    attributes = {
        "evenkeel.status": "ok",
        "gen_ai.request.model": "m",
        "evenkeel.ttft_s": ttft_s,
        "evenkeel.e2e_s": 0.001,
    }
    first, *others = [
        trace_request(count, attributes, start_ns=int(second * SECOND_NS)) for second in seconds
    ]
    for other in others:
        first.MergeFrom(other)
    response = client.post(
        f"{url}/v1/traces",
        content=first.SerializeToString(),
        headers={"content-type": "application/x-protobuf"},
    )
    response.raise_for_status()


def due_s(target: Fraction) -> float:
    """Return the closed-form detection time of an outage, of the pair that fires first."""
    times = [window.detect_s(target, Fraction(1)) for window in alert_windows(30 * DAY_S)]
    return min(float(time_s) for time_s in times if time_s is not None)


def send_history(url: str, rate: int) -> None:
    """Send good requests of the last six hours and ten minutes."""
    began = time.time()
    with httpx.Client(timeout=30) as client:
        for start in range(HISTORY_S, 0, -60):
            moments = [began - start + i for i in range(60)]
            send(client, url, rate, moments, 0.1)


def burn(url: str, receiver: AlertReceiver, num_slos: int, rate: int, limit_s: float) -> Any:
    """Send good requests, then bad ones; return when each page arrived after the first of these."""
    arrived: dict[str, float] = {}
    at = time.time()
    breach = at + 20
    with httpx.Client(timeout=30) as client:
        while len(arrived) < num_slos and time.time() < breach + limit_s:
            at += STEP_S
            time.sleep(max(at - time.time(), 0))
            is_bad = at >= breach
            send(client, url, int(rate * STEP_S), [at], 2.0 if is_bad else 0.1)
            now = time.time()
            for received in receiver.accepted():
                arrived.setdefault(received.body["commonLabels"]["slo"], now - breach)
    return arrived


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", default="0.9995,0.999,0.998", help="one SLO each")
    parser.add_argument("--rate", type=int, default=4, help="requests a second, even")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    targets = [Fraction(text) for text in args.targets.split(",")]
    with tempfile.TemporaryDirectory() as folder, serve_alerts() as receiver:
        path = Path(folder) / "slos.yaml"
        slos = [SLO.format(number=i, target=float(t)) for i, t in enumerate(targets)]
        path.write_text(ALERTING.format(url=receiver.url) + "".join(slos))
        data_dir = Path(folder) / "data"
        # Data that is hours late is only read at start.
        with running_collector(data_dir) as collector:
            send_history(collector.http_url, args.rate)
            num_sent = HISTORY_S * args.rate
            count = "SELECT count() FROM requests"
            wait_for(lambda: collector.rows(count) == [(num_sent,)], 120)
        with running_collector(data_dir, ["--slos", str(path)]) as collector:
            limit_s = max(map(due_s, targets)) + 60
            arrived = burn(collector.http_url, receiver, len(targets), args.rate, limit_s)
    figures = []
    for number, target in enumerate(targets):
        at_s, due = arrived.get(f"target-{number}"), due_s(target)
        late_s = None if at_s is None else round(at_s - due, 2)
        figures.append({"target": float(target), "due_s": round(due, 2), "late_s": late_s})
        print(f"target {float(target)}: due after {due:.2f} s, delivered {late_s} s later")
    write_report(args.json, figures)
    is_good = all(f["late_s"] is not None and f["late_s"] <= 10 for f in figures)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
