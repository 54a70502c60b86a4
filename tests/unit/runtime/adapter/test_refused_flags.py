"""Flags of vLLM that `evenkeel serve` does not take are one line, before anything is imported."""

import argparse

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_runtime.adapter.refused_flags import refuse_flags, refuse_parsed_flags
from tests.fixtures.python_process import run_python


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        pytest.param(["--headless"], "--headless", id="headless"),
        pytest.param(["--grpc"], "--grpc", id="gRPC"),
        pytest.param(["--api-server-count", "2"], "--api-server-count", id="two servers"),
        pytest.param(["--api-server-count=4"], "--api-server-count", id="one word"),
        pytest.param(["--api_server_count=2"], "--api-server-count", id="underscores"),
        pytest.param(["-asc", "2"], "--api-server-count", id="its short name"),
        pytest.param(["--api-server-count", "0"], "--api-server-count", id="no server"),
        pytest.param(["--api-server-count", "two"], "--api-server-count", id="no number"),
        pytest.param(["--enforce-eager", "--api-server-count"], "--api-server-count", id="last"),
        pytest.param(
            ["--data-parallel-multi-port-external-lb"],
            "--data-parallel-multi-port-external-lb",
            id="a server a rank",
        ),
        pytest.param(["-dpm"], "--data-parallel-multi-port-external-lb", id="the same, short"),
    ],
)
def test_what_cannot_be_observed_is_named(flags: list[str], name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^serve: {name}: "):
        refuse_flags(["--max-model-len", "512", *flags])


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param([], id="none"),
        pytest.param(["--api-server-count", "1"], id="one server"),
        pytest.param(["--api_server_count=1"], id="one server, one word"),
        pytest.param(["--data-parallel-size", "2"], id="data parallel behind one server"),
        pytest.param(["--data-parallel-rank", "1"], id="one rank of several"),
        pytest.param(["--grpc-port", "9000"], id="vLLM's own to judge"),
        pytest.param(["--speculative-config", "{}"], id="a speculation of one's own"),
    ],
)
def test_what_can_be_observed_passes(flags: list[str]) -> None:
    refuse_flags(flags)


@pytest.mark.parametrize(
    ("flag", "name"),
    [
        ("--speculative-config", "--speculative-config"),
        ("--speculative_config={}", "--speculative-config"),
        ("--speculative-config.method=ngram", "--speculative-config.method"),
        ("--scheduler-cls=mine.Scheduler", "--scheduler-cls"),
        ("--scheduler_cls", "--scheduler-cls"),
    ],
)
def test_speculation_of_two_kinds_is_refused(flag: str, name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=f"--speculate auto and {name} are mutually exclusive"
    ):
        refuse_flags([flag, "x"], speculates=True)


@pytest.mark.parametrize(
    ("parsed", "name"),
    [
        ({"headless": True}, "--headless"),
        ({"grpc": True}, "--grpc"),
        ({"api_server_count": 2}, "--api-server-count"),
        ({"api_server_count": 0}, "--api-server-count"),
        (
            {"data_parallel_multi_port_external_lb": True},
            "--data-parallel-multi-port-external-lb",
        ),
    ],
)
def test_what_only_vllms_parser_sees_is_refused_too(parsed: dict[str, object], name: str) -> None:
    with pytest.raises(ConfigurationError, match=name):
        refuse_parsed_flags(argparse.Namespace(**parsed))


def test_vllms_defaults_are_not_refused() -> None:
    defaults = {"headless": False, "grpc": False, "api_server_count": None}
    refuse_parsed_flags(argparse.Namespace(**defaults))
    refuse_parsed_flags(argparse.Namespace(api_server_count=1))


@pytest.mark.parametrize(
    "flags",
    [["--api-server-count", "2"], ["--speculate", "auto", "--scheduler-cls", "mine"]],
    ids=lambda flags: flags[0],
)
def test_nothing_heavy_is_imported_for_a_refusal(flags: list[str]) -> None:
    code = (
        "import sys\n"
        "for name in ('vllm', 'torch', 'numpy', 'evenkeel_runtime.serve.server'):\n"
        "    sys.modules[name] = None\n"
        "from evenkeel.cli import main\n"
        "from evenkeel_runtime.serve.command import SERVE\n"
        f"sys.exit(main(['serve', 'demo', *{flags!r}], [SERVE]))\n"
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("evenkeel: serve: --")
    assert len(done.stderr.splitlines()) == 1
