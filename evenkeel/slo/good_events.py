"""Defines what counts as a good event; the only place that does.

Rows in memory are judged as vectors (judgement.py), stored rows by the view `slo_judged`, and new
rows by the rollup view. The conditions below combine operands that are either arrays with one
element per request, or SQL. A missing value is NaN or NULL: it is unknown, and exceeds no limit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from math import inf
from operator import or_
from string import Template
from typing import Any

import numpy as np

from evenkeel.slo.model import SELECTOR_COLUMNS, Indicator, Metric, Treatment

DURATION_COLUMNS = {
    Metric.TTFT: "ttft_s",
    Metric.TPOT: "tpot_s",
    Metric.ITL: "itl_p99_s",
    Metric.STALL: "stall_s",
    Metric.E2E: "e2e_s",
}
# Tokens that are valid events, and how many of them are good (never more than all).
TOKEN_COLUMNS = {
    Metric.ACCEPTANCE: ("drafted_tokens", "accepted_tokens"),
    Metric.CACHE_HIT: ("input_tokens", "cached_tokens"),
}
# Each treatment as a number; 0 means none.
TREATMENT_NUMBERS = {Treatment.MEASURED: 1, Treatment.BAD: 2, Treatment.EXCLUDED: 3}

# What the store computes per row of `requests`. `ending` is an index into `treatments_of_endings`:
# 4xx answers are the caller's mistake, except 408 (timeout) and 429 (too much load).
# Other writers' weights and durations may be out of range; see the views of the table requests.
ROW_SQL = {
    "ending": (
        "if(status = 'error' AND ifNull(http_status BETWEEN 400 AND 499"
        " AND http_status NOT IN (408, 429), 0), 4, indexOf(['error', 'aborted', 'shed'], status))"
    ),
    "weight": "if(sample_weight BETWEEN 1 AND 1000000, sample_weight, 1)",
    "end_ns": (
        "toUnixTimestamp64Nano(time)"
        " + toInt64(ifNull(if(e2e_s BETWEEN 0 AND 1000000, e2e_s, 0), 0) * 1e9)"
    ),
    # The column that a lambda's argument `name` names, as text: '' if the request has none.
    "column_by_name": "multiIf({}, '')".format(
        ", ".join(f"name = '{c}', ifNull(toString({c}), '')" for c in SELECTOR_COLUMNS)
    ),
}

# The same per row of `sessions`. A session that is over ended as its last request did: agents try
# again, so that what failed on the way is no failure of the task.
SESSION_SQL = {
    "session_ending": "indexOf(['error', 'aborted', 'shed'], last_status)",
    "session_value": (
        f"multiIf(metric = '{Metric.SESSION_E2E}', e2e_s,"
        f" metric = '{Metric.SESSION_TURNS}', toFloat64(num_requests), NULL)"
    ),
}

# An array, or Sql.
Operand = Any


@dataclass(frozen=True, slots=True)
class Sql:
    """A SQL expression, combined with the same operators as arrays."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __or__(self, other: object) -> Sql:
        return Sql(f"({self} OR {other})")

    def __and__(self, other: object) -> Sql:
        return Sql(f"({self} AND {other})")

    def __gt__(self, other: object) -> Sql:
        return Sql(f"ifNull({self} > {other}, 0)")

    def __lt__(self, other: object) -> Sql:
        return Sql(f"{self} < {other}")


def is_known(value: Operand) -> Operand:
    """Return whether a request has a value."""
    return Sql(f"isNotNull({value})") if isinstance(value, Sql) else ~np.isnan(value)


def choose(condition: Operand, then: Operand, otherwise: Operand) -> Operand:
    """Return one operand if a condition holds, otherwise another."""
    if isinstance(condition, Sql):
        return Sql(f"if({condition}, {then}, {otherwise})")
    return np.where(condition, then, otherwise)


def treatments_of_endings(indicator: Indicator) -> tuple[Treatment, ...]:
    """Return how requests count that succeeded, failed, were aborted, shed, or were invalid."""
    return (
        Treatment.MEASURED, indicator.error, indicator.aborted, indicator.shed, Treatment.EXCLUDED,
    )  # fmt: skip


def is_treated(treatment: Treatment, by_ending: Operand, by_status: Operand) -> Operand:
    """Return whether requests get a treatment: an HTTP status named by the SLO takes precedence.

    Args:
        treatment: The treatment in question.
        by_ending: Whether their ending gets this treatment.
        by_status: Number of their HTTP status's treatment; 0: the SLO names none.
    """
    number = TREATMENT_NUMBERS[treatment]
    is_so = Sql(f"{by_status} = {number}") if isinstance(by_status, Sql) else by_status == number
    return choose(by_status > 0, is_so, by_ending)


def has_waited(
    durations: Mapping[Metric, Operand], limit: Operand, is_unfinished: Operand
) -> Operand:
    """Return whether requests without a first token outlasted the limit for it.

    Args:
        durations: By metric.
        limit: The TTFT limit.
        is_unfinished: Whether they did not end successfully.
    """
    return is_unfinished & (durations[Metric.E2E] > limit)


def judge_durations(
    durations: Mapping[Metric, Operand], limits: Mapping[Metric, Operand], is_unfinished: Operand
) -> tuple[Operand, Operand]:
    """Return whether requests missed a limit, and whether any limit applies to them.

    Args:
        durations: By metric.
        limits: By metric, at least one; up to and including the limit is good, inf means no limit.
        is_unfinished: Whether they did not end successfully.
    """
    missed, judged = [], []
    for metric, limit in limits.items():
        is_over, has_value = durations[metric] > limit, is_known(durations[metric])
        if metric is Metric.TTFT:
            waited = has_waited(durations, limit, is_unfinished)
            is_over, has_value = choose(has_value, is_over, waited), has_value | waited
        missed.append(is_over)
        judged.append((limit < inf) & has_value)
    return reduce(or_, missed), reduce(or_, judged)


def fill(sql: str, **more: object) -> str:
    """Return a query with the placeholders for ROW_SQL, SESSION_SQL and others filled in."""
    return Template(sql).substitute(ROW_SQL, **SESSION_SQL, **more)
