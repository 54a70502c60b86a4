"""Explanation of one request: where its time went, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.times import to_datetime
from evenkeel_runtime.ledger.attribution import Ledger
from evenkeel_runtime.ledger.prefix_explanation import PrefixExplanation
from evenkeel_runtime.ledger.rivals import Rival
from evenkeel_runtime.wire.observation import Observation

_UNTESTED = (
    "cost model not yet fitted: shared steps are split by token counts, so the split between this "
    "request's work and others' is approximate"
)


@dataclass(frozen=True, slots=True)
class Explanation:
    """A request's ledger and its prefix-cache use."""

    ledger: Ledger
    prefix: PrefixExplanation | None = None

    def fill(self, record: Observation) -> None:
        """Write the explanation into the request's record."""
        ledger = self.ledger
        record.ledger = ledger.seconds
        record.ledger_shared_by = ledger.shared_by
        record.ledger_error_ratio = ledger.error_ratio
        record.rival_request_ids = [rival.request_id or "" for rival in ledger.rivals]
        record.rival_cost_s = [rival.cost_s for rival in ledger.rivals]
        record.rival_prefill_tokens = [rival.prefill_tokens for rival in ledger.rivals]
        record.rival_decode_tokens = [rival.decode_tokens for rival in ledger.rivals]
        if ledger.aftermath is not None:
            record.cancel_steps = ledger.aftermath.num_steps
            record.cancel_tokens = ledger.aftermath.tokens
            record.cancel_s = ledger.aftermath.seconds
        if ledger.engine is not None:
            record.engine_s = ledger.engine.spent_s
            record.engine_wasted_s = ledger.engine.wasted_s
            record.engine_saved_prefix_s = ledger.engine.saved_by_prefix_s
            record.engine_saved_drafts_s = ledger.engine.saved_by_drafts_s
            record.energy_j = ledger.engine.energy_j
        if self.prefix is not None:
            self.prefix.fill(record)


def describe(seen: Observation, explanation: Explanation | None, trace_id: str) -> dict[str, Any]:
    """Return the answer to `GET /why/{request_id}`; docs/inside/ledger.md explains each field.

    Args:
        seen: The request's complete record.
        explanation: Explanation from the engine's steps; None if their records are missing.
        trace_id: The request's trace, in hex.
    """
    answer: dict[str, Any] = {
        "request_id": seen.request_id,
        "trace_id": trace_id,
        "model": seen.model,
        "tenant": seen.tenant,
        "status": seen.status.value,
        "response_cache": seen.response_cache,
        "arrival": to_datetime(seen.arrival_unix_ns).isoformat(),
        "ttft_s": seen.ttft_s,
        "decode_s": seen.decode_s,
        "e2e_s": seen.e2e_s,
        "ledger": None,
        "without": [],
        "shared_by": None,
        "model_error_ratio": None,
        "note": None,
        "prefix_cache": None,
        "cancelled": None,
    }
    if explanation is None:
        return answer
    ledger = explanation.ledger
    answer["ledger"] = dict(sorted(ledger.seconds.items(), key=lambda item: -item[1]))
    answer["shared_by"] = ledger.shared_by
    answer["model_error_ratio"] = ledger.error_ratio
    if ledger.error_ratio is None:
        answer["note"] = _UNTESTED
    answer["without"] = [_describe_rival(rival) for rival in ledger.rivals]
    if ledger.aftermath is not None:
        answer["cancelled"] = {
            "steps_after": ledger.aftermath.num_steps,
            "tokens_after": ledger.aftermath.tokens,
            "engine_let_go_after_s": ledger.aftermath.seconds,
        }
    if explanation.prefix is not None:
        answer["prefix_cache"] = _describe_prefix(seen, explanation.prefix)
    return answer


def _describe_rival(rival: Rival) -> dict[str, Any]:
    work = []
    if rival.prefill_tokens:
        work.append(f"{rival.prefill_tokens:,}-token prompt")
    if rival.decode_tokens:
        work.append(f"{rival.decode_tokens:,} decoded tokens")
    return {
        "request_id": rival.request_id,
        "prefill_tokens": rival.prefill_tokens,
        "decode_tokens": rival.decode_tokens,
        "spared_s": rival.cost_s,
        "text": f"{rival.cost_s * 1e3:.0f} ms faster without the concurrent {' and '.join(work)}",
    }


def _describe_prefix(seen: Observation, prefix: PrefixExplanation) -> dict[str, Any]:
    use = prefix.use
    evicted = None
    if use.evicted_ns is not None:
        age_s = (seen.arrival_ns - use.evicted_ns) / 1e9
        evicted = {"before_arrival_s": age_s, "for_request": use.evicted_by}
    diverged = None
    if prefix.diverged_at is not None:
        diverged = {
            "at_token": prefix.diverged_at,
            "from_request": prefix.near_id,
            "static_tokens_behind": prefix.unstable_tokens,
            "own_tokens": list(prefix.own_around),
            "its_tokens": list(prefix.near_around),
        }
    return {
        "prompt_tokens": use.prompt_tokens,
        "hit_tokens": use.cached_tokens,
        "missed_tokens": prefix.missed_tokens,
        "lost_tokens": use.lost_tokens,
        "miss": prefix.miss.value,
        "cost_s": prefix.cost_s,
        "evicted": evicted,
        "diverged": diverged,
    }


def hide_others(answer: dict[str, Any], known: Sequence[str]) -> dict[str, Any]:
    """Return an answer without the ids of requests that are not in the given set."""
    shown = dict(answer)
    shown["without"] = [
        rival | {"request_id": rival["request_id"] if rival["request_id"] in known else None}
        for rival in answer["without"]
    ]
    prefix = answer["prefix_cache"]
    if prefix and prefix["evicted"] and prefix["evicted"]["for_request"] not in known:
        shown["prefix_cache"] = prefix | {"evicted": prefix["evicted"] | {"for_request": None}}
    return shown
