"""The content of a notification: how bad it is, where the time went, and example requests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from evenkeel.durations import format_duration
from evenkeel.errors import StoreError
from evenkeel.slo.matchers import silence_command
from evenkeel.slo.model import SESSIONS, Metric, Slo
from evenkeel.slo.query import Span, feedback_parameters, slo_parts
from evenkeel.slo.selection import EXPLORED, page_filters
from evenkeel.slo.series import SloStatus, WindowBurn
from evenkeel.slo.spikes import deviation
from evenkeel.times import rfc3339
from evenkeel.why.causes import describe_cause
from evenkeel.why.ledger import OWN_CAUSES
from evenkeel_collector.slo.money import budget_text, current_period, money
from evenkeel_collector.slo.percent import exact_percent, percent
from evenkeel_collector.slo.session_evidence import session_facts
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.slo.what_changed import read_background, what_changed

_HERE = Path(__file__).parent
# Wide enough that all time is in the bucket 0.
_ONE_BUCKET_NS = 2**63 - 1
# The phases that make up each metric, in request order.
_PHASES = {
    Metric.TTFT: ("queue", "prefill"),
    Metric.TPOT: ("decode",),
    Metric.ITL: ("decode",),
    Metric.STALL: ("decode",),
    Metric.E2E: ("queue", "prefill", "decode"),
}


def describe(
    slo: Slo,
    verdict: SloStatus,
    burn: WindowBurn,
    now_ns: int,
    dashboard_url: str | None,
    currency: str = "",
) -> dict[str, str]:
    """Describe a firing alert without querying the store: one text per fact.

    `currency` is that of the bill.
    """
    long, short = (format_duration(float(s)) for s in (burn.window.long_s, burn.window.short_s))
    rates = (
        f"Burn rate {_rate(burn.burn_long)} over {long} and {_rate(burn.burn_short)} over "
        f"{short}, both above {float(burn.window.factor):.3g}."
    )
    annotations = {
        "summary": f"{slo.title}: the error budget burns {_times(burn.burn_long)} too fast",
        "description": (
            f"{_share_missed(burn, slo)} of {_events_of(slo)} in the last {long} missed the "
            f"objective of {exact_percent(slo.target)} good. {rates}"
        ),
        "sli": percent(verdict.sli, 2),
        "budget_left": budget_left(verdict.budget_left_ratio),
        "budget_lasts": budget_lasts(slo, verdict.budget_left_ratio, burn.burn_short),
        "burn_rate_long": f"{_rate(burn.burn_long)} over {long}",
        "burn_rate_short": f"{_rate(burn.burn_short)} over {short}",
        "silence": silence_command(slo.name),
    }
    if slo.indicator.budget is not None:
        spent, budget = money(burn.bad_long, currency), budget_text(slo, currency)
        annotations |= {
            "summary": f"{slo.title}: {spent} spent in the last {long}, of {budget}",
            "description": (
                f"{spent} was spent in the last {long}, "
                f"{money(verdict.counts.bad, currency)} {current_period(slo)}; the budget is "
                f"{budget}. {rates}"
            ),
        }
    if slo.scale != 1:
        annotations["scale"] = f"demo: windows are {float(1 / slo.scale):g}× shorter"
    from_ns = now_ns - int(burn.window.long_s * 10**9)
    if dashboard_url is not None:
        annotations["dashboard"] = window_link(dashboard_url, slo, from_ns, now_ns)
    return annotations


def gather(
    slo: Slo, from_ns: int, to_ns: int, dashboard_url: str | None, store: SloStore
) -> dict[str, str]:
    """Return the evidence for a window; if some cannot be read, the fact `evidence` says why."""
    return collect(_facts(slo, from_ns, to_ns, store, dashboard_url))


def collect(facts: Iterator[tuple[str, str | None]]) -> dict[str, str]:
    """Return the facts up to the first that cannot be read."""
    found: dict[str, str] = {}
    try:
        found.update((name, text) for name, text in facts if text)
    except StoreError as error:
        found["evidence"] = f"{'incomplete' if found else 'not available'}: {error}"
    return found


def _facts(
    slo: Slo, from_ns: int, to_ns: int, store: SloStore, dashboard_url: str | None
) -> Iterator[tuple[str, str | None]]:
    if any(m.indicator.metric in (Metric.EVAL_PASS, Metric.COST) for m in slo.indicator.parts):
        # These are answers of evaluations, or money: they have no phases.
        return
    if any(m.indicator.metric is Metric.FEEDBACK for m in slo.indicator.parts):
        yield "worst_versions", worst_versions(_versions(slo, from_ns, to_ns, store))
        yield from what_changed(slo, to_ns, store)
        return
    if any(member.indicator.metric in SESSIONS for member in slo.indicator.parts):
        yield from session_facts(slo, Span(from_ns, to_ns), store, dashboard_url)
        return
    causes = store.evidence(_HERE / "slo_causes.sql", slo, from_ns, to_ns)[0]
    yield "bad_requests", bad_requests(causes)
    ledger = store.evidence(_HERE / "slo_ledger.sql", slo, from_ns, to_ns)
    phases = phases_of(slo)
    yield "top_cause", ledger_cause(ledger, phases) or top_cause(causes, phases)
    exemplars = store.evidence(_HERE / "slo_exemplars.sql", slo, from_ns, to_ns)
    yield "exemplars", "\n".join(_exemplar(row, dashboard_url) for row in exemplars)
    sizes = store.evidence(_HERE / "slo_prompt_sizes.sql", slo, from_ns, to_ns)
    yield "bad_by_prompt_size", bad_by_prompt_size(sizes)
    yield from read_background(slo, from_ns, to_ns, store)


def _versions(slo: Slo, from_ns: int, to_ns: int, store: SloStore) -> Sequence[Mapping[str, Any]]:
    part = next(p for p in slo_parts(slo) if p.indicator.metric is Metric.FEEDBACK)
    sent = feedback_parameters(replace(part, width_ns=_ONE_BUCKET_NS), Span(from_ns, to_ns))
    sent["columns"] = ["prompt_name", "prompt_version"]
    return [
        {
            "prompt_name": row["selected"][0],
            "prompt_version": row["selected"][1],
            "num_total": int(row["total_sum"]),
            "num_bad": int(row["bad_sum"]),
            "first_ns": row["first_ns"],
        }
        for row in store.read(_HERE / "slo_feedback_counts.sql", sent)
    ]


def worst_versions(rows: Sequence[Mapping[str, Any]]) -> str | None:
    """Name the prompt versions whose share of bad feedback is above the others' by least chance.

    None with fewer than two versions to compare. One bad score of one is a share of all, and says
    little: the order is that of the signed root of the binomial deviance.
    """
    if len(rows) < 2:
        return None
    total, bad = (sum(row[name] for row in rows) for name in ("num_total", "num_bad"))
    told = []
    for row in rows:
        others = (bad - row["num_bad"]) / (total - row["num_total"])
        share = row["num_bad"] / row["num_total"]
        if share > others:
            text = (
                f"{row['prompt_name'] or 'no prompt'}@{row['prompt_version'] or '?'}: {share:.0%} "
                f"bad of {row['num_total']}, the others {others:.0%}, first seen "
                f"{rfc3339(row['first_ns'])}"
            )
            told.append((-deviation(row["num_total"], share, others), text))
    return "; ".join(text for _, text in sorted(told)[:3]) or None


def phases_of(slo: Slo) -> tuple[str, ...]:
    """Return the phases that make up the judged durations, in request order."""
    judged = {m for member in slo.indicator.parts for m in member.indicator.judged}
    used = {phase for metric in judged for phase in _PHASES[metric]}
    return tuple(phase for phase in _PHASES[Metric.E2E] if phase in used)


def budget_left(left_ratio: float | None) -> str:
    """Describe the share of the budget left, or by how much it is overspent."""
    if left_ratio is not None and left_ratio < 0:
        return f"none: {1 - left_ratio:.3g} times the budget is spent"
    return percent(left_ratio, 2)


def budget_lasts(slo: Slo, left_ratio: float | None, burn: float | None) -> str:
    """Describe how long the rest of the budget lasts at a burn rate: left × period / rate."""
    if left_ratio is None or burn is None:
        return "no data"
    if left_ratio <= 0:
        return "spent"
    if burn <= 0:
        return "not burning"
    return f"{format_duration(left_ratio * float(slo.scaled_period_s) / burn)} at this rate"


def ledger_cause(rows: Sequence[Mapping[str, Any]], phases: Sequence[str]) -> str | None:
    """Describe the ledger cause that cost bad requests most compared to good ones, or return None.

    Only causes (`ttft.…`, `decode.…`) within the judged durations count. Unobserved time is not a
    cause. Without good requests, what a request spends in any case is none, unless it is all.
    """
    unwanted = {"ttft", "decode"} if phases else set()
    unwanted -= {"decode" if phase == "decode" else "ttft" for phase in phases}
    lost = {
        row["cause"]: row["bad_s"] - (row["good_s"] or 0.0)
        for row in rows
        if row["cause"].partition(".")[0] not in unwanted
        and not row["cause"].endswith("unobserved")
        and row["bad_s"] > (row["good_s"] or 0.0)
    }
    if not lost:
        return None
    by_cause = {row["cause"]: row for row in rows}
    outside = [cause for cause in lost if cause.partition(".")[2] not in OWN_CAUSES]
    is_compared = any(by_cause[cause]["good_s"] is not None for cause in lost)
    cause = max(lost if is_compared else outside or lost, key=lost.__getitem__)
    share, bad = lost[cause] / sum(lost.values()), _seconds(by_cause[cause]["bad_s"])
    named = f"{describe_cause(cause)}: {bad} in bad requests"
    if not is_compared:
        return f"{named}, no good request to compare ({share:.0%} of their time)"
    good = _seconds(by_cause[cause]["good_s"])
    return f"{named}, {good} in good ones ({share:.0%} of the time lost)"


def bad_requests(causes: Mapping[str, Any]) -> str:
    """Describe how many requests were bad, and how many of them failed."""
    ended = ", ".join(
        f"{causes[f'num_{name}']} {word}"
        for name, word in (("error", "failed"), ("aborted", "aborted"), ("shed", "shed"))
        if causes[f"num_{name}"]
    )
    return f"{causes['num_bad']} of {causes['num_events']}" + (f" ({ended})" if ended else "")


def top_cause(causes: Mapping[str, Any], phases: Sequence[str]) -> str | None:
    """Describe the phase in which bad requests lost most time compared to good ones.

    The loss is the difference between mean phase times. None if nothing was measured or bad
    requests lost no time in any phase.
    """
    losses = {
        phase: causes[f"bad_{phase}_s"] - (causes[f"good_{phase}_s"] or 0.0)
        for phase in phases
        if causes[f"bad_{phase}_s"] is not None
    }
    if not losses or max(losses.values()) <= 0:
        return None
    phase = max(losses, key=losses.__getitem__)
    share = losses[phase] / sum(loss for loss in losses.values() if loss > 0)
    good_s = causes[f"good_{phase}_s"]
    against = "no good request to compare" if good_s is None else f"{_seconds(good_s)} in good ones"
    return (
        f"{phase}: {_seconds(causes[f'bad_{phase}_s'])} on average in bad requests, {against} "
        f"({share:.0%} of the time lost)"
    )


def bad_by_prompt_size(sizes: Sequence[Mapping[str, Any]]) -> str | None:
    """Describe bad requests by prompt size; None without any."""
    bad = [row for row in sizes if row["num_bad"]]
    return (
        "; ".join(
            f"up to {row['up_to_tokens']} tokens: {row['num_bad']} of {row['num_events']}"
            for row in bad
        )
        or None
    )


def _exemplar(row: Mapping[str, Any], dashboard_url: str | None) -> str:
    measured = "" if not row["value_s"] else f" {_seconds(row['value_s'])}"
    prompt = "" if row["input_tokens"] is None else f", prompt of {row['input_tokens']} tokens"
    text = f"{row['request_id'] or row['trace_id']} ({row['status']}{measured}{prompt})"
    if dashboard_url is None:
        return text
    # `at` tells the page which time to read: the store is ordered by time.
    query = {"trace_id": row["trace_id"], "at": row["time_ms"]}
    return f"{text} {dashboard_url.rstrip('/')}/request?{urlencode(query)}"


def window_link(dashboard_url: str, slo: Slo, from_ns: int, to_ns: int) -> str:
    """Return a link to the page for the window that fired, filtered like the SLO.

    A composite's link has what all members select.
    """
    filters = page_filters(slo.indicator.shared_select)
    page = "explore" if filters.keys() & set(EXPLORED) else ""
    if slo.indicator.budget is not None:
        page = "cost"
    query = {"from": rfc3339(from_ns), "to": rfc3339(to_ns), **filters}
    return f"{dashboard_url.rstrip('/')}/{page}?{urlencode(query)}"


def _events_of(slo: Slo) -> str:
    metrics = {member.indicator.metric for member in slo.indicator.parts}
    if metrics == {Metric.FEEDBACK}:
        return "scores"
    return "sessions" if metrics <= set(SESSIONS) else "requests"


def _share_missed(burn: WindowBurn, slo: Slo) -> str:
    burn_rate = burn.burn_long
    return percent(None if burn_rate is None else burn_rate * float(1 - slo.target), 1)


def _times(rate: float | None) -> str:
    return "no data" if rate is None else f"{rate:.3g} times"


def _rate(rate: float | None) -> str:
    return "no data" if rate is None else f"{rate:.3g}"


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"
