"""The parameters with which the `slo_*` queries judge the requests of one or several SLOs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import inf

from evenkeel.slo_model import (
    DURATIONS,
    EVAL_SELECTOR_COLUMNS,
    SELECTOR_COLUMNS,
    TOKEN_RATIOS,
    Indicator,
    Slo,
    Treatment,
)

# A request that takes longer is not seen by a query that reads its end; see slo_judged.
MAX_REQUEST_NS = 3600 * 10**9


# 0 is a status that no range has.
STATUS_KINDS = {Treatment.MEASURED: 1, Treatment.BAD: 2, Treatment.EXCLUDED: 3}


@dataclass(frozen=True, slots=True)
class Part:
    """An indicator to count by, for a target, in buckets of one width."""

    indicator: Indicator
    target: Fraction
    width_ns: int = 1


@dataclass(frozen=True, slots=True)
class Span:
    """Requests that ended in [from_ns, to_ns), unix nanoseconds.

    `max_request_ns` is how long before `from_ns` a request may have started.
    """

    from_ns: int
    to_ns: int
    max_request_ns: int = MAX_REQUEST_NS


def slo_parts(slo: Slo, width_ns: int = 1) -> list[Part]:
    """Return what is counted for an SLO: one part, or several of a composite."""
    return [Part(member.indicator, slo.target, width_ns) for member in slo.indicator.parts]


def event_parameters(parts: Sequence[Part], span: Span) -> dict[str, object]:
    """Return the parameters of the view `slo_judged`: one element of each array a part."""
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
        **{
            ending: [getattr(indicator, ending).value for indicator in indicators]
            for ending in ("error", "aborted", "shed")
        },
        # '' selects everything: a selector is never empty text.
        **{
            column: [indicator.select.get(column, "") for indicator in indicators]
            for column in SELECTOR_COLUMNS
        },
        "filters": [filter_arrays(indicator) for indicator in indicators],
        "statuses": [status_ranges(indicator) for indicator in indicators],
        "from_ns": span.from_ns,
        "to_ns": span.to_ns,
        "max_request_ns": span.max_request_ns,
    }


def filter_arrays(indicator: Indicator) -> list[list[str]]:
    """Return an indicator's filters as [column, RE2, 1 where what matches is left out]."""
    return [[each.column, each.pattern, str(int(each.is_excluding))] for each in indicator.filters]


def status_ranges(indicator: Indicator) -> list[list[int]]:
    """Return how HTTP statuses count, each as [first, last, kind]; STATUS_KINDS says which."""
    return [
        [each.first, each.last, STATUS_KINDS[Treatment(each.treatment)]]
        for each in indicator.statuses
    ]


def count_parameters(parts: Sequence[Part], span: Span) -> dict[str, object]:
    """Return the parameters of the query `slo_counts`."""
    return {**event_parameters(parts, span), "width_ns": [part.width_ns for part in parts]}


def eval_parameters(part: Part, span: Span) -> dict[str, object]:
    """Return the parameters of the query `slo_eval_counts`."""
    select = part.indicator.select
    return {
        **{column: select.get(column, "") for column in EVAL_SELECTOR_COLUMNS},
        "from_ns": span.from_ns,
        "to_ns": span.to_ns,
        "width_ns": part.width_ns,
    }
