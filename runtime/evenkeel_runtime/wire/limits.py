"""Control's limits for the engine's process: two ratios in a file that both processes map."""

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
    """Limits as fractions of vLLM's configuration; 1 means no limit.

    Attributes:
        prefill_ratio: Fraction of a step's tokens that one prompt may take.
        draft_ratio: Fraction of the draft length.
    """

    prefill_ratio: float = 1.0
    draft_ratio: float = 1.0


def limits_path(folder: Path) -> Path:
    """Return the path of this process's limits file; delete the files of processes that ended."""
    for left in folder.glob("limits-*"):
        owner = left.name.removeprefix("limits-")
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            left.unlink(missing_ok=True)
    return folder / f"limits-{os.getpid()}"


class LimitsFile:
    """The mapped limits file; control writes it, the engine reads it before each step.

    Args:
        path: The file, written by `create`.

    Raises:
        OSError: If it cannot be mapped.
    """

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _LAYOUT.size)

    @classmethod
    def create(cls, path: Path) -> LimitsFile:
        """Create a file without limits and return it."""
        with open(path, "wb", opener=open_private) as file:
            file.write(_LAYOUT.pack(1.0, 1.0))
        return cls(path)

    def read_bytes(self) -> bytes:
        """Return the encoded limits, so that a change can be detected without decoding."""
        return self._memory[:]

    def write(self, limits: EngineLimits) -> None:
        """Set the limits for the engine's next step and later ones."""
        _LAYOUT.pack_into(self._memory, 0, limits.prefill_ratio, limits.draft_ratio)


def decode_limits(data: bytes) -> EngineLimits:
    """Return the limits encoded in the result of `LimitsFile.read_bytes`."""
    return EngineLimits(*_LAYOUT.unpack(data))
