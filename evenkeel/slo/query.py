"""Parameters for the `slo_*` queries, which judge the requests of one or more SLOs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from evenkeel.slo.good_events import TREATMENT_NUMBERS
from evenkeel.slo.model import (
    DURATIONS,
    EVAL_SELECTOR_COLUMNS,
    SELECTOR_COLUMNS,
    SESSION_SELECTOR_COLUMNS,
    TOKEN_RATIOS,
    Indicator,
    Slo,
    Treatment,
)

# Longer requests are missed by a query that reads their end; see slo_judged.
MAX_REQUEST_NS = 3600 * 10**9


@dataclass(frozen=True, slots=True)
class CountedIndicator:
    """An indicator to count, for a target, in buckets of one width.

    `silence_ns` is how long a session must be silent to be over, if it counts sessions.
    `budget_per_s` is what a second may cost, if it is a budget in money: the second's events.
    """

    indicator: Indicator
    target: Fraction
    width_ns: int = 1
    silence_ns: int = 0
    budget_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Span:
    """Requests that ended in [from_ns, to_ns), unix nanoseconds.

    `max_request_ns` is how long before `from_ns` a request may have started.
    """

    from_ns: int
    to_ns: int
    max_request_ns: int = MAX_REQUEST_NS


def slo_parts(slo: Slo, width_ns: int = 1) -> list[CountedIndicator]:
    """Return the parts to count for an SLO: one, or several for a composite."""
    return [
        CountedIndicator(
            member.indicator,
            slo.target,
            width_ns,
            int(member.indicator.silence_s * slo.scale * 10**9),
            (member.indicator.budget or 0.0) / float(slo.scaled_period_s),
        )
        for member in slo.indicator.parts
    ]


def event_parameters(parts: Sequence[CountedIndicator], span: Span) -> dict[str, object]:
    """Return the parameters of the view `slo_judged`: one array element per part."""
    indicators = [part.indicator for part in parts]
    return {
        "slo": list(range(len(parts))),
        "unit": [
            indicator.metric.value if indicator.metric in TOKEN_RATIOS else "request"
            for indicator in indicators
        ],
        "target": [float(part.target) for part in parts],
        **{
            f"{metric}_limit": [indicator.judged.get(metric, inf) for indicator in indicators]
            for metric in DURATIONS
        },
        **_selected(indicators, SELECTOR_COLUMNS),
        **_flat_statuses(indicators),
        "from_ns": span.from_ns,
        "to_ns": span.to_ns,
        "max_request_ns": span.max_request_ns,
    }


def _selected(indicators: Sequence[Indicator], columns: Iterable[str]) -> dict[str, object]:
    return {
        **{
            ending: [getattr(indicator, ending).value for indicator in indicators]
            for ending in ("error", "aborted", "shed")
        },
        # '' selects everything: a selector is never an empty string.
        **{
            column: [indicator.select.get(column, "") for indicator in indicators]
            for column in columns
        },
        **_flat_filters(indicators),
    }


def _flat_filters(indicators: Sequence[Indicator]) -> dict[str, object]:
    """Return all filters in four flat arrays: empty nested arrays have no type over HTTP."""
    found = [(place, each) for place, one in enumerate(indicators) for each in one.filters]
    return {
        "filter_slo": [place for place, _ in found],
        "filter_column": [each.column for _, each in found],
        "filter_pattern": [each.pattern for _, each in found],
        "filter_excludes": [int(each.is_excluding) for _, each in found],
    }


def _flat_statuses(indicators: Sequence[Indicator]) -> dict[str, object]:
    found = [(place, each) for place, one in enumerate(indicators) for each in one.statuses]
    return {
        "status_slo": [place for place, _ in found],
        "status_first": [each.first for _, each in found],
        "status_last": [each.last for _, each in found],
        "status_kind": [TREATMENT_NUMBERS[Treatment(each.treatment)] for _, each in found],
    }


def filter_parameters(indicator: Indicator) -> dict[str, object]:
    """Return one indicator's filters, as parameters of a query for that indicator only."""
    return {key: value for key, value in _flat_filters([indicator]).items() if key != "filter_slo"}


def selection_parameters(indicator: Indicator) -> dict[str, object]:
    """Return one indicator's selection, as parameters of a query for that indicator only."""
    # '' selects everything: a selector is never an empty string.
    select = {column: indicator.select.get(column, "") for column in SELECTOR_COLUMNS}
    return {**select, **filter_parameters(indicator)}


def status_ranges(indicator: Indicator) -> list[list[int]]:
    """Return how HTTP statuses count, each as [first, last, TREATMENT_NUMBERS]."""
    return [
        [each.first, each.last, TREATMENT_NUMBERS[Treatment(each.treatment)]]
        for each in indicator.statuses
    ]


def count_parameters(parts: Sequence[CountedIndicator], span: Span) -> dict[str, object]:
    """Return the parameters of the query `slo_counts`."""
    return {**event_parameters(parts, span), "width_ns": [part.width_ns for part in parts]}


def feedback_parameters(
    part: CountedIndicator, span: Span, columns: Sequence[str] = ()
) -> dict[str, object]:
    """Return the parameters of the query `slo_feedback_counts`.

    Any value of these columns is selected; each row says which.
    """
    select = part.indicator.select
    return {
        **{name: "" if name in columns else select.get(name, "") for name in SELECTOR_COLUMNS},
        **filter_parameters(part.indicator),
        "columns": list(columns),
        "from_ns": span.from_ns,
        "to_ns": span.to_ns,
        "width_ns": part.width_ns,
    }


def cost_parameters(part: CountedIndicator, span: Span) -> dict[str, object]:
    """Return the parameters of the query `slo_cost_counts`."""
    return {
        **selection_parameters(part.indicator),
        "from_ns": span.from_ns,
        "to_ns": span.to_ns,
        "width_ns": part.width_ns,
        "budget_per_s": part.budget_per_s,
    }


def eval_parameters(part: CountedIndicator, span: Span) -> dict[str, object]:
    """Return the parameters of the query `slo_eval_counts`."""
    select = part.indicator.select
    return {
        **{column: select.get(column, "") for column in EVAL_SELECTOR_COLUMNS},
        "from_ns": span.from_ns,
        "to_ns": span.to_ns,
        "width_ns": part.width_ns,
    }


def session_parameters(parts: Sequence[CountedIndicator], span: Span) -> dict[str, object]:
    """Return the parameters of the view `slo_judged_sessions`: one array element per part."""
    indicators = [part.indicator for part in parts]
    limits = [indicator.threshold for indicator in indicators]
    return {
        "slo": list(range(len(parts))),
        "metric": [indicator.metric.value for indicator in indicators],
        "limit": [inf if limit is None else float(limit) for limit in limits],
        "silence_ns": [part.silence_ns for part in parts],
        **_selected(indicators, SESSION_SELECTOR_COLUMNS),
        "from_ns": span.from_ns,
        "to_ns": span.to_ns,
    }


def session_count_parameters(parts: Sequence[CountedIndicator], span: Span) -> dict[str, object]:
    """Return the parameters of the query `slo_session_counts`."""
    return {**session_parameters(parts, span), "width_ns": [part.width_ns for part in parts]}
