"""Puts control's limits on the engine's steps in force, inside vLLM's scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from evenkeel_runtime.wire.limits import EngineLimits, LimitsFile, decode_limits

# A smaller chunk costs more in steps than it gives back.
_LEAST_CHUNK_TOKENS = 32


class StepLimiter:
    """Caps the tokens of one prompt in a step, as control says.

    Args:
        scheduler: vLLM's scheduler; what it was configured with comes back when control lets go.
        path: The file that control writes.

    Raises:
        OSError: If the file cannot be mapped.
        AttributeError: If this vLLM's scheduler does not have what is moved here.
    """

    def __init__(self, scheduler: Any, path: Path) -> None:
        self._scheduler = scheduler
        self._file = LimitsFile(path)
        self._in_force = EngineLimits()
        self._known = b""
        self._threshold: int = scheduler.scheduler_config.long_prefill_token_threshold
        self._is_adaptive: bool = scheduler.adaptive_long_prefill_threshold

    @property
    def limits(self) -> EngineLimits:
        """What is in force."""
        return self._in_force

    def apply(self) -> None:
        """Read the limits, and move vLLM's where they changed."""
        written = self._file.read_bytes()
        if written == self._known:
            return
        self._known = written
        limits = self._in_force = decode_limits(written)
        scheduler = self._scheduler
        config = scheduler.scheduler_config
        is_capped = limits.prefill_ratio < 1
        # An adaptive threshold is vLLM's floor under the cap; it would undo it at low load.
        scheduler.adaptive_long_prefill_threshold = self._is_adaptive and not is_capped
        if not is_capped:
            config.long_prefill_token_threshold = self._threshold
            return
        chunk = int(scheduler.max_num_scheduled_tokens * limits.prefill_ratio)
        chunk = max(_LEAST_CHUNK_TOKENS, chunk)
        config.long_prefill_token_threshold = (
            min(chunk, self._threshold) if self._threshold > 0 else chunk
        )
