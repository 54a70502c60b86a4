"""Describe an engine's speculation state for the server's `/metrics`."""

from __future__ import annotations

from math import log
from typing import Any

from evenkeel_runtime.speculation.engine import Speculation
from evenkeel_runtime.speculation.gain import Gain


def describe_state(speculation: Speculation, num_errors: int) -> dict[str, Any]:
    """Return the state as plain numbers and lists, under the names that `/metrics` uses."""
    state: dict[str, Any] = {
        "errors": num_errors,
        "store_tokens": speculation.store.num_tokens,
        "store_answers": speculation.store.num_answers,
        "store_bytes": speculation.store.size_bytes,
        "drafting_s": speculation.drafting_ns / 1e9,
        "sampled_drafts": int(speculation.drafts_sampled),
        "sampled_watched": speculation.watched_tokens,
        "sampled_evidence": speculation.log_evidence / log(10),
    }
    learned = speculation.controller.read_state()
    state["mean_drafted"] = [[size, mean] for size, mean in learned.mean_drafted.items()]
    state["gain"] = None if learned.gain is None else _numbers(learned.gain)
    by_batch = learned.gain_by_batch.items()
    state["gain_by_batch"] = [[size, *_numbers(gain)] for size, gain in by_batch]
    return state


def _numbers(gain: Gain) -> list[float]:
    return [gain.ratio, gain.lower, gain.upper, gain.num_blocks, gain.num_holdout_blocks]
