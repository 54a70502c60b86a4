"""The plugin's wrapper around vLLM's `build_and_serve`: whatever fails, vLLM serves."""

from __future__ import annotations

import argparse
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runtime.vllm_plugin import wrap_build

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


def test_where_there_is_no_server_nothing_happens() -> None:
    code = (
        "import os, sys; from runtime.vllm_plugin import register; register(); register(); "
        "print([name for name in sys.modules if name.split('.')[0] == 'vllm'], "
        "[name for name in os.environ if name.startswith('EVENKEEL_STEPS')])"
    )
    environment = {"PYTHONPATH": str(Path(__file__).parents[3]), "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("[] []\n", "")
