"""Computes the cache page's headline numbers, outcomes, causes and error bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel_dashboard.draw import wording
from evenkeel_dashboard.draw.tiles import Tile

Row = Mapping[str, Any]

_OUTCOMES = {
    "exact": "hit: the same question",
    "semantic": "hit: a similar question",
    "miss": "miss",
    "bypass": "not looked up",
    "shadow": "shadow: looked up, not answered from",
    "draft": "used as a draft, verified by the model",
}
HITS = ("exact", "semantic")


def outcome_words(outcome: str) -> str:
    """Return an outcome of the response cache in words."""
    return _OUTCOMES.get(outcome, outcome)


def cache_tiles(
    cohorts: Sequence[Row], outcomes: Sequence[Row], details: Sequence[Row]
) -> list[Tile]:
    """Return the headline numbers; there are none for a response cache that is off."""
    tokens = sum(row["input_tokens_sum"] or 0 for row in cohorts)
    cached = sum(row["cached_tokens_sum"] or 0 for row in cohorts)
    requests = sum(row["num_requests"] for row in cohorts)
    cold = sum((row["cold_ratio"] or 0.0) * row["num_requests"] for row in cohorts)
    saved_s = sum(row["saved_s"] or 0.0 for row in cohorts)
    answered = sum(row["num_requests"] for row in outcomes)
    hits = sum(row["num_requests"] for row in outcomes if row["outcome"] in HITS)
    response_s = sum(row["saved_s"] or 0.0 for row in details) if details else None
    bounds = [row["wrong_bound"] for row in _bounded(details)]
    return [
        Tile("Prefix hits", _ratio(cached, tokens), "", "input tokens found / input tokens"),
        Tile("Tokens saved", wording.count(cached), "", "input tokens that were not computed"),
        Tile(
            "Prefill saved", wording.seconds(saved_s), "", "estimated time to compute these tokens"
        ),
        Tile(
            "Cold requests", _ratio(cold, requests), "", "requests that found nothing in the cache"
        ),
        Tile(
            "Response hits", _ratio(hits, answered), "", "answers given from the cache / looked up"
        ),
        Tile(
            "Time saved",
            wording.seconds(response_s),
            "",
            "time the model had taken for these answers",
        ),
        Tile(
            "Wrong answers (upper bound)",
            wording.percent(max(bounds, default=None)),
            "",
            "upper bound on the share of cached answers that are wrong",
        ),
    ]


def _bounded(details: Sequence[Row]) -> list[Row]:
    """Return the rows with an informative bound: 1 only means that there are no verdicts."""
    return [row for row in details if row["wrong_bound"] is not None and row["wrong_bound"] < 1]


def bound_words(details: Sequence[Row]) -> str:
    """Return the bound on wrong answers in words."""
    found = _bounded(details)
    if not found:
        return "No bound on wrong answers: no hits were verified in this range."
    worst = max(found, key=lambda row: float(row["wrong_bound"]))
    text = f"At most {wording.percent(worst['wrong_bound'])} of its answers are wrong"
    if worst["wrong_limit"] is None:
        return f"{text}."
    return f"{text}; from {wording.percent(worst['wrong_limit'])} on it stops answering."


def _ratio(part: float, whole: float) -> str:
    return wording.percent(part / whole if whole else None)


_MISSES = {
    "none": "fully cached",
    "off": "prefix caching is off",
    "evicted": "evicted before reuse",
    "other_salt": "cached, but isolated from this caller",
    "diverged": "differs from an earlier prompt",
    "never_seen": "never seen",
}


def miss_words(miss: str) -> str:
    """Return in words why a prompt was not in the prefix cache."""
    return _MISSES.get(miss, miss)


def by_cause(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return rows of `prefix_misses` by cause alone, most expensive first."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        cause = found.setdefault(
            row["miss"],
            {"miss": row["miss"], "num_requests": 0.0, "missed_tokens": 0.0, "cost_s": 0.0},
        )
        for name in ("num_requests", "missed_tokens", "cost_s"):
            cause[name] += row[name]
    return sorted(found.values(), key=lambda cause: -cause["cost_s"])


def unstable(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the prompts with static text after changing text, most tokens first."""
    found = [dict(row) for row in rows if row["num_unstable"]]
    return sorted(found, key=lambda row: -row["unstable_tokens"])
