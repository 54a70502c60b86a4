"""The plugin's wrapper around vLLM's `build_and_serve`: whatever fails, vLLM serves."""

import argparse
import logging
import types
from typing import Any

import pytest

from evenkeel_runtime.serve.plugin import watch_command, wrap_build
from tests.checkout import source_path
from tests.fixtures.python_process import run_python

ARGS = argparse.Namespace(model="m")


def build_and_serve(*args: Any, **options: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, options


def test_the_app_is_given_the_observed_engine() -> None:
    build = wrap_build(build_and_serve, lambda engine, args: (engine, "observed", args.model))
    args, options = build("engine", "address", "sock", ARGS, None, timeout=1)
    assert args == (("engine", "observed", "m"), "address", "sock", ARGS, None)
    assert options == {"timeout": 1}


def test_without_the_hooks_vllm_serves_with_its_own_engine(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(*_: Any) -> Any:
        raise OSError("no process left")

    with caplog.at_level(logging.WARNING):
        args, _ = wrap_build(build_and_serve, fail)("engine", "address", "sock", ARGS)
    assert args[0] == "engine"
    (record,) = caplog.records
    assert "served but not recorded" in record.getMessage()


class Subcommand:
    @staticmethod
    def cmd(args: argparse.Namespace) -> str:
        return f"served {args.model}"


def make_command() -> types.ModuleType:
    command = types.ModuleType("serve")
    for name in ("run_multi_api_server", "run_headless", "run_server"):
        setattr(command, name, lambda args: f"served {args.model}")
    vars(command)["ServeSubcommand"] = type("Own", (Subcommand,), {})
    return command


@pytest.mark.parametrize(
    ("name", "grpc", "words"),
    [
        pytest.param("run_multi_api_server", False, "--api-server-count 1", id="several servers"),
        pytest.param("run_headless", False, "--headless", id="no server"),
        pytest.param("cmd", True, "gRPC", id="gRPC"),
        pytest.param("cmd", False, None, id="HTTP"),
        pytest.param("run_server", False, None, id="one server"),
    ],
)
def test_a_server_elsewhere_is_one_warning_and_is_served(
    name: str, grpc: bool, words: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    command, given_up = make_command(), []
    watch_command(command, lambda: given_up.append(True))
    function = command.ServeSubcommand().cmd if name == "cmd" else getattr(command, name)
    with caplog.at_level(logging.WARNING):
        assert function(argparse.Namespace(model="m", grpc=grpc)) == "served m"
    assert given_up == ([] if words is None else [True])
    assert len(caplog.records) == len(given_up)
    assert all("requests are not recorded here" in r.getMessage() for r in caplog.records)
    assert words is None or words in caplog.text


def test_where_there_is_no_server_nothing_happens() -> None:
    code = (
        "import os, sys; from evenkeel_runtime.serve.plugin import register; "
        "register(); register(); "
        "print([name for name in sys.modules if name.split('.')[0] == 'vllm'], "
        "[name for name in os.environ if name.startswith('EVENKEEL_STEPS')])"
    )
    environment = {"PYTHONPATH": source_path(), "PATH": ""}
    done = run_python("-c", code, env=environment, check=True)
    assert (done.stdout, done.stderr) == ("[] []\n", "")
