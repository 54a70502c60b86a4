"""Reads from a request's span what delayed it, and what caches, compression and canary did."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.why.ledger import missed_prefix
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.pages.request.token_model import Attributes, number

Row = Mapping[str, Any]

_RIVALS = "evenkeel.rivals."
_PREFIX = "evenkeel.prefix."


@dataclass(frozen=True, slots=True)
class RivalCost:
    """A concurrent request, and the time that this one would have saved without it.

    Attributes:
        request_id: Its id; "" if it is another tenant's.
        cost_s: The time.
        prefill_tokens: Prompt tokens computed beside this request.
        decode_tokens: Tokens it decoded meanwhile.
    """

    request_id: str
    cost_s: float
    prefill_tokens: int
    decode_tokens: int


def rivals(attributes: Attributes) -> list[RivalCost]:
    """Return the requests that delayed this one most, worst first; [] if none are recorded."""
    ids = _list(attributes, "request_ids")
    numbers = [_list(attributes, name) for name in ("cost_s", "prefill_tokens", "decode_tokens")]
    if any(len(each) != len(ids) for each in numbers):
        return []
    found = []
    for request_id, cost_s, prefill, decode in zip(ids, *numbers, strict=True):
        if all(isinstance(value, int | float) for value in (cost_s, prefill, decode)):
            found.append(RivalCost(str(request_id), float(cost_s), int(prefill), int(decode)))
    return found


def _list(attributes: Attributes, name: str) -> list[Any]:
    try:
        found = json.loads(attributes.get(_RIVALS + name) or "[]")
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class PrefixMiss:
    """Why the prefix cache lacked part of the prompt: a sentence, and who evicted it, if known."""

    words: str
    evicted_by: str


def prefix_miss(attributes: Attributes) -> PrefixMiss | None:
    """Return why the prefix cache lacked part of the prompt; None if it lacked nothing."""
    miss = attributes.get(f"{_PREFIX}miss", "")
    why = missed_prefix(miss, number(attributes, f"{_PREFIX}evicted_s"), formats.seconds)
    if not why:
        return None
    missed = number(attributes, f"{_PREFIX}missed_tokens")
    cost_s = number(attributes, f"{_PREFIX}cost_s")
    diverged_at = number(attributes, f"{_PREFIX}diverged_at")
    unstable = number(attributes, f"{_PREFIX}unstable_tokens")
    words = (
        f"{formats.count(missed)} prompt tokens (whole blocks) were not in the prefix cache: {why}"
    )
    if miss == "diverged" and diverged_at is not None:
        words += f", from token {diverged_at:,.0f} on"
    words += f". Computing them took {formats.seconds(cost_s)}." if cost_s else "."
    if unstable:
        words += (
            f" {formats.count(unstable)} of them are unchanged text after a changing part: move "
            "the changing part to the end of the prompt."
        )
    return PrefixMiss(words, attributes.get(f"{_PREFIX}evicted_by", ""))


def canary_words(found: Sequence[Row]) -> str:
    """Return the result of regenerating the answer without drafts; "" if it was not sampled."""
    for row in found:
        if row["result"] == "match":
            return "same answer without drafts"
        at = row["differs_at"]
        return f"differs without drafts from token {at} on" if at else "differs without drafts"
    return ""
