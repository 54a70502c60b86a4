"""`vllm serve` in the ways that leave this process without a server: each is one warning."""

import os

import pytest

from tests.checkout import source_path
from tests.fixtures.python_process import run_python

# vLLM's own command, up to where it looks for the model.
SCRIPT = """
import os, sys
from vllm.entrypoints.cli import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser
from evenkeel_runtime.serve.plugin import register

register()
for case in sys.argv[1:]:
    parser = FlexibleArgumentParser()
    command = serve.ServeSubcommand()
    subparsers = parser.add_subparsers(dest="subparser")
    command.subparser_init(subparsers).set_defaults(dispatch_function=command.cmd)
    args = parser.parse_args(["serve", "/no/such/model", "--port", "0", *case.split()])
    print("case", case, file=sys.stderr)
    try:
        args.dispatch_function(args)
    except Exception:
        print("engines report:", "EVENKEEL_STEPS_SOCKET" in os.environ, file=sys.stderr)
"""
CASES = {
    # The first may record, and what another took back is gone for those after it.
    "--api-server-count 1": None,
    "--api-server-count 2": "give --api-server-count 1",
    "--data-parallel-size 2": "give --api-server-count 1",
    "--headless": "--headless starts no API server",
    "--grpc": "remove --grpc",
}


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    environment = dict(os.environ) | {
        "PYTHONPATH": source_path(),
        "HF_HUB_OFFLINE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    done = run_python("-c", SCRIPT, *CASES, env=environment, timeout=800, check=True)
    _, *parts = done.stderr.split("case ")
    return {part.splitlines()[0]: part for part in parts}


@pytest.mark.parametrize("case", CASES)
def test_a_server_in_another_process_is_one_warning(case: str, said: dict[str, str]) -> None:
    advice = CASES[case]
    assert said[case].count("requests are not recorded here") == (advice is not None)
    assert advice is None or advice in said[case]
    assert f"engines report: {advice is None}" in said[case]
