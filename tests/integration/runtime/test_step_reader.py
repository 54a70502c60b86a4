"""Step records over a real socket: from a sender to a reader, whichever of them is there first."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import current_thread

import pytest
import zmq

from evenkeel.errors import ConfigurationError
from evenkeel_runtime.engine.sender import StepSender
from evenkeel_runtime.exporter.step_history import StepHistory
from evenkeel_runtime.exporter.step_reader import StepReader
from evenkeel_runtime.ledger.attribution import Phase, RequestTimes
from evenkeel_runtime.wire.steps import ENTRY, STEP, Arrived, Left
from tests.fixtures.manual_clock import ManualClock

MS = 1_000_000
WAIT_S = 120.0


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/steps"


@pytest.fixture
def reader(address: str) -> Iterator[StepReader]:
    reader = StepReader(address)
    reader.start()
    yield reader
    reader.close()


@pytest.fixture
def sender(address: str) -> Iterator[StepSender]:
    sender = StepSender(address, engine=0, interval_s=0, queue_batches=100)
    yield sender
    sender.close()


def send_step(sender: StepSender, number: int, prefill: int, requests: int = 1) -> None:
    """A step of 10 ms that holds request 0 alone; it ends at 10, 20, 30 … ms."""
    start_ns = number * 10 * MS
    end_ns = start_ns + 10 * MS
    decode = 0 if prefill else 1
    entries = [ENTRY.pack(i, 0, prefill, 0, decode, 0, 0, 1, 0, 0) for i in range(requests)]
    step = STEP.pack(number, start_ns, end_ns, 0, prefill, decode, *(0,) * 11, len(entries), 0)
    sender.add_step(step, entries, end_ns)


def wait_for_steps(reader: StepReader, count: int) -> None:
    deadline = time.monotonic() + WAIT_S
    while reader.read_counts().steps < count:
        assert time.monotonic() < deadline, reader.read_counts()
        time.sleep(0.01)


TIMES = RequestTimes(0, 20 * MS, 10 * MS, 20 * MS)


def test_a_ledger_is_made_of_what_was_sent(sender: StepSender, reader: StepReader) -> None:
    sender.add_event(Arrived(0, 0, 5, "cmpl-a-deadbeef"))
    send_step(sender, 0, prefill=5)
    send_step(sender, 1, prefill=0)
    wait_for_steps(reader, 2)
    ledger = reader.ask_ledger("cmpl-a", TIMES).result(WAIT_S)
    assert ledger is not None
    assert ledger.seconds == pytest.approx({"ttft.prefill.own": 0.01, "decode.decode.own": 0.01})
    assert reader.read(lambda histories: histories[0].cost.num_steps) == 2
    counts = reader.read_counts()
    assert (counts.steps, counts.ledgers, counts.unmatched) == (2, 1, 0)


def test_an_answer_comes_with_the_last_record_and_not_before(
    sender: StepSender, reader: StepReader
) -> None:
    sender.add_event(Arrived(0, 0, 5, "cmpl-a-deadbeef"))
    send_step(sender, 0, prefill=5)
    wait_for_steps(reader, 1)
    answer = reader.ask_ledger("cmpl-a", TIMES, wait_s=10 * WAIT_S)
    threads: SimpleQueue[str] = SimpleQueue()
    answer.add_done_callback(lambda _: threads.put(current_thread().name))
    time.sleep(0.3)
    assert not answer.done()

    send_step(sender, 1, prefill=0)
    sender.add_event(Left(0, 20 * MS))
    sender.flush()
    ledger = answer.result(WAIT_S)
    assert ledger is not None
    assert ledger.total(Phase.DECODE) == pytest.approx(0.01)
    # Whoever waits for the answer may have it before the callbacks run.
    assert threads.get(timeout=WAIT_S) == "evenkeel-steps"


def test_a_request_that_never_leaves_is_answered_all_the_same(
    sender: StepSender, reader: StepReader
) -> None:
    sender.add_event(Arrived(0, 0, 5, "cmpl-a-deadbeef"))
    send_step(sender, 0, prefill=5)
    wait_for_steps(reader, 1)
    ledger = reader.ask_ledger("cmpl-a", TIMES, wait_s=0.2).result(WAIT_S)
    assert ledger is not None
    assert ledger.total(Phase.TTFT) == pytest.approx(0.01)


def test_what_has_come_by_the_deadline_counts_although_the_reader_was_stopped_meanwhile(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    monkeypatch.setattr("evenkeel_runtime.exporter.step_reader.monotonic", clock)
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.bind(address)
    reader, sender = StepReader(address), StepSender(address, 0, interval_s=60, queue_batches=10)

    class Stopped:
        """Nothing has come when it is asked first, and then the machine stops for a minute."""

        recv = staticmethod(socket.recv)

        def poll(self, _: int) -> int:
            if clock.now_s > 100:
                return socket.poll(120_000)
            sender.add_event(Arrived(0, 0, 5, "cmpl-a-deadbeef"))
            send_step(sender, 0, prefill=5)
            send_step(sender, 1, prefill=0)
            sender.add_event(Left(0, 20 * MS))
            sender.flush()
            clock.now_s += 60
            return 0

    answer = reader.ask_ledger("cmpl-a", TIMES, wait_s=1)
    answer.add_done_callback(lambda _: reader.close())
    reader._run(context, Stopped())  # type: ignore[arg-type]
    sender.close()
    ledger = answer.result(0)
    assert ledger is not None
    assert ledger.total(Phase.DECODE) == pytest.approx(0.01)


def test_a_request_that_the_engine_never_saw_has_no_ledger(reader: StepReader) -> None:
    assert reader.ask_ledger("cmpl-a", TIMES, wait_s=0).result(WAIT_S) is None
    assert reader.read_counts().unmatched == 1


def test_closing_answers_whoever_still_waits(address: str) -> None:
    reader = StepReader(address)
    reader.start()
    answer = reader.ask_ledger("cmpl-a", TIMES, wait_s=60)
    reader.close()
    assert answer.result(0) is None


def test_a_reader_that_comes_late_gets_what_waits_for_it(sender: StepSender, address: str) -> None:
    for number in range(3):
        send_step(sender, number, prefill=5)
    reader = StepReader(address)
    reader.start()
    try:
        wait_for_steps(reader, 3)
        assert reader.read_counts().lost_steps == 0
    finally:
        reader.close()


def test_many_small_batches_do_not_pile_up(address: str, reader: StepReader) -> None:
    sender = StepSender(address, engine=0, interval_s=0, queue_batches=4000)
    # Many engines at once would send so many; 64 of them each quarter of a second take too long.
    for number in range(3000):
        send_step(sender, number, prefill=0)
    wait_for_steps(reader, 3000)
    assert reader.read_counts().lost_batches == 0
    sender.close()


def test_without_a_reader_the_engine_never_waits_and_counts_what_it_drops(address: str) -> None:
    sender = StepSender(address, engine=0, interval_s=0, queue_batches=10)
    # A sender that waited for a reader would wait for ever.
    for number in range(1000):
        send_step(sender, number, prefill=5)
    assert sender.lost_steps > 900

    reader = StepReader(address)
    reader.start()
    try:
        wait_for_steps(reader, 1000 - sender.lost_steps)
        send_step(sender, 1000, prefill=5)
        wait_for_steps(reader, 1001 - sender.lost_steps)
        counts = reader.read_counts()
        assert counts.lost_steps == sender.lost_steps
        assert counts.lost_batches == sender.lost_steps
    finally:
        reader.close()
        sender.close()


def test_steps_wait_for_others_but_no_longer_than_the_interval(
    address: str, reader: StepReader
) -> None:
    sender = StepSender(address, engine=0, interval_s=0.025, queue_batches=10)
    send_step(sender, 0, prefill=5)
    send_step(sender, 1, prefill=5)
    time.sleep(0.2)
    assert reader.read_counts().steps == 0
    send_step(sender, 3, prefill=5)  # Ends 30 ms after the first.
    wait_for_steps(reader, 3)
    sender.close()


def test_a_large_batch_does_not_wait(address: str, reader: StepReader) -> None:
    sender = StepSender(address, engine=0, interval_s=60, queue_batches=10)
    send_step(sender, 0, prefill=5, requests=3000)
    wait_for_steps(reader, 1)
    sender.close()


def test_nonsense_on_the_socket_is_counted_and_passed_over(
    address: str, reader: StepReader, sender: StepSender
) -> None:
    context = zmq.Context()
    stranger = context.socket(zmq.PUSH)
    stranger.connect(address)
    stranger.send(b"hello")
    deadline = time.monotonic() + WAIT_S
    while not reader.read_counts().malformed_batches:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    context.destroy(linger=0)
    send_step(sender, 0, prefill=5)
    wait_for_steps(reader, 1)


def last_prefills(histories: Mapping[int, StepHistory]) -> dict[int, int]:
    rows = {engine: history.latest for engine, history in histories.items()}
    return {engine: int(row["prefill_tokens"]) for engine, row in rows.items() if row is not None}


def test_engines_are_kept_apart(address: str, reader: StepReader) -> None:
    senders = [StepSender(address, engine, interval_s=0, queue_batches=10) for engine in (0, 1)]
    for engine, sender in enumerate(senders):
        sender.add_event(Arrived(0, 0, 5, f"cmpl-{engine}-deadbeef"))
        send_step(sender, 0, prefill=5 + engine)
    wait_for_steps(reader, 2)
    assert reader.read(last_prefills) == {0: 5, 1: 6}
    times = RequestTimes(0, 10 * MS, 10 * MS, 10 * MS)
    assert reader.ask_ledger("cmpl-1", times).result(WAIT_S) is not None
    for sender in senders:
        sender.close()


WRONG = {
    "a path that is too long": f"ipc:///tmp/{'x' * 110}",
    "a folder that is not there": "ipc:///nowhere/at/all/steps",
    "a protocol that is none": "nonsense://steps",
}


@pytest.mark.parametrize("address", WRONG.values(), ids=WRONG.keys())
def test_an_address_that_cannot_be_listened_on_is_a_configuration_error(address: str) -> None:
    with pytest.raises(ConfigurationError, match="step socket"):
        StepReader(address).start()
