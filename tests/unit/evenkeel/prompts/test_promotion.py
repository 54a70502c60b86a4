"""Moves of labels: none is lost, and a run that proves nothing moves nothing."""

import fcntl
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError, EvenkeelError
from evenkeel.prompts import promotion as prompt_promotion
from evenkeel.prompts.gate_verdict import JudgedRun
from evenkeel.prompts.promotion import LOCK_NAME, Promotion, Reversal, promote, roll_back
from evenkeel.prompts.registry import PromptRegistry, PromptVersion, digest

NUM_MOVES = 40
# One process: promotes texts of its own, as fast as it can.
MOVER = """
import sys
from pathlib import Path
from evenkeel.prompts.promotion import Promotion, promote
from evenkeel.prompts.registry import PromptRegistry, PromptVersion, digest

folder, who = sys.argv[1:]
registry = PromptRegistry(Path(folder))
print("ready", flush=True)
sys.stdin.readline()
for number in range(int(sys.stdin.readline())):
    text = f"{who} {number}"
    prompt = PromptVersion("support", digest(text), text)
    promote(registry, Promotion(prompt, "production", who, reason="race"), number * 10**9)
"""


def text_of(system: str) -> PromptVersion:
    return PromptVersion("support", digest(system), system)


def forced(system: str) -> Promotion:
    return Promotion(text_of(system), "production", "ann", reason="test")


def test_processes_that_promote_at_once_lose_no_move(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    movers = [
        subprocess.Popen(
            [sys.executable, "-c", MOVER, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in names
    ]
    try:
        for mover in movers:
            assert mover.stdout is not None
            assert mover.stdout.readline() == "ready\n"
        for mover in movers:
            assert mover.stdin is not None
            mover.stdin.write(f"go\n{NUM_MOVES}\n")
            mover.stdin.flush()
        assert [mover.wait(240.0) for mover in movers] == [0, 0, 0]
    finally:
        for mover in movers:
            mover.kill()
            mover.communicate()
    registry = PromptRegistry(tmp_path)
    moved = [move.version for move in registry.history("support")]
    assert sorted(moved) == sorted(
        digest(f"{name} {number}") for name in names for number in range(NUM_MOVES)
    )
    assert set(registry.versions("support")) == set(moved)


def test_threads_that_promote_and_roll_back_at_once_lose_no_move(tmp_path: Path) -> None:
    registry = PromptRegistry(tmp_path)
    promote(registry, forced("first"), 0)
    promote(registry, forced("second"), 0)

    def both(number: int) -> None:
        promote(registry, forced(f"text {number}"), 0)
        roll_back(registry, Reversal("support", "production", "bob"), 0)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(both, range(20)))
    assert len(registry.history("support")) == 42
    assert registry.labels("support") == {"production": digest("second")}


def test_a_lock_that_is_never_released_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prompt_promotion, "_LONGEST_WAIT_S", 0.05)
    fd = os.open(tmp_path / LOCK_NAME, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(ConfigurationError, match="another process has held the label lock"):
        promote(PromptRegistry(tmp_path), forced("first"), 0)
    os.close(fd)
    promote(PromptRegistry(tmp_path), forced("first"), 0)
    with pytest.raises(ConfigurationError, match="cannot be locked"):
        promote(PromptRegistry(tmp_path / "nowhere"), forced("first"), 0)


@pytest.mark.parametrize(
    ("verdict", "code"),
    [
        ("better", 0),
        ("no worse", 0),
        ("regressed", 1),
        ("inconclusive", 3),
        ("could not measure", 3),
        ("", 3),
    ],
)
def test_what_a_verdict_allows(tmp_path: Path, verdict: str, code: int) -> None:
    registry = PromptRegistry(tmp_path)
    run = JudgedRun("r1", verdict, None, digest("first"))
    wanted = Promotion(text_of("first"), "production", "ann", run)
    if code == 0:
        assert promote(registry, wanted, 0).version == digest("first")
        return
    with pytest.raises(EvenkeelError, match="run r1 did not pass") as refused:
        promote(registry, wanted, 0)
    assert refused.value.exit_code == code
    assert registry.history("support") == []
