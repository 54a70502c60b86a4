"""Energy of an engine's GPUs: what its counters say is shared out, and nothing else."""

import datetime as dt
import random
import threading
import time
from collections.abc import Callable

import pytest

from evenkeel.prices.cost import Usage, request_cost
from evenkeel.prices.engine_time import CHARGED, ENGINE_KINDS, engine_times
from evenkeel.prices.price_file import EnginePrice, PriceFile
from evenkeel_runtime.exporter.energy import EnergyMeter, EnergySampler, EngineEnergy
from evenkeel_runtime.exporter.step_history import StepHistory
from evenkeel_runtime.ledger.attribution import RequestTimes
from evenkeel_runtime.ledger.engine_seconds import EngineSeconds
from evenkeel_runtime.wire.drafts import NO_TENANT
from evenkeel_runtime.wire.steps import Arrived, Left
from tests.unit.runtime.wire.step_builder import MS, Step, batch, decode, prefill

ALL_DAY = RequestTimes(0, 10**18)
BUSY_W, IDLE_W = 400, 60


class Gpus:
    """Counters of GPUs whose power is a function of time."""

    def __init__(self, num: int = 1) -> None:
        self.millijoules = [1_000_000.0] * num
        self.has_failed = False

    def read(self) -> list[int]:
        if self.has_failed:
            raise OSError("GPU is lost")
        return [int(each) for each in self.millijoules]


def sample(meter: EnergyMeter, ms: float) -> None:
    meter.sample(lambda: int(ms * MS))


def used(meter: EnergyMeter, ms: float) -> EngineEnergy:
    found = meter.total(int(ms * MS))
    assert found is not None
    return found


def run(gpus: Gpus, meter: EnergyMeter, from_ms: float, to_ms: float, watts: float) -> None:
    """Let time pass at a constant power, with readings at both ends."""
    sample(meter, from_ms)
    gpus.millijoules[0] += watts * (to_ms - from_ms)
    sample(meter, to_ms)


def history(meter: EnergyMeter | None) -> StepHistory:
    return StepHistory(1 << 20, 100, meter)


def arrived(number: int, ms: float) -> Arrived:
    return Arrived(number, int(ms * MS), 20, f"r{number}-deadbeef")


def left(number: int, ms: float) -> Left:
    return Left(number, int(ms * MS))


def charged(past: StepHistory, number: int) -> EngineSeconds:
    request = past.find_request(f"r{number}", ALL_DAY, 1)
    assert request is not None
    found = past.charge(ALL_DAY, request, 0).engine
    assert found is not None
    return found


def total(kinds: EngineEnergy) -> float:
    return kinds.requests_j + kinds.idle_j + kinds.between_j


def test_a_request_is_charged_with_its_share_of_the_energy_of_its_steps() -> None:
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    run(gpus, meter, 0, 20, BUSY_W)
    shared = Step(0, 10, [prefill(0, 15), prefill(1, 5)])
    past.add(batch(0, [shared, Step(10, 20, [decode(0)])], arrived(0, 0), arrived(1, 0)))
    past.add(batch(1, [], left(0, 20), left(1, 10)))
    # 10 ms at 400 W are 4 J; tokens count the same until the cost model is tested.
    assert charged(past, 0).energy_j == pytest.approx(3 + 4)
    assert charged(past, 1).energy_j == pytest.approx(1)


def test_requests_idle_time_and_the_rest_add_up_to_the_counters_of_all_gpus() -> None:
    chosen = random.Random(3)
    gpus = Gpus(2)
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    now, spent_j = 0.0, 0.0
    sample(meter, 0)
    requests = []
    for number in range(200):
        for took_ms, watts, is_step in (
            (chosen.uniform(1, 40), BUSY_W, True),
            (chosen.choice((0.0, 3_000.0)), IDLE_W, False),
        ):
            gpus.millijoules = [each + watts * took_ms for each in gpus.millijoules]
            spent_j += 2 * watts * took_ms / 1e3
            sample(meter, now + took_ms)
            if is_step:
                step = Step(now, now + took_ms, [prefill(number, 20)])
                ended = left(number, now + took_ms)
                past.add(batch(number, [step], arrived(number, now), ended))
                if number >= 100:
                    requests.append(charged(past, number).energy_j)
            now += took_ms
    gpus.millijoules = [each + IDLE_W * 10_000 for each in gpus.millijoules]
    sample(meter, now + 10_000)
    spent_j += 2 * IDLE_W * 8
    found = used(meter, now + 10_000)
    assert total(found) == pytest.approx(spent_j, rel=1e-6)
    assert found.idle_j == pytest.approx(spent_j - found.requests_j, rel=0.01)
    assert sum(each for each in requests if each) > 0.3 * found.requests_j


def test_requests_and_the_engine_add_up_to_the_bill_of_time_and_energy() -> None:
    price = EnginePrice(
        name="own", engine_hour=2.5, kwh=900.0, source="lease", read=dt.date(2026, 11, 20)
    )
    file = PriceFile(engine=(price,))
    chosen = random.Random(5)
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    requests, now, sequence, spent_j = [], 0.0, 0, 0.0

    def go(took_ms: float, watts: float) -> None:
        nonlocal now, spent_j
        run(gpus, meter, now, now + took_ms, watts)
        now, spent_j = now + took_ms, spent_j + watts * took_ms / 1e3

    for number in range(300):
        begin, is_replay = now, number % 10 == 3
        event = Arrived(
            number, int(now * MS), 20, f"r{number}-deadbeef", NO_TENANT if is_replay else "a"
        )
        go(chosen.uniform(0, 3), IDLE_W)
        first = now
        go(chosen.uniform(5, 60), BUSY_W)
        between = now
        go(chosen.choice((0, 4)), IDLE_W)
        step = Step(first, between, [prefill(number, 20), decode(9_999)])
        past.add(batch(sequence, [step], event))
        then = now
        go(chosen.uniform(5, 60), BUSY_W)
        past.add(batch(sequence + 1, [Step(then, now, [decode(number)])], left(number, now)))
        sequence += 2
        if not is_replay:
            times = RequestTimes(int(begin * MS), int(now * MS))
            found = past.find_request(f"r{number}", times, 1)
            assert found is not None
            requests.append(past.charge(times, found, 0).engine)
        go(chosen.choice((0, 0, 2_500)), IDLE_W)
    past.add(batch(sequence, [], arrived(300, now)))
    used_j, spent = used(meter, now), past.account.read(int(now * MS))
    rows = [
        {
            "period": dt.datetime(2026, 11, 24),  # noqa: DTZ001, as the store's client returns it
            "kind": kind,
            "model": "own",
            "spent_s": getattr(spent, f"{kind}_s"),
            "energy_j": getattr(used_j, f"{kind}_j", 0.0),
        }
        for kind in ENGINE_KINDS
    ]
    at = dt.datetime(2026, 11, 24, tzinfo=dt.UTC)
    costs = [
        request_cost(file, Usage("own", engine_s=each.spent_s, energy_j=each.energy_j), at)
        for each in requests
        if each is not None
    ]
    costs += [each.cost for each in engine_times(rows, file) if each.kind != CHARGED]
    bill = now / 3.6e6 * 2.5 + spent_j / 3.6e6 * 900.0
    assert len(costs) == 270 + 4
    assert sum(each for each in costs if each is not None) == pytest.approx(bill, rel=1e-6)
    assert None not in costs


def test_a_short_burst_after_an_idle_hour_has_its_own_power() -> None:
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    run(gpus, meter, 0, 10, BUSY_W)
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0), left(0, 10)))
    hour = 3_600_000
    for ms in range(10, hour, 500):
        run(gpus, meter, ms, ms + 500, IDLE_W)
    run(gpus, meter, hour + 10, hour + 30, BUSY_W)
    begin = hour + 10
    step = Step(begin, begin + 20, [prefill(1, 20)])
    past.add(batch(1, [step], arrived(1, begin), left(1, begin + 20)))
    assert charged(past, 1).energy_j == pytest.approx(BUSY_W * 0.020, rel=1e-3)
    idle_j = used(meter, hour + 40).idle_j
    assert idle_j == pytest.approx(IDLE_W * 3600, rel=0.001)


def test_no_kind_of_energy_ever_falls_because_it_would_count_as_restarted() -> None:
    chosen = random.Random(8)
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    seen, now = [], 0.0
    for number in range(200):
        took = chosen.uniform(1, 900)
        run(gpus, meter, now, now + took, chosen.uniform(50, 500))
        events: list[Arrived | Left] = [arrived(number, now)]
        if chosen.random() < 0.5:
            events.append(left(number, now + took / 2))
        past.add(
            batch(number + (number > 90), [Step(now, now + took, [prefill(number, 9)])], *events)
        )
        now += took + chosen.choice((0, 2_500))
        seen.append(used(meter, now))
    for kind in ("requests_j", "idle_j", "between_j"):
        values = [getattr(each, kind) for each in seen]
        assert values == sorted(values), kind


def test_a_counter_that_begins_anew_after_its_driver_takes_nothing_back() -> None:
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    run(gpus, meter, 0, 100, BUSY_W)
    gpus.millijoules = [0.0]
    run(gpus, meter, 100, 200, BUSY_W)
    past.add(batch(0, [Step(0, 200, [prefill(0, 20)])], arrived(0, 0), left(0, 200)))
    assert charged(past, 0).energy_j == pytest.approx(80)


@pytest.mark.parametrize("wrong", [0.0, 2.0**63], ids=["zero", "huge"])
def test_a_single_wrong_reading_of_a_counter_is_no_energy(wrong: float) -> None:
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    # Since the driver was loaded: a month at 400 W.
    gpus.millijoules = [1e12]
    run(gpus, meter, 0, 100, BUSY_W)
    kept, gpus.millijoules = gpus.millijoules, [wrong]
    sample(meter, 150)
    gpus.millijoules = kept
    run(gpus, meter, 200, 300, BUSY_W)
    past.add(batch(0, [Step(0, 300, [prefill(0, 20)])], arrived(0, 0), left(0, 300)))
    assert charged(past, 0).energy_j == pytest.approx(80)


@pytest.mark.parametrize("busy_s", [10, 2_000])
def test_hours_of_another_power_before_do_not_change_what_an_idle_engine_used(
    busy_s: int,
) -> None:
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    run(gpus, meter, 0, 600_000, IDLE_W)
    begin = now = 600_000
    for number in range(busy_s):
        run(gpus, meter, now, now + 1_000, BUSY_W)
        events = [] if number else [arrived(0, now)]
        past.add(batch(number, [Step(now, now + 1_000, [prefill(0, 9)])], *events))
        now += 1_000
    past.add(batch(busy_s, [], left(0, now)))
    for _ in range(20_000):
        run(gpus, meter, now, now + 1_000, IDLE_W)
        now += 1_000
        used(meter, now)
    past.add(batch(busy_s + 1, [], arrived(1, now)))
    found = used(meter, now)
    assert found.requests_j == pytest.approx(BUSY_W * (now - begin) / 1e3 - 20_000 * BUSY_W)
    assert found.idle_j == pytest.approx(IDLE_W * 20_000)
    assert found.between_j == pytest.approx(0, abs=1e-3)


def test_a_step_that_is_recorded_late_is_not_counted_twice() -> None:
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    past.add(batch(0, [], arrived(0, 0)))
    for ms in range(0, 30_000, 500):
        run(gpus, meter, ms, ms + 500, BUSY_W)
        used(meter, ms + 500)
    past.add(batch(1, [Step(0, 30_000, [prefill(0, 20)])], left(0, 30_000)))
    assert total(used(meter, 30_000)) == pytest.approx(BUSY_W * 30)


def test_energy_that_cannot_be_read_is_unknown_and_said_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    run(gpus, meter, 0, 10, BUSY_W)
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0)))
    gpus.has_failed = True
    run(gpus, meter, 20, 30, BUSY_W)
    past.add(batch(1, [Step(10, 30, [decode(0)])], left(0, 30)))
    assert charged(past, 0).energy_j is None
    assert charged(past, 0).spent_s == pytest.approx(0.03)
    assert caplog.text.count("GPU is lost") == 1


def test_after_a_reading_that_failed_energy_is_known_again_and_adds_up() -> None:
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    run(gpus, meter, 0, 10, BUSY_W)
    gpus.has_failed = True
    run(gpus, meter, 10, 30, BUSY_W)
    past.add(batch(0, [Step(10, 30, [prefill(0, 20)])], arrived(0, 0)))
    gpus.has_failed = False
    run(gpus, meter, 30, 50, BUSY_W)
    past.add(batch(1, [Step(30, 50, [decode(0), decode(1)])], arrived(1, 30), left(0, 50)))
    past.add(batch(2, [], left(1, 50)))
    assert charged(past, 0).energy_j is None
    assert charged(past, 1).energy_j == pytest.approx(BUSY_W * 0.010)
    assert total(used(meter, 50)) == pytest.approx(BUSY_W * 0.050)


def test_steps_from_before_the_first_reading_are_not_free() -> None:
    gpus = Gpus()
    meter = EnergyMeter(gpus.read)
    past = history(meter)
    assert meter.total(0) is None
    run(gpus, meter, 10, 20, BUSY_W)
    past.add(batch(0, [Step(0, 20, [prefill(0, 20)])], arrived(0, 0), left(0, 20)))
    assert charged(past, 0).energy_j is None


def test_without_a_meter_energy_is_unknown() -> None:
    past = history(None)
    past.add(batch(0, [Step(0, 10, [prefill(0, 20)])], arrived(0, 0), left(0, 10)))
    assert charged(past, 0).energy_j is None


def test_counters_are_read_all_the_time_and_whenever_records_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("evenkeel_runtime.exporter.energy._LONGEST_READING_S", 120.0)
    times = []

    def read() -> list[int]:
        times.append(time.monotonic_ns())
        return [0]

    sampler = EnergySampler([EnergyMeter(read)])
    sampler.start()
    try:
        asked_ns = time.monotonic_ns()
        sampler.refresh()
        assert times[-1] >= asked_ns
        deadline = time.monotonic() + 120
        while len(times) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        sampler.stop()


def test_a_driver_that_hangs_delays_records_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs, released, times, waits = threading.Event(), threading.Event(), [0], list[float]()

    def read() -> list[int]:
        if hangs.is_set():
            released.wait(600)
        times.append(time.monotonic_ns())
        return [0]

    sampler = EnergySampler([EnergyMeter(read)])
    wait_for = sampler._finished.wait_for

    def wait(condition: Callable[[], bool], longest_s: float) -> bool:
        waits.append(longest_s)
        return wait_for(condition, longest_s)

    sampler.start()
    try:
        sampler.refresh()
        hangs.set()
        monkeypatch.setattr(sampler._finished, "wait_for", wait)
        for _ in range(50):
            sampler.refresh()
        assert waits == [2.0] + [0.0] * 49
        hangs.clear()
        released.set()
        deadline = time.monotonic() + 120
        asked_ns = time.monotonic_ns()
        while times[-1] < asked_ns:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            asked_ns = time.monotonic_ns()
            sampler.refresh()
    finally:
        released.set()
        sampler.stop()
