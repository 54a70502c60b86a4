"""Processes to kill: alerts that flip for ever, and their delivery.

usage: python alert_crasher.py BOOK URL GROUP_URL REFUSING_URL

A fourth receiver is nowhere.

For each line on standard input it forks such a process and prints its id; the imports, which are
slow, are done once. It goes on when that process has died.
"""

import asyncio
import os
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

from evenkeel.slo.receiver import AlertGrouping, Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.engine import AlertEngine
from evenkeel_collector.alerts.state import Condition, Delays
from evenkeel_collector.delivery.worker import DeliveryPolicy, DeliveryWorker

DELAYS = Delays(pending_ns=2_000_000, keep_firing_ns=2_000_000)
SLOS = ("chat", "search", "batch")


def flip(path: Path, receivers: tuple[Receiver, ...]) -> None:
    """Go through pending, firing and resolved in turn, one look every few milliseconds."""
    engine = AlertEngine(AlertBook(path))
    while True:
        firing = {a.slo for a in engine.alerts.values() if a.life.state == "firing"}
        conditions = [
            Condition(slo, "page", slo not in firing, DELAYS, {"slo": slo}, {}, dict)
            for slo in SLOS
        ]
        engine.observe(conditions, receivers, time.time_ns())
        time.sleep(0.03)


def live(path: Path, receivers: tuple[Receiver, ...]) -> None:
    """Evaluate and deliver until killed."""
    by_name = {receiver.name: receiver for receiver in receivers}
    policy = DeliveryPolicy(timeout_s=60.0, unit_s=0.01, poll_s=0.005)
    worker = DeliveryWorker(path, lambda: by_name, policy)
    threading.Thread(target=flip, args=(path, receivers), daemon=True).start()
    asyncio.run(worker.run(threading.Event()))


def main() -> None:
    path = Path(sys.argv[1])
    receivers = (
        Receiver("a-down", "http://127.0.0.1:9/", allow_private=True),
        Receiver("b-refusing", sys.argv[4], allow_private=True),
        Receiver("on-call", sys.argv[2], allow_private=True),
        Receiver(
            "team", sys.argv[3], allow_private=True, group=AlertGrouping(("slo",), Fraction(1, 50))
        ),
    )
    for _ in sys.stdin:
        process = os.fork()
        if process == 0:
            live(path, receivers)
        print(process, flush=True)
        os.waitpid(process, 0)


if __name__ == "__main__":
    main()
