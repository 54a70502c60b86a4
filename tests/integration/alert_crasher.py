"""Processes to kill: an alert that flips for ever, and its delivery.

usage: python alert_crasher.py BOOK URL GROUP_URL

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

from collector.alert_book import AlertBook
from collector.alert_delivery import DeliveryPolicy, DeliveryWorker
from collector.alert_engine import AlertEngine, Condition
from collector.alert_state import Patience
from evenkeel.slo_receiver import Grouping, Receiver

PATIENCE = Patience(pending_ns=2_000_000, keep_firing_ns=2_000_000)


def flip(path: Path, receivers: tuple[Receiver, ...]) -> None:
    """Go through pending, firing and resolved in turn, one look every few milliseconds."""
    engine = AlertEngine(AlertBook(path))
    while True:
        is_firing = any(alert.life.state == "firing" for alert in engine.alerts.values())
        condition = Condition("chat", "page", not is_firing, PATIENCE, {"slo": "chat"}, {}, dict)
        engine.observe([condition], receivers, time.time_ns())
        time.sleep(0.015)


def live(path: Path, alone: Receiver, grouped: Receiver) -> None:
    """Evaluate and deliver until killed."""
    receivers = {receiver.name: receiver for receiver in (alone, grouped)}
    policy = DeliveryPolicy(timeout_s=60.0, unit_s=0.01, poll_s=0.005)
    worker = DeliveryWorker(path, lambda: receivers, policy)
    threading.Thread(target=flip, args=(path, (alone, grouped)), daemon=True).start()
    asyncio.run(worker.run(threading.Event()))


def main() -> None:
    path = Path(sys.argv[1])
    alone = Receiver("on-call", sys.argv[2], allow_private=True)
    grouped = Receiver(
        "team", sys.argv[3], allow_private=True, group=Grouping(("slo",), Fraction(1, 50))
    )
    for _ in sys.stdin:
        process = os.fork()
        if process == 0:
            live(path, alone, grouped)
        print(process, flush=True)
        os.waitpid(process, 0)


if __name__ == "__main__":
    main()
