"""Apply control's limits to vLLM's scheduler."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenkeel_runtime.wire.drafts import MAX_DRAFT_KEY
from evenkeel_runtime.wire.limits import EngineLimits, LimitsFile, decode_limits

# Smaller chunks cost more in additional steps than they gain.
_LEAST_CHUNK_TOKENS = 32


class DraftLimits:
    """Cuts the drafts of requests whose longest draft is limited.

    Args:
        is_possible: Whether drafts are known when a step is planned.
    """

    def __init__(self, is_possible: bool) -> None:
        self._is_possible = is_possible
        self._longest: dict[str, int] = {}

    def add(self, request: Any) -> None:
        """Note a new request's limit, if it has one."""
        extra = getattr(request.sampling_params, "extra_args", None) or {}
        longest = extra.get(MAX_DRAFT_KEY)
        if self._is_possible and isinstance(longest, int):
            self._longest[request.request_id] = max(0, longest)

    def apply(self, requests: Mapping[str, Any]) -> None:
        """Cut the drafts of the next step.

        Args:
            requests: The scheduler's unfinished requests by id.
        """
        if not self._longest:
            return
        for request_id, longest in list(self._longest.items()):
            request = requests.get(request_id)
            if request is None:
                del self._longest[request_id]
            elif len(request.spec_token_ids) > longest:
                request.spec_token_ids = request.spec_token_ids[:longest]

    def cut(self, request_id: str, tokens: list[int]) -> list[int]:
        """Return the part of a draft that a request's limit allows."""
        return tokens[: self._longest.get(request_id)]


class StepLimiter:
    """Caps the tokens of one prompt per step while control asks for it and vLLM may split prompts.

    Args:
        scheduler: vLLM's scheduler; its own settings are restored once control lifts the limit.
        path: The file that control writes.

    Raises:
        OSError: If the file cannot be mapped.
        AttributeError: If this vLLM's scheduler lacks the settings to change.
    """

    def __init__(self, scheduler: Any, path: Path) -> None:
        self._scheduler = scheduler
        self._file = LimitsFile(path)
        self._in_force = EngineLimits()
        self._known = b""
        self._threshold: int = scheduler.scheduler_config.long_prefill_token_threshold
        self._is_adaptive: bool = scheduler.adaptive_long_prefill_threshold
        # vLLM cuts a prompt at its threshold even if the model can only take prompts whole
        # (v1/core/sched/scheduler.py), and CLS and mean pooling then fail in the engine.
        self._is_chunked: bool = scheduler.scheduler_config.enable_chunked_prefill

    @property
    def limits(self) -> EngineLimits:
        """The limits in force."""
        return self._in_force

    def apply(self) -> None:
        """Read the limits, and change vLLM's settings if they differ from the last ones."""
        written = self._file.read_bytes()
        if written == self._known:
            return
        self._known = written
        limits = self._in_force = decode_limits(written)
        scheduler = self._scheduler
        config = scheduler.scheduler_config
        is_capped = limits.prefill_ratio < 1 and self._is_chunked
        # vLLM's adaptive threshold would override the cap at low load.
        scheduler.adaptive_long_prefill_threshold = self._is_adaptive and not is_capped
        if not is_capped:
            config.long_prefill_token_threshold = self._threshold
            return
        chunk = int(scheduler.max_num_scheduled_tokens * limits.prefill_ratio)
        chunk = max(_LEAST_CHUNK_TOKENS, chunk)
        config.long_prefill_token_threshold = (
            min(chunk, self._threshold) if self._threshold > 0 else chunk
        )
