"""`evenkeel serve` where it must refuse, and the exporter process on its own."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.settings import find_settings
from evenkeel_runtime.adapter.vllm import Probe, parse_flags, probe
from evenkeel_runtime.engine.settings import StepSettings
from evenkeel_runtime.serve.settings import RuntimeSettings
from evenkeel_runtime.speculation.settings import SpeculationSettings
from evenkeel_runtime.wire.observation import Observation
from tests.checkout import source_path
from tests.fixtures.python_process import run_python
from tests.fixtures.served_model import ROOT, free_port

SEEN = Observation(
    request_id="r", model="m", operation="chat", arrival_unix_ns=0, arrival_ns=0, end_ns=1
)


def run_serve(
    *arguments: str, folder: Path, ahead: Path = ROOT
) -> subprocess.CompletedProcess[str]:
    """Run the command; modules in `ahead` are found before the installed ones."""
    path = os.pathsep.join([str(ahead), source_path()])
    environment = dict(os.environ) | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    return run_python(
        "-m", "evenkeel", "serve", *arguments, env=environment, cwd=folder, timeout=300
    )


def refuses(done: subprocess.CompletedProcess[str], reason: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert reason in done.stderr


def test_a_taken_port_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run_serve("demo", "--port", str(port), folder=tmp_path)
    refuses(done, f"cannot listen on 127.0.0.1:{port}: Address already in use")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        pytest.param(["/no/such/model"], "no model at '/no/such/model'", id="no such folder"),
        pytest.param(["no-such/model"], "no model 'no-such/model'", id="no such name"),
        pytest.param([], "MODEL is missing", id="no model"),
        pytest.param(
            ["demo", "--data-dir", "/proc/evenkeel"],
            "cannot write to the data folder /proc/evenkeel",
            id="a folder that cannot be written",
        ),
        pytest.param(
            ["demo", "--otlp-endpoint", "localhost:4318"],
            "OTLP endpoint is 'localhost:4318'",
            id="no address",
        ),
        pytest.param(["demo", "--port", "70000"], "runtime.port from flag", id="no port"),
    ],
)
def test_wrong_input_is_one_line_before_anything_is_loaded(
    arguments: list[str], reason: str, tmp_path: Path
) -> None:
    no_vllm = tmp_path / "ahead"
    no_vllm.mkdir()
    for name in ("vllm", "torch"):
        (no_vllm / f"{name}.py").write_text(f"raise SystemExit('{name} was loaded')\n")
    free = [] if "--port" in arguments else ["--port", str(free_port())]
    refuses(run_serve(*arguments, *free, folder=tmp_path, ahead=no_vllm), reason)


def test_the_effective_settings_are_shown(tmp_path: Path) -> None:
    (tmp_path / "evenkeel.toml").write_text("[runtime]\nqueue_requests = 7\n")
    done = run_serve("--print-config", "--port", "8123", folder=tmp_path)
    assert done.returncode == 0
    assert "queue_requests = 7  # evenkeel.toml" in done.stdout
    assert "port = 8123  # flag" in done.stdout


def test_a_flag_that_vllm_does_not_know_is_one_line() -> None:
    with pytest.raises(ConfigurationError, match="--no-such-flag"):
        parse_flags(["--model", "m", "--no-such-flag"])


@pytest.mark.parametrize(
    "flag", [["--headless"], ["--grpc"], ["--api-server-count", "2"]], ids=lambda f: f[0]
)
def test_servers_that_cannot_be_observed_are_refused(flag: list[str]) -> None:
    with pytest.raises(ConfigurationError, match=flag[0]):
        parse_flags(["--model", "m", *flag])


def test_the_installed_vllm_has_all_that_the_hook_builds_on() -> None:
    assert probe() == Probe()


def test_no_setting_takes_the_place_of_a_flag_of_vllms() -> None:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = make_arg_parser(FlexibleArgumentParser())
    theirs = {flag for action in parser._actions for flag in action.option_strings}
    ours = {
        setting.flag
        for cls in (RuntimeSettings, SpeculationSettings, StepSettings)
        for setting in find_settings(cls)
    }
    # Both are handed on to vLLM.
    assert ours & theirs == {"--host", "--port"}


def test_a_flag_of_the_engines_settings_is_shown(tmp_path: Path) -> None:
    done = run_serve("demo", "--speculation-max-tokens", "7", "--print-config", folder=tmp_path)
    assert "speculation.max_tokens = 7  # flag" in done.stdout
