"""Whether steps can be recorded, and the folder of sockets."""

import argparse
import stat
from pathlib import Path
from typing import Any

import pytest

from evenkeel.settings import read_environment
from evenkeel_runtime.engine.settings import SOCKET_VARIABLE
from evenkeel_runtime.serve.step_channel import (
    SCHEDULER_CLASS,
    find_obstacle,
    join_steps,
    open_channel,
)


class HasAll:
    def add_request(self, request: object) -> None: ...

    def schedule(self) -> None: ...

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> None: ...

    def finish_requests(self) -> None: ...

    def get_scheduler_cls(self) -> None: ...


def lacking(missing: str) -> Any:
    return lambda _, name: None if name == missing else HasAll


@pytest.mark.parametrize(
    ("missing", "obstacle"),
    [
        pytest.param("nothing", None, id="a vLLM as we know it"),
        pytest.param("AsyncScheduler", "this vLLM has no AsyncScheduler", id="one class less"),
        pytest.param(
            "Scheduler",
            "this vLLM has no Scheduler.add_request, Scheduler.schedule, "
            "Scheduler.update_from_output, Scheduler.finish_requests",
            id="another scheduler",
        ),
        pytest.param("RequestStatus", "this vLLM has no RequestStatus", id="other requests"),
    ],
)
def test_what_is_missing_is_named(missing: str, obstacle: str | None) -> None:
    assert find_obstacle(argparse.Namespace(scheduler_cls=None), lacking(missing)) == obstacle


def test_a_scheduler_of_the_users_own_stays(caplog: pytest.LogCaptureFixture) -> None:
    args = argparse.Namespace(scheduler_cls="mine.Scheduler")
    assert join_steps(args) is None
    assert args.scheduler_cls == "mine.Scheduler"
    (record,) = caplog.records
    assert "without a ledger: --scheduler-cls mine.Scheduler" in record.getMessage()
    assert find_obstacle(argparse.Namespace(scheduler_cls=SCHEDULER_CLASS), lacking("")) is None


def test_the_folder_is_the_servers_own_and_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOCKET_VARIABLE, "")
    channel = open_channel()
    assert stat.S_IMODE(channel.folder.stat().st_mode) == 0o700
    assert read_environment(SOCKET_VARIABLE) == channel.steps_address
    assert channel.steps_address.startswith("ipc:///")
    channel.close()
    assert not channel.folder.exists()


def test_a_folder_that_is_too_deep_for_a_socket_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(OSError, match="too long for a Unix socket"):
        open_channel()
    assert list(deep.iterdir()) == []
