"""Steps that are packed together are told as if each had been packed by itself."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenkeel_runtime.engine.packer import (
    NONE_HELD,
    EngineStep,
    HeldRequests,
    Scheduled,
    StepPacker,
    pack_held,
)
from evenkeel_runtime.engine.sender import StepSender
from evenkeel_runtime.wire.steps import Held
from tests.fixtures.step_records import decode_batch

MS = 1_000_000
STATE = (1, 0, 0, 0, 0, 0, 100, 50, 20)


@dataclass(frozen=True, slots=True)
class Wire:
    """Where records go, and what reads them there."""

    address: str
    socket: zmq.Socket[bytes]

    def open_sender(self, interval_s: float) -> StepSender:
        return StepSender(self.address, engine=0, interval_s=interval_s, queue_batches=1000)

    def read(self, num_steps: int) -> list[tuple[Any, Any]]:
        """Return steps and entries of each message, until so many steps have come."""
        batches = []
        while num_steps > 0:
            assert self.socket.poll(120_000), f"{num_steps} steps are missing"
            batch = decode_batch(self.socket.recv())
            batches.append((batch.steps, batch.entries))
            num_steps -= len(batch.steps)
        return batches


@pytest.fixture(scope="module")
def wire(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    address = f"ipc://{tmp_path_factory.mktemp('wire')}/steps"
    context = zmq.Context()
    socket = context.socket(zmq.PULL)
    socket.bind(address)
    with pytest.MonkeyPatch.context() as patch:
        # A sender that is closed sends all it has, however busy the machine is.
        patch.setattr("evenkeel_runtime.engine.sender._CLOSE_MS", 120_000)
        yield Wire(address, socket)
    context.destroy(linger=0)


def plain_steps(num_steps: int, num_requests: int, step_ns: int) -> list[EngineStep]:
    """Steps of the same requests, each with one token to decode."""
    scheduled = [(f"r{i}", i, 10 + i, 0, 0, 0) for i in range(num_requests)]
    return [make_step(i, scheduled, i, (i + 1) * step_ns) for i in range(num_steps)]


def make_step(
    number: int,
    scheduled: list[Scheduled],
    num_again: int,
    end_ns: int,
    emitted: dict[str, int] | None = None,
    held: HeldRequests = NONE_HELD,
) -> EngineStep:
    start_ns = 10_000 * MS + end_ns - 1000
    state = (*STATE[:-1], number)
    return EngineStep(
        None, start_ns, 500, state, scheduled, num_again, held, start_ns + 1000, emitted
    )


scheduled_requests = st.lists(
    st.tuples(st.integers(0, 300), st.integers(0, 40), st.integers(0, 40), st.integers(0, 300)),
    max_size=4,
)


@st.composite
def step_series(draw: st.DrawFn) -> list[EngineStep]:
    """Steps as a recorder makes them: new compositions, and repetitions of plain ones."""
    steps: list[EngineStep] = []
    end_ns = 0
    for number in range(draw(st.integers(1, 80))):
        end_ns += draw(st.integers(1000, 8 * MS))
        if len(steps) > 0 and draw(st.booleans()):
            last = steps[-1]
            is_plain = not any(prefill or drafted for *_, prefill, _, drafted in last.scheduled)
            if last.scheduled and is_plain:
                again = last.num_again + 1
                emitted = draw(st.sampled_from([None, {"r0": 0}, {"r0": 1}]))
                steps.append(make_step(number, last.scheduled, again, end_ns, emitted))
                continue
        rows = enumerate(draw(scheduled_requests))
        scheduled = [(f"r{i}", i, c, p, min(r, p), d) for i, (c, p, r, d) in rows]
        emitted = draw(
            st.none() | st.dictionaries(st.sampled_from(["r0", "r1", "r2"]), st.integers(0, 300))
        )
        held = NONE_HELD
        if draw(st.booleans()) or not scheduled:
            held = HeldRequests(int(Held.KV), (1, 0, 0), (pack_held(9, int(Held.GRAMMAR)),))
        steps.append(make_step(number, scheduled, 0, end_ns, emitted, held))
    return steps


def pack(wire: Wire, steps: Sequence[EngineStep], interval_s: float) -> tuple[bytes, bytes]:
    """Return all steps and all entries as they arrive, spelled out."""
    sender = wire.open_sender(interval_s)
    packer = StepPacker(sender)
    for step in steps:
        packer.add(step)
    packer.send()
    sender.close()
    batches = wire.read(len(steps))
    return (
        np.concatenate([table for table, _ in batches]).tobytes(),
        np.concatenate([entries for _, entries in batches]).tobytes(),
    )


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(step_series(), st.sampled_from([0.003, 0.05, 10]))
def test_steps_packed_together_are_those_packed_alone(
    wire: Wire, steps: list[EngineStep], interval_s: float
) -> None:
    assert pack(wire, steps, interval_s) == pack(wire, steps, 0)


def test_the_oldest_step_waits_no_longer_than_the_interval(wire: Wire) -> None:
    sender = wire.open_sender(interval_s=0.05)
    packer = StepPacker(sender)
    for number, step in enumerate(plain_steps(150, num_requests=4, step_ns=MS * 3 // 4)):
        packer.add(step)
        if number < 67:
            assert sender.has_steps == (number >= 63)
    sender.close()
    sizes = [len(table) for table, _ in wire.read(136)]
    # 67 steps of 0.75 ms are 50 ms, although 64 at most wait to be packed.
    assert sizes == [68, 68]


@pytest.mark.parametrize("num_held", [0, 64])
def test_many_requests_to_pack_one_by_one_do_not_gather(wire: Wire, num_held: int) -> None:
    """Prompts, and steps that come again but for who was set aside in them."""
    sender = wire.open_sender(interval_s=10)
    packer = StepPacker(sender)
    scheduled = [(f"r{i}", i, 10, 0 if num_held else 5, 0, 0) for i in range(256 - num_held)]
    aside = (pack_held(9, int(Held.GRAMMAR)),) * num_held
    held = HeldRequests(int(Held.NOT), (num_held, 0, 0), aside)
    for number in range(4):
        assert not sender.has_steps
        num_again = number + 1 if num_held else 0
        packer.add(make_step(number, scheduled, num_again, number * MS, held=held))
    assert sender.has_steps
    sender.close()
    assert [len(table) for table, _ in wire.read(4)] == [4]
