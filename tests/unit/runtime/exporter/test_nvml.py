"""NVML through its own Python binding, on a library that counts for three GPUs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.nvml_library import WATTS, build_library

ASK = """
import logging, sys, time
logging.basicConfig(format="%(message)s")
from evenkeel_runtime.exporter.nvml import open_counters
read = open_counters([int(each) for each in sys.argv[1:]])
if read is None:
    print("none")
else:
    before, begin = read(), time.monotonic()
    time.sleep(0.2)
    after, seconds = read(), time.monotonic() - begin
    print(*((b - a) / 1e3 / seconds for a, b in zip(before, after)))
"""


def ask(folder: Path, *gpus: int) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-c", ASK, *map(str, gpus)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=60
    )


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_library(tmp_path_factory.mktemp("nvml"))


def test_the_counter_of_each_gpu_is_read(library: Path) -> None:
    watts = [float(word) for word in ask(library, 1, 0).stdout.split()]
    assert watts == pytest.approx(WATTS[::-1], rel=0.1)


@pytest.mark.parametrize(
    ("gpus", "said"),
    [((7,), "NVML: Invalid Argument"), ((1, 2), "GPU 2 is divided by MIG"), ((), None)],
    ids=["an unknown GPU", "a GPU that others use, too", "no library"],
)
def test_what_cannot_be_read_is_one_line_and_no_energy(
    library: Path, tmp_path: Path, gpus: tuple[int, ...], said: str | None
) -> None:
    answer = ask(tmp_path if said is None else library, *(gpus or (0,)))
    assert answer.stdout == "none\n"
    (line,) = answer.stderr.splitlines()
    assert line.startswith("energy is not recorded: ")
    assert said is None or said in line
