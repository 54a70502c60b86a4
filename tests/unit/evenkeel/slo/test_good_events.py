"""What counts as a good event, for rows at hand; other tests hold the store to the same."""

from math import inf, nan
from typing import Any

import numpy as np
import pytest

from evenkeel.slo.good_events import (
    DURATION_COLUMNS,
    TOKEN_COLUMNS,
    TREATMENT_NUMBERS,
    Sql,
    is_treated,
    judge_durations,
)
from evenkeel.slo.model import Indicator, Metric, Treatment
from evenkeel.slo.selection import StatusRange
from evenkeel_collector.slo.judgement import judge

OK, ERROR, ABORTED, SHED, MISTAKE = range(5)
NOTHING, GOOD, BAD = (0, 0), (1, 0), (1, 1)
TTFT = Indicator(Metric.TTFT, 0.5)
JOINT = Indicator(Metric.JOINT, None, limits={Metric.TTFT: 0.5, Metric.TPOT: 0.1})
AVAILABILITY = Indicator(Metric.AVAILABILITY, None)
ACCEPTANCE = Indicator(Metric.ACCEPTANCE, None)
LENIENT = Indicator(Metric.TTFT, 0.5, error=Treatment.MEASURED, aborted=Treatment.EXCLUDED)
ONLY_500 = Indicator(
    Metric.AVAILABILITY,
    None,
    statuses=(StatusRange(400, 499, "bad"), StatusRange(500, 500, "measured")),
)


def judged(indicator: Indicator, ending: int = OK, **numbers: float) -> tuple[float, float]:
    """Return what one request weighs as a valid and as a bad event."""
    columns: dict[str, Any] = {metric: nan for metric in DURATION_COLUMNS}
    columns |= {column: nan for pair in TOKEN_COLUMNS.values() for column in pair}
    columns |= {"weight": 1.0, "http_status": 0, "ending": ending, **numbers}
    total, bad = judge(indicator, {name: np.array([value]) for name, value in columns.items()})
    return float(total[0]), float(bad[0])


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        pytest.param(judged(TTFT, ttft=0.5), GOOD, id="the limit itself is good"),
        pytest.param(judged(TTFT, ttft=0.51), BAD, id="above the limit is bad"),
        pytest.param(judged(TTFT), NOTHING, id="what is not known is not judged"),
        pytest.param(judged(TTFT, ERROR, ttft=0.1), BAD, id="failed: bad, however fast"),
        pytest.param(judged(TTFT, MISTAKE, ttft=9), NOTHING, id="the caller's mistake: no event"),
        pytest.param(judged(TTFT, e2e=9), NOTHING, id="ended well without a token: not judged"),
        pytest.param(judged(LENIENT, ERROR, e2e=0.6), BAD, id="failed, no token, waited too long"),
        pytest.param(judged(LENIENT, ERROR, e2e=0.4), NOTHING, id="failed before the limit"),
        pytest.param(judged(LENIENT, ERROR, ttft=0.4, e2e=9), GOOD, id="failed after a good token"),
        pytest.param(judged(LENIENT, ABORTED, ttft=9), NOTHING, id="excluded"),
        pytest.param(judged(LENIENT, SHED), BAD, id="shed: bad without any duration"),
        pytest.param(judged(JOINT, ttft=0.1), GOOD, id="joint: one of two known, met"),
        pytest.param(judged(JOINT, ttft=0.1, tpot=0.2), BAD, id="joint: one of two missed"),
        pytest.param(judged(JOINT), NOTHING, id="joint: none known"),
        pytest.param(judged(AVAILABILITY), GOOD, id="available: nothing need be known"),
        pytest.param(judged(AVAILABILITY, weight=2.5), (2.5, 0), id="by weight"),
        pytest.param(judged(ONLY_500, ERROR, http_status=500), GOOD, id="a status is stronger"),
        pytest.param(judged(ONLY_500, MISTAKE, http_status=404), BAD, id="a status makes an event"),
        pytest.param(judged(ONLY_500, ERROR, http_status=503), BAD, id="another status does not"),
        pytest.param(
            judged(ACCEPTANCE, drafted_tokens=8, accepted_tokens=6), (8, 2), id="tokens count"
        ),
        pytest.param(
            judged(ACCEPTANCE, drafted_tokens=8, accepted_tokens=9), (8, 0), id="not above all"
        ),
        pytest.param(judged(ACCEPTANCE, drafted_tokens=8), NOTHING, id="accepted tokens unknown"),
        pytest.param(
            judged(ACCEPTANCE, ERROR, drafted_tokens=8, accepted_tokens=6), (8, 8), id="all bad"
        ),
    ],
)  # fmt: skip
def test_an_event_is_judged(found: tuple[float, float], expected: tuple[float, float]) -> None:
    assert found == expected


def test_the_same_conditions_are_written_as_sql() -> None:
    durations = {metric: Sql(column) for metric, column in DURATION_COLUMNS.items()}
    missed, judged_ = judge_durations(durations, {Metric.TPOT: Sql("most")}, Sql("ending > 0"))
    assert str(missed) == "ifNull(tpot_s > most, 0)"
    assert str(judged_) == f"(most < {inf} AND isNotNull(tpot_s))"
    treated = is_treated(Treatment.BAD, Sql("by_ending"), Sql("status"))
    number = TREATMENT_NUMBERS[Treatment.BAD]
    assert str(treated) == f"if(ifNull(status > 0, 0), status = {number}, by_ending)"
