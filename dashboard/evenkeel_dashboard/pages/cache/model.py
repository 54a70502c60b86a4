"""Computes the cache page's headline numbers, outcomes, causes and error bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel.why.ledger import MISSES
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.markup import page_link
from evenkeel_dashboard.draw.tiles import Tile

Row = Mapping[str, Any]

HITS = ("exact", "semantic")
# A larger bound on wrong answers says nothing about them.
_INFORMATIVE_BOUND = 0.5


def cache_tiles(
    cohorts: Sequence[Row], outcomes: Sequence[Row], details: Sequence[Row]
) -> list[Tile]:
    """Return the headline numbers; there are none for a cache that is off.

    Args:
        cohorts: Rows of `cache_cohorts`; the first one has the sums of all cohorts.
        outcomes: Rows of `response_cache_counts`.
        details: Rows of `response_cache_details`.
    """
    tiles = _prefix_tiles(cohorts[0]) if cohorts else []
    return tiles + _response_tiles(outcomes, details) if outcomes else tiles


def _prefix_tiles(row: Row) -> list[Tile]:
    hits = _ratio(row["all_cached_tokens"], row["all_input_tokens"])
    return [
        Tile("Prefix hits", hits, "", "input tokens found / input tokens"),
        Tile(
            "Tokens saved",
            formats.count(row["all_cached_tokens"]),
            "",
            "input tokens that were not computed",
        ),
        Tile(
            "Prefill saved",
            formats.seconds(row["all_saved_s"]),
            "",
            "estimated time to compute these tokens",
        ),
        Tile(
            "Cold requests",
            _ratio(row["all_cold"], row["all_requests"]),
            "",
            "requests that found nothing in the cache",
        ),
    ]


def _response_tiles(outcomes: Sequence[Row], details: Sequence[Row]) -> list[Tile]:
    answered = sum(row["num_requests"] for row in outcomes)
    hits = sum(row["num_requests"] for row in outcomes if row["outcome"] in HITS)
    verified = sum(row["num_requests"] for row in outcomes if row["outcome"] == "verified")
    response_s = sum(row["saved_s"] or 0.0 for row in details) if details else None
    tiles = [
        Tile(
            "Response hits", _ratio(hits, answered), "", "answers given from the cache / looked up"
        ),
        Tile(
            "Verified answers",
            _ratio(verified, answered),
            "",
            "model answers that a cached answer made faster / looked up",
        ),
        Tile(
            "Time saved",
            formats.seconds(response_s),
            "",
            "time that the model originally took for these answers",
        ),
        Tile(
            "Recall",
            formats.percent(recall_ratio(details)),
            "",
            "answers served or verified / requests whose lookup found an equivalent answer; "
            "near hits that were not compared are assumed to be like those that were",
        ),
    ]
    replayed = sum(row["num_replayed"] for row in details if row["verdict"])
    if replayed:
        wrong = sum(row["num_replayed"] for row in details if row["verdict"] == "different")
        tiles.append(
            Tile(
                "Wrong hits found",
                f"{formats.count(wrong)} of {formats.count(replayed)}",
                "",
                "served near hits that the model also answered, with a different answer",
            )
        )
    bounds = [row["wrong_bound"] for row in _bounded(details)]
    if bounds:
        tiles.append(
            Tile(
                "Wrong answers (upper bound)",
                formats.percent(max(bounds)),
                "",
                "upper bound on the share of cached answers that are wrong",
            )
        )
    return tiles


def recall_ratio(details: Sequence[Row]) -> float | None:
    """Return the share of the equivalent answers found that were served or verified.

    used / (used + missed). Missed are the near hits not used that the model's own answer agreed
    with; those not compared count as the compared ones. None without any, or if none was compared.
    """
    used = sum(row["num_served"] + row["num_verified"] for row in details)
    unused = {
        verdict: sum(row["num_unused"] for row in details if row["verdict"] == verdict)
        for verdict in ("same", "different", "")
    }
    judged = unused["same"] + unused["different"]
    if unused[""] and not judged:
        return None
    missed = unused["same"] * (1 + unused[""] / judged) if judged else 0.0
    return used / (used + missed) if used + missed else None


def _bounded(details: Sequence[Row]) -> list[Row]:
    """Return the rows with an informative bound: near 1 it only means too few verdicts."""
    return [
        row
        for row in details
        if row["wrong_bound"] is not None and row["wrong_bound"] <= _INFORMATIVE_BOUND
    ]


def bound_words(details: Sequence[Row]) -> str:
    """Return the bound on wrong answers in words."""
    found = _bounded(details)
    if not found:
        return "No bound on wrong answers yet: too few cached answers were compared in this range."
    worst = max(found, key=lambda row: float(row["wrong_bound"]))
    text = f"At most {formats.percent(worst['wrong_bound'])} of its answers are wrong"
    if worst["wrong_limit"] is None:
        return f"{text}."
    return f"{text}; above {formats.percent(worst['wrong_limit'])} it stops answering."


def _ratio(part: float, whole: float) -> str:
    return formats.percent(part / whole if whole else None)


def miss_words(miss: str) -> str:
    """Return in words why a prompt was not in the prefix cache."""
    return MISSES.get(miss, miss)


_REASONS = {
    "about_asker": "the question is about the asker",
    "personal_data": "it has personal data",
    "route_off": "off for this route",
    "tools": "it uses tools",
    "several_answers": "it wants several answers",
    "logprobs": "it wants log probabilities",
    "transfer": "its KV is transferred",
    "sampled": "sampled answers differ each time (temperature above the route's limit)",
    "no_question": "it does not end with a question",
    "not_text": "it has images or other media",
    "unreadable": "the request could not be read",
    "numbers": "a number or a sign differs",
    "names": "a name differs",
    "negation": "one of them is negated",
    "relation": "they ask for something else, or relate the same words in another way",
    "slot": "one of them has a further detail",
    "contrast": "a word that matters differs",
    "embedding_late": "its embedding was not ready in time",
    "embedding_queue_full": "too many embeddings were queued",
}
_KINDS = {
    "same_words": "the words of a question with this answer",
    "known_words": "only words of questions with this answer, but not all of one",
    "passed_new_word": "a new word",
    "passed_rival_word": "a word of another answer",
    "slot_new_word": "a further detail, in a new word",
    "slot_rival_word": "a further detail, in a word of another answer",
    "contrast_new_word": "a word that matters differs: a new one",
    "contrast_rival_word": "a word that matters differs: one of another answer",
    "numbers": "a number or a sign differs",
    "names": "a name differs",
    "negation": "one of them is negated",
    "relation": "they ask for something else, or relate the same words in another way",
}
_STATUSES = {
    "served": ("served", "good"),
    "learning": ("learning: too few verdicts", ""),
    "verified": ("verified: too many were wrong", "warning"),
}
_MODES = {"serve": "answers", "shadow": "shadow", "off": "off"}
_VERDICTS = {"same": "same answer", "different": "different answer"}


def reason_words(reason: str) -> str:
    """Return in words why the response cache did not answer; an unknown reason as it is."""
    return _REASONS.get(reason, reason.replace("_", " "))


def kind_words(kind: str) -> str:
    """Return in words what a question's words say about a near hit; an unknown kind as it is."""
    return _KINDS.get(kind, kind.replace("_", " "))


def status_words(row: Row) -> tuple[str, str]:
    """Return what happens to the near hits of a class, and the level of its badge."""
    if row["mode"] == "shadow":
        return "measured: the route is in shadow mode", ""
    if row["mode"] == "draft" and row["status"] == "served":
        return "verified: the route only drafts", ""
    return _STATUSES.get(row["status"], (row["status"], ""))


def evidence_words(rows: Sequence[Row]) -> str:
    """Return where the verdicts on classes come from."""
    # A kind's classes are nested, so the one with the most verdicts has them all.
    widest: dict[tuple[str, str], Row] = {}
    for row in sorted(rows, key=lambda row: float(row["seen"])):
        widest[row["route"], row["kind"]] = row
    seen, labelled = (sum(row[name] for row in widest.values()) for name in ("seen", "labelled"))
    text = (
        "A verdict compares a cached answer with the model's own. A class is served while the "
        "upper bound on its rate of wrong hits is below the limit."
    )
    if not labelled:
        return f"{text} All verdicts come from this service's own traffic."
    return (
        f"{text} {formats.count(labelled)} of these {formats.count(seen)} verdicts come from "
        "labelled questions (evenkeel cache calibrate), the others from this service's traffic."
    )


def near_miss_words(row: Row) -> str:
    """Return in words why a similar cached answer was not used."""
    if row["reason"]:
        return reason_words(row["reason"])
    return "shadow mode" if row["outcome"] == "shadow" else "not similar enough"


def near_miss_href(row: Row, params: Mapping[str, str]) -> str:
    """Return the link to a request, by its arrival, as a trace may have several."""
    return page_link("request", {"trace_id": row["trace_id"], "at": str(row["time_ms"]), **params})


def mode_words(mode: str) -> str:
    """Return the mode of a lookup in words; – if there was none."""
    return _MODES.get(mode, mode) or "–"


def verdict_words(verdict: str) -> str:
    """Return how a cached answer compared with the model's; – if it was not compared."""
    return _VERDICTS.get(verdict, verdict) or "–"


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
