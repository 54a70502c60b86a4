"""Kill the alert lifecycle at random points, with flaky receivers, and count the errors.

    python bench/slo_kills.py --kills 300 --pieces 2 --piece 1 --json build/bench/slo_kills-1.json

Each process repeatedly takes three alerts through pending, firing and resolved and delivers them to
four receivers; it is killed with SIGKILL after 20 to 250 ms. One receiver gets single alerts and
one gets groups: both reject a quarter of the notifications (500) and accept an eighth without
responding. The third responds 404 until the last kill, and the fourth does not exist. Pieces take
less than ten minutes; each has its own seed and alert book.

Errors: a transition that was never delivered, two ids for the same transition, a transition out of
order, one id with two contents, or a repetition although no response was lost (by the receiver, or
because the process was killed). The third receiver may only miss firings that the book withdrew.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

from bench.report import write_report
from evenkeel.slo.receiver import AlertGrouping, Receiver
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.groups import Grouper
from evenkeel_collector.delivery.worker import DeliveryPolicy, DeliveryWorker
from tests.checkout import source_path
from tests.fixtures.alert_crasher import SLOS
from tests.fixtures.alert_receiver import AlertReceiver, Answer, Received, serve_alerts

ROOT = Path(__file__).parents[1]
CRASHER = ROOT / "tests" / "fixtures" / "alert_crasher.py"
# How long nothing may arrive while something is owed: how long all takes is up to the machine.
MOST_SILENT_S = 120.0
_ANSWERS = [Answer()] * 5 + [Answer(500)] * 2 + [Answer(is_lost=True)]


@dataclass(frozen=True, slots=True)
class Found:
    """The result of the kills.

    Attributes:
        num_kills: Processes that were killed.
        num_transitions: To firing and to resolved; each is due to the receiver once.
        num_delivered: Notifications that it accepted, repetitions included.
        num_repeated: Of them, those under an id that it had accepted before.
        num_lost_answers: Accepted by the receivers without an answer.
        num_groups: Notifications of groups, each counted once.
        num_refused: Attempts that the third receiver refused.
        num_withdrawn: Firings that it did not hear of, but of their ends.
        mistakes: Descriptions of the errors.
    """

    num_kills: int
    num_transitions: int
    num_delivered: int
    num_repeated: int
    num_lost_answers: int
    num_groups: int
    num_refused: int
    num_withdrawn: int
    mistakes: tuple[str, ...]


def kill_again_and_again(folder: Path, num_kills: int, seed: int) -> Found:
    """Run and kill, then deliver the rest, and compare with the alert book."""
    path, choose = folder / "alerts.db", random.Random(seed)
    scripts = [[choose.choice(_ANSWERS) for _ in range(60 * num_kills)] for _ in range(2)]
    with (
        serve_alerts(scripts[0]) as alone,
        serve_alerts(scripts[1]) as grouped,
        serve_alerts([Answer(404)] * (2000 * num_kills)) as refusing,
    ):
        _run_and_kill(path, (alone, grouped, refusing), num_kills, choose)
        refusing.mend()
        _deliver_rest(path, alone, grouped, refusing)
    book = AlertBook(path)
    transitions = [t for t in reversed(book.transitions(10**6)) if t.state != "inactive"]
    withdrawn = {
        row[0]
        for row in book.connection.exec_driver_sql(
            "SELECT notification_id FROM outbox"
            " WHERE state = 'withdrawn' AND receiver = 'b-refusing'"
        )
    }
    book.close()
    told = [t for t in transitions if t.state in ("firing", "resolved")]
    accepted = alone.accepted()
    mistakes = []
    for slo in SLOS:
        of_slo = [t.id for t in told if t.slo == slo]
        mistakes += [
            *_check_transitions([t.state.value for t in transitions if t.slo == slo]),
            *_check_delivery(of_slo, _about(slo, accepted), num_kills),
            *_check_groups(of_slo, _about(slo, grouped.accepted()), num_kills),
            *_check_delivery(
                [i for i in of_slo if i not in withdrawn],
                _about(slo, refusing.accepted()),
                num_kills,
            ),
        ]
    return Found(
        num_kills,
        len(told),
        len(accepted),
        len(accepted) - len({r.notification_id for r in accepted}),
        sum(r.is_answer_lost for r in (*accepted, *grouped.accepted())),
        len({r.notification_id for r in grouped.accepted()}),
        len(refusing.received) - len(refusing.accepted()),
        len(withdrawn),
        tuple(mistakes),
    )


def _about(slo: str, received: list[Received]) -> list[Received]:
    return [each for each in received if each.body["commonLabels"]["slo"] == slo]


def _run_and_kill(
    path: Path,
    receivers: tuple[AlertReceiver, ...],
    num_kills: int,
    choose: random.Random,
) -> None:
    """Kill at moments of the work, wherever the machine's speed puts them."""
    alone = receivers[0]
    with subprocess.Popen(
        [sys.executable, str(CRASHER), str(path), *(each.url for each in receivers)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**dict(os.environ), "PYTHONPATH": source_path()},
    ) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for _ in range(num_kills):
            nursery.stdin.write("\n")
            nursery.stdin.flush()
            process = int(nursery.stdout.readline())
            wanted = len(alone.received) + choose.randint(0, 7)
            give_up_s = time.monotonic() + 120
            while len(alone.received) < wanted and time.monotonic() < give_up_s:
                time.sleep(0.002)
            time.sleep(choose.uniform(0.0, 0.03))
            os.kill(process, signal.SIGKILL)
        nursery.stdin.close()


def _deliver_rest(
    path: Path, alone: AlertReceiver, grouped: AlertReceiver, refusing: AlertReceiver
) -> None:
    receivers = {
        "a-down": Receiver("a-down", "http://127.0.0.1:9/", allow_private=True),
        "b-refusing": Receiver("b-refusing", refusing.url, allow_private=True),
        "on-call": Receiver("on-call", alone.url, allow_private=True),
        "team": Receiver("team", grouped.url, allow_private=True, group=AlertGrouping(("slo",))),
    }
    policy = DeliveryPolicy(timeout_s=60.0, unit_s=0.01, poll_s=0.01)
    worker = DeliveryWorker(path, lambda: receivers, policy)
    stop = threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(worker.run(stop)))
    thread.start()
    book = AlertBook(path)
    receiving = (alone, grouped, refusing)
    num_received, give_up_s = 0, time.monotonic() + MOST_SILENT_S
    try:
        while _is_owing(book):
            now = sum(len(each.received) for each in receiving)
            if now > num_received:
                num_received, give_up_s = now, time.monotonic() + MOST_SILENT_S
            elif time.monotonic() > give_up_s:
                raise RuntimeError(f"still undelivered: {book.count_by_state()}")
            time.sleep(0.02)
    finally:
        stop.set()
        thread.join()
        book.close()


def _is_owing(book: AlertBook) -> bool:
    return bool(Grouper(book).num_pending() or set(book.waiting_receivers()) - {"a-down"})


def _check_transitions(states: list[str]) -> list[str]:
    follows = {("pending", "firing"), ("firing", "resolved"), ("resolved", "pending")}
    wrong = [pair for pair in pairwise(states) if pair not in follows]
    return [f"transitions in no order: {Counter(wrong)}"] if wrong else []


def _check_delivery(told: list[str], accepted: list[Received], num_kills: int) -> list[str]:
    ids = [received.notification_id for received in accepted]
    mistakes = []
    if sorted(set(told)) != sorted(set(ids)):
        mistakes.append(f"lost: {len(set(told) - set(ids))}, unknown: {len(set(ids) - set(told))}")
    elif list(dict.fromkeys(ids)) != told:
        mistakes.append("delivered out of order")
    return mistakes + _check_repetitions(accepted, num_kills)


def _check_repetitions(accepted: list[Received], num_kills: int) -> list[str]:
    mistakes = []
    first: dict[str, Received] = {}
    num_unexplained = 0
    for received in accepted:
        before = first.setdefault(received.notification_id, received)
        if before.body != received.body:
            mistakes.append(f"two contents under {received.notification_id}")
    by_id = Counter(received.notification_id for received in accepted)
    lost = Counter(r.notification_id for r in accepted if r.is_answer_lost)
    for notification_id, count in by_id.items():
        num_unexplained += max(count - 1 - lost[notification_id], 0)
    # A kill between the answer and the note of it loses the answer as well: one a process and SLO.
    if num_unexplained > num_kills:
        mistakes.append(f"{num_unexplained} repetitions without a lost answer")
    return mistakes


def _check_groups(told: list[str], accepted: list[Received], num_kills: int) -> list[str]:
    mistakes = _check_repetitions(accepted, num_kills)
    last = accepted[-1].body["status"] if accepted else ""
    if not told[-1].endswith(last or "?"):
        mistakes.append(f"the group was last told {last!r}, the last transition is {told[-1]}")
    return mistakes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=300, help="of all pieces")
    parser.add_argument("--pieces", type=int, default=2)
    parser.add_argument("--piece", type=int, help="run only this piece, counted from 1")
    parser.add_argument("--json", type=Path, help="write the figures here")
    args = parser.parse_args()
    pieces = range(1, args.pieces + 1) if args.piece is None else [args.piece]
    found = []
    for piece in pieces:
        with tempfile.TemporaryDirectory() as folder:
            found.append(kill_again_and_again(Path(folder), args.kills // args.pieces, piece))
        print(f"piece {piece} of {args.pieces}:")
        for name, value in asdict(found[-1]).items():
            print(f"  {name:18} {value}")
    write_report(args.json, [asdict(piece) for piece in found])
    return 1 if any(piece.mistakes for piece in found) else 0


if __name__ == "__main__":
    sys.exit(main())
