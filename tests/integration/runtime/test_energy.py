"""The exporter process reads GPUs' counters through NVML and shares the energy out."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from evenkeel.otlp_target import OtlpTarget
from evenkeel_runtime.adapter.engine_gpus import find_gpus
from evenkeel_runtime.engine.sender import StepSender
from evenkeel_runtime.request.exporter_process import ExporterProcess
from evenkeel_runtime.wire.counters import SharedCounts
from evenkeel_runtime.wire.frames import ExporterConfig
from evenkeel_runtime.wire.observation import Observation, encode
from evenkeel_runtime.wire.snapshot import SharedSnapshot
from evenkeel_runtime.wire.steps import Arrived, Left
from tests.fixtures.nvml_library import WATTS, build_library
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.unit.runtime.wire.step_builder import MS, Step, prefill

STEP_S = 0.4


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()
    yield receiver
    receiver.stop()


def serve(
    exporter: ExporterProcess, sender: StepSender, receiver: OtlpReceiver, number: int
) -> tuple[Mapping[str, Any], float]:
    """Let the engine take one step for a request; return its attributes and the step's seconds."""
    begin_ns = time.monotonic_ns()
    time.sleep(STEP_S)
    end_ns = time.monotonic_ns()
    sender.add_event(Arrived(number, begin_ns, 20, f"r{number}-deadbeef"))
    step = Step(begin_ns / MS, end_ns / MS, [prefill(number, 20)])
    sender.add_step(step.pack(number), [part.pack() for part in step.parts], end_ns)
    sender.add_event(Left(number, end_ns))
    sender.flush()
    seen = Observation(
        request_id=f"r{number}", model="m", operation="chat", arrival_unix_ns=0,
        arrival_ns=begin_ns, submitted_ns=begin_ns, end_ns=end_ns, reached_engine=True,
    )  # fmt: skip
    frames = [encode(seen)]
    while frames:
        frames = frames[exporter.write(frames) :]
    (span,) = receiver.wait_for(
        lambda s: s.attributes.get("evenkeel.request.id") == seen.request_id
    )
    return span.attributes, (end_ns - begin_ns) / 1e9


def wait_for_joules(snapshot: SharedSnapshot, kind: str, at_least: float) -> None:
    """Wait until the exporter has published this much energy of a kind, which it does now and then.

    A span may arrive before the figures that its request belongs to.
    """
    deadline = time.monotonic() + 60
    joules: Mapping[str, float] = {}
    while joules.get(kind, 0) < at_least:
        assert time.monotonic() < deadline, joules
        time.sleep(0.1)
        figures = snapshot.read()
        joules = figures.engines[0].joules_by_kind if figures and figures.engines else {}


def test_a_request_has_the_energy_of_its_engines_gpus(
    receiver: OtlpReceiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_library(tmp_path)))
    folder = tmp_path / "s"
    folder.mkdir()
    address = f"ipc://{folder}/steps"
    counts, snapshot = SharedCounts.create(), SharedSnapshot.create()
    exporter = ExporterProcess(
        ExporterConfig(
            OtlpTarget(f"{receiver.url}/v1/traces"),
            counts.file_descriptor,
            100,
            0.0,
            60.0,
            100,
            snapshot_fd=snapshot.file_descriptor,
            steps_address=address,
            gpus={0: (0, 1)},
        )
    )
    exporter.start()
    exporter.write([])  # Its configuration.
    sender = StepSender(address, engine=0, interval_s=0, queue_batches=8)
    try:
        # The counters have been read since before the first span arrived.
        serve(exporter, sender, receiver, 0)
        span, seconds = serve(exporter, sender, receiver, 1)
        assert span["evenkeel.engine_s"] == pytest.approx(seconds)
        assert span["evenkeel.energy_j"] == pytest.approx(seconds * sum(WATTS), rel=0.02)
        wait_for_joules(snapshot, "requests", at_least=span["evenkeel.energy_j"])
        wait_for_joules(snapshot, "idle", at_least=0.001)
    finally:
        sender.close()
        exporter.close(60)
        counts.close()
        snapshot.close()


def test_an_engine_on_a_cpu_has_no_gpus(caplog: pytest.LogCaptureFixture) -> None:
    assert find_gpus(None) == {}
    assert not caplog.text
