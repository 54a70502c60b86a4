"""Diagnoses which resource limits an engine, with the evidence."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.why.advice import Advice, advise
from evenkeel_dashboard.draw import formats

Row = Mapping[str, Any]

# At or above this share of live KV blocks, memory limits which requests run.
FULL_KV_RATIO = 0.8
# At or above this share of time in steps, compute is nearly saturated.
BUSY_RATIO = 0.9
# Names in vLLM's metrics and our step records for a queue that waits for memory.
MEMORY_REASONS = ("kv", "capacity", "kv_cache", "preempted")
# At or above this many waiting requests on average there is a queue.
QUEUE_FROM = 0.5
# Descriptions of our step records' reasons; vLLM's own are shown as they are.
REASONS = {
    "budget": "the step's token budget is used up (max_num_batched_tokens)",
    "kv": "no free KV blocks",
    "seats": "the maximum number of sequences is running (max_num_seqs)",
    "grammar": "a grammar is being compiled",
    "remote_kv": "its KV is being transferred from elsewhere",
}

COLUMNS = (
    "num_running",
    "num_waiting",
    "batch_size",
    "step_mean_s",
    "step_longest_s",
    "busy_ratio",
    "kv_live_ratio",
    "kv_resident_ratio",
    "num_preempted",
    "prefill_tokens_per_s",
    "output_tokens_per_s",
    "acceptance_rate",
    "prefix_hit_ratio",
)


@dataclass(frozen=True, slots=True)
class Sign:
    """One piece of evidence: what was measured, and what it suggests.

    `column` is the column it comes from; "waiting_by_reason" is the rows of reasons.
    """

    name: str
    value: str
    meaning: str
    suggests: str
    column: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What limits the engine.

    Attributes:
        level: good, warning, bad or unknown.
        limit: What limits it, such as "Memory-bound"; "" if nothing does.
        now: The finding in the present tense; `past` is the same in the past tense.
        advice: What to do.
        signs: The evidence, for and against.
    """

    level: str
    limit: str
    now: str
    past: str
    advice: str
    signs: Sequence[Sign]

    @property
    def headline(self) -> str:
        """The finding, as of now."""
        return f"{self.limit}: {self.now}" if self.limit else self.now


@dataclass(frozen=True, slots=True)
class Load:
    """Input of the diagnosis: means over a time, the maximum for KV; None if not measured.

    Attributes:
        num_waiting: Requests waiting; `waiting_for_memory`, `waiting_for_budget` and
            `waiting_for_seats` are those that wait for KV blocks, for the step's token budget and
            for a place in the batch.
        kv_live_ratio: Share of KV blocks that requests use, highest.
        num_preempted: Preemptions.
        busy_ratio: Share of time in steps.
        leaked_ratio: Share of KV blocks in use while nothing ran or waited, lowest.
    """

    num_waiting: float | None
    waiting_for_memory: float | None
    kv_live_ratio: float | None
    num_preempted: float | None
    busy_ratio: float | None
    waiting_for_budget: float | None = None
    waiting_for_seats: float | None = None
    leaked_ratio: float | None = None


def load_of(rows: Sequence[Row], waiting: Sequence[Row]) -> Load:
    """Return the input of the diagnosis from the rows of the series."""

    def held(*reasons: str) -> float | None:
        found = [w["num_waiting"] for w in waiting if w["reason"] in reasons]
        return sum(found) / len(rows) if waiting and rows else None

    idle = [row for row in rows if row["num_running"] == 0 and not row["num_waiting"]]
    return Load(
        num_waiting=_mean(rows, "num_waiting"),
        waiting_for_memory=held(*MEMORY_REASONS),
        kv_live_ratio=max(_present(rows, "kv_live_ratio"), default=None),
        num_preempted=sum(found) if (found := _present(rows, "num_preempted")) else None,
        busy_ratio=_mean(rows, "busy_ratio"),
        waiting_for_budget=held("budget"),
        waiting_for_seats=held("seats"),
        leaked_ratio=min(_present(idle, "kv_live_ratio"), default=None),
    )


def diagnose(load: Load, *, has_flags: bool = True) -> Diagnosis:
    """Return whether memory or compute limits an engine, and why.

    Without either of KV use and the reason why requests wait, nobody can tell. Memory: requests
    wait, and nearly all KV blocks are live or a request was preempted. Compute:
    requests wait while blocks are free: for the step's token budget, for a place in the batch, or
    for neither. Nothing: nothing waits, whatever else is full. A leak: blocks stay in use while
    nothing runs.

    Args:
        load: What was measured.
        has_flags: Whether the advice may name vLLM's flags.
    """

    def advice(cause: str) -> str:
        found = advise(cause)
        return "" if found is None else _flagged(found) if has_flags else found.text

    signs = _signs(load)
    if load.num_waiting is None and load.kv_live_ratio is None:
        return Diagnosis("unknown", "", "No engine data", "No engine data", "", signs)
    waiting = load.num_waiting or 0.0
    is_full = (load.kv_live_ratio or 0.0) >= FULL_KV_RATIO
    for_memory = is_full or bool(load.num_preempted) or (load.waiting_for_memory or 0.0) > 0.5
    waits = waiting >= QUEUE_FROM
    if for_memory and (waits or load.num_preempted):
        return Diagnosis(
            "bad",
            "Memory-bound",
            "requests wait for KV blocks",
            "requests waited for KV blocks",
            advice("queue.kv"),
            signs,
        )
    if waits:
        return _while_queued(load, waiting, signs, advice)
    if load.leaked_ratio:
        return Diagnosis(
            "bad",
            "KV leak",
            "blocks stay in use with nothing running",
            "blocks stayed in use with nothing running",
            "Something, such as a KV connector, does not release its blocks: restart the engine, "
            "and let the SLO template kv-leak watch it.",
            signs,
        )
    if (load.busy_ratio or 0.0) >= BUSY_RATIO:
        return Diagnosis(
            "good",
            "",
            "Compute is nearly saturated, but nothing is queued yet",
            "Compute was nearly saturated, but nothing was queued",
            "More traffic will queue: add compute before it comes.",
            signs,
        )
    return Diagnosis(
        "good",
        "",
        "Neither memory nor compute is a limit: nothing is queued",
        "Neither memory nor compute was a limit: nothing was queued",
        "",
        signs,
    )


def _while_queued(
    load: Load, waiting: float, signs: Sequence[Sign], advice: Callable[[str], str]
) -> Diagnosis:
    """Return what limits an engine in which requests wait, although memory does not."""
    if load.kv_live_ratio is None and load.waiting_for_memory is None:
        return Diagnosis(
            "warning",
            "Queue of unknown cause",
            "the engine does not report whether memory or compute holds requests",
            "the engine did not report whether memory or compute held requests",
            "Add a replica, or let fewer requests in; see the engine's own log for its KV cache.",
            signs,
        )
    if (load.waiting_for_budget or 0.0) >= waiting / 2:
        return Diagnosis(
            "warning",
            "Compute-bound",
            "each step's token budget is spent while KV blocks are free",
            "each step's token budget was spent while KV blocks were free",
            advice("queue.budget"),
            signs,
        )
    if (load.waiting_for_seats or 0.0) >= waiting / 2:
        return Diagnosis(
            "warning",
            "Too few batch slots",
            "the maximum number of sequences is running while KV blocks are free",
            "the maximum number of sequences was running while KV blocks were free",
            advice("queue.seats"),
            signs,
        )
    return Diagnosis(
        "warning",
        "Compute-bound",
        "requests wait while KV blocks are free",
        "requests waited while KV blocks were free",
        "Add compute: larger batches while steps stay short, a smaller or "
        "quantised model, or another replica. More KV memory would not help.",
        signs,
    )


def _flagged(advice: Advice) -> str:
    return f"{advice.text} Flags: {', '.join(advice.flags)}." if advice.flags else advice.text


@dataclass(frozen=True, slots=True)
class EngineVerdict:
    """What limits the engine now, or limited it before.

    Attributes:
        level: good, warning, bad or unknown.
        headline: The finding; a past one says until when.
        advice: What to do.
        signs: The evidence.
        measured: Over what the evidence was measured.
    """

    level: str
    headline: str
    advice: str
    signs: Sequence[Sign]
    measured: str


def verdict(
    recent: Diagnosis, queued: Diagnosis, recent_words: str, until: str, *, is_past: bool = False
) -> EngineVerdict:
    """Return the verdict over the last part of a range, and what limited the engine before.

    Args:
        recent: Diagnosis of the last part.
        queued: Diagnosis of the whole range's times with a queue.
        recent_words: Length of the last part, such as "1 min".
        until: When the last queue ended, such as "01:01:31 UTC, 2 min ago", of a range in the past
            without "ago"; "" if none did.
        is_past: Whether the range ended in the past.
    """
    if recent.limit or not (queued.limit and until):
        measured = f"over the last {recent_words}{' of this range' if is_past else ''}"
        headline = f"{recent.headline} (last {recent_words})" if recent.limit else recent.headline
        if is_past:
            headline = _past_headline(recent, recent_words)
        return EngineVerdict(recent.level, headline, recent.advice, recent.signs, measured)
    nothing = "Nothing was queued at the end of this range" if is_past else "Nothing is queued now"
    headline = f"{nothing}. {queued.limit} until {until}: {queued.past}"
    measured = "over the times of this range in which requests queued"
    return EngineVerdict(recent.level, headline, queued.advice, queued.signs, measured)


def _past_headline(recent: Diagnosis, recent_words: str) -> str:
    """Return what was found in the last part of a range that ended in the past."""
    if recent.level == "unknown":
        return recent.past
    when = f"In the last {recent_words} of this range"
    if recent.limit:
        return f"{recent.limit}: {when[:1].lower()}{when[1:]}, {recent.past}"
    return f"{when}, {recent.past[:1].lower()}{recent.past[1:]}"


def _signs(load: Load) -> list[Sign]:
    kv, waiting = load.kv_live_ratio, load.num_waiting or 0.0
    signs = [
        Sign(
            "requests waiting",
            formats.number(load.num_waiting),
            "average; below 0.5 there is no queue",
            "saturation" if waiting >= QUEUE_FROM else "",
            "num_waiting",
        ),
        Sign(
            "waiting for the token budget",
            formats.number(load.waiting_for_budget),
            "of those, left out because the step's token budget was spent",
            "compute: --max-num-batched-tokens" if _is_main(load.waiting_for_budget, load) else "",
            "waiting_by_reason",
        ),
        Sign(
            "waiting for a batch slot",
            formats.number(load.waiting_for_seats),
            "of those, left out because the maximum number of sequences was running",
            "batch slots: --max-num-seqs" if _is_main(load.waiting_for_seats, load) else "",
            "waiting_by_reason",
        ),
        Sign(
            "waiting for KV blocks",
            formats.number(load.waiting_for_memory),
            "of those, waiting for memory",
            "memory" if (load.waiting_for_memory or 0.0) > 0.5 else "",
            "waiting_by_reason",
        ),
        Sign(
            "KV blocks in use",
            formats.percent(kv),
            f"highest; at {formats.percent(FULL_KV_RATIO)} or more it is full",
            _kv_suggests(kv, waiting),
            "kv_live_ratio",
        ),
        Sign(
            "preemptions",
            formats.count(load.num_preempted),
            "requests evicted and recomputed",
            "memory" if load.num_preempted else "",
            "num_preempted",
        ),
        Sign(
            "time in steps",
            formats.percent(load.busy_ratio),
            f"average; at {formats.percent(BUSY_RATIO)} or more the engine is saturated",
            "compute" if (load.busy_ratio or 0.0) >= BUSY_RATIO else "",
            "busy_ratio",
        ),
    ]
    if load.leaked_ratio is not None:
        signs.append(
            Sign(
                "KV blocks in use while idle",
                formats.percent(load.leaked_ratio),
                "lowest with nothing running; above 0, blocks leak",
                "leak" if load.leaked_ratio else "",
            )
        )
    return signs


def _is_main(part: float | None, load: Load) -> bool:
    """Return whether a reason holds back at least half of a queue."""
    waiting = load.num_waiting or 0.0
    return part is not None and waiting >= QUEUE_FROM and part >= waiting / 2


def _kv_suggests(kv: float | None, waiting: float) -> str:
    if kv is None:
        return ""
    if kv >= FULL_KV_RATIO:
        return "memory"
    return "not memory" if waiting >= QUEUE_FROM else ""


def _present(rows: Sequence[Row], column: str) -> list[float]:
    return [
        float(row[column])
        for row in rows
        if row[column] is not None and not math.isnan(row[column])
    ]


def _mean(rows: Sequence[Row], column: str) -> float | None:
    found = _present(rows, column)
    return sum(found) / len(found) if found else None
