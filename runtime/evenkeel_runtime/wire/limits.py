"""What control allows the engine's process: two ratios in a file that both processes map."""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path

from evenkeel.private_files import open_private

LIMITS_VARIABLE = "EVENKEEL_STEPS_LIMITS_FILE"

_LAYOUT = struct.Struct("=2d")


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Shares of what vLLM is configured to do; 1 is all of it.

    Attributes:
        prefill_ratio: Of the tokens of a step, what one prompt may take.
        draft_ratio: Of the draft length.
    """

    prefill_ratio: float = 1.0
    draft_ratio: float = 1.0


def limits_path(folder: Path) -> Path:
    """Return where this process keeps its limits, having removed those of processes that ended."""
    for left in folder.glob("limits-*"):
        owner = left.name.removeprefix("limits-")
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            left.unlink(missing_ok=True)
    return folder / f"limits-{os.getpid()}"


class LimitsFile:
    """The mapped file; one process writes, the engine's reads it before each step.

    Args:
        path: The file, made by `create`.

    Raises:
        OSError: If it cannot be mapped.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)

    @classmethod
    def create(cls, path: Path) -> LimitsFile:
        """Return a new file that limits nothing."""
        with open(path, "wb", opener=open_private) as file:
            file.write(_LAYOUT.pack(1.0, 1.0))
        return cls(path)

    def read_bytes(self) -> bytes:
        """Return the limits as they are now, encoded: whether they changed is seen without more."""
        return self._memory[:]

    def write(self, limits: EngineLimits) -> None:
        """Put new limits in force from the engine's next step on."""
        _LAYOUT.pack_into(self._memory, 0, limits.prefill_ratio, limits.draft_ratio)


def decode_limits(data: bytes) -> EngineLimits:
    """Return the limits that `LimitsFile.read_bytes` returned."""
    return EngineLimits(*_LAYOUT.unpack(data))
