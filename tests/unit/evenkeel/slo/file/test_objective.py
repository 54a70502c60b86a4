"""Joint, composite, token and evaluation objectives, time slices and calendar periods of a file."""

from fractions import Fraction
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.burn_rates import Counts
from evenkeel.slo.calendar import CalendarUnit
from evenkeel.slo.model import Method, Metric, Slicing, Slo, Treatment
from tests.fixtures.slo_files import slo_file

ROLLING = "[{duration: 30d, isRolling: true}]"
HEAD = "---\napiVersion: openslo/v1\nkind: SLO\nmetadata: {{name: {name}}}\nspec:\n"


def slo(
    indicator: str,
    objective: str = "target: 0.9",
    window: str = ROLLING,
    more: str = "",
    name: str = "chat",
) -> str:
    return (
        HEAD.format(name=name) + f"  indicator: {indicator}\n  objectives: [{{{objective}}}]\n"
        f"  timeWindow: {window}\n{more}"
    )


def read(tmp_path: Path, *texts: str) -> tuple[Slo, ...]:
    return slo_file(tmp_path, "".join(texts)).slos


def test_a_joint_objective_judges_several_durations(tmp_path: Path) -> None:
    (joint,) = read(tmp_path, slo("{all: {ttft: 0.5, tpot: 0.1, stall: 2}}"))
    assert joint.indicator.metric is Metric.JOINT
    assert joint.indicator.judged == {Metric.TTFT: 0.5, Metric.TPOT: 0.1, Metric.STALL: 2.0}
    assert joint.indicator.aborted is Treatment.BAD


def test_a_composite_weighs_the_slos_before_it(tmp_path: Path) -> None:
    *_, both = read(
        tmp_path,
        slo("{metric: availability}", name="up"),
        slo("{metric: ttft}", "target: 0.9, value: 1", name="fast"),
        slo("{composite: [{slo: up}, {slo: fast, weight: 1/2}]}", name="both"),
    )
    assert [(m.indicator.metric, m.weight) for m in both.indicator.parts] == [
        (Metric.AVAILABILITY, 1),
        (Metric.TTFT, Fraction(1, 2)),
    ]


def test_sessions_are_judged_by_time_turns_or_success(tmp_path: Path) -> None:
    done, short, fewer, well = read(
        tmp_path,
        slo("{metric: session_e2e, groupBy: tenant}", "target: 0.9, value: 300", name="done"),
        slo("{metric: session_turns}", "target: 0.9, value: 20", name="short"),
        slo("{metric: session_turns}", "target: 0.9, value: 20, op: lt", name="fewer"),
        slo("{metric: session_success, select: {tenant: acme}, aborted: excluded}", name="well"),
    )
    assert (done.indicator.threshold_s, done.indicator.most_turns) == (300.0, None)
    assert (short.indicator.threshold_s, short.indicator.most_turns) == (None, 20)
    assert fewer.indicator.most_turns == 19
    assert well.indicator.threshold is None
    assert well.indicator.aborted is Treatment.EXCLUDED
    assert not any(each.indicator.is_requests for each in (done, short, fewer, well))


def test_the_narrowest_statuses_decide(tmp_path: Path) -> None:
    text = "{metric: availability, httpStatus: {bad: [4xx, 5xx], measured: 404, excluded: 420-429}}"
    (read_slo,) = read(tmp_path, slo(text))
    assert [str(each) for each in read_slo.indicator.statuses] == [
        "400-403 bad", "404 measured", "405-419 bad", "420-429 excluded", "430-599 bad",
    ]  # fmt: skip


def test_tokens_of_failed_requests_count_like_any_other(tmp_path: Path) -> None:
    (tokens,) = read(tmp_path, slo("{metric: acceptance, select: {prompt_name: chat}}"))
    assert tokens.indicator.error is Treatment.MEASURED
    assert tokens.indicator.select == {"prompt_name": "chat"}


def test_slices_of_time(tmp_path: Path) -> None:
    text = slo(
        "{metric: availability}",
        "target: 0.9, timeSliceTarget: 0.95, timeSliceWindow: 5m",
        more="  budgetingMethod: Timeslices\n",
    )
    (sliced,) = read(tmp_path, text)
    assert sliced.slicing == Slicing(Method.TIMESLICES, Fraction(300), Fraction("0.95"))
    (ratio,) = read(
        tmp_path, slo("{metric: availability}", more="  budgetingMethod: RatioTimeslices\n")
    )
    assert ratio.slicing == Slicing(Method.RATIO_TIMESLICES, Fraction(60))


@pytest.mark.parametrize(
    ("counts", "target", "expected"),
    [
        pytest.param(Counts(0, 0), "0.9", Counts(0, 0), id="no events, no slice"),
        pytest.param(Counts(10, 1), "0.9", Counts(1, 0), id="at the target is good"),
        pytest.param(Counts(10, 2), "0.9", Counts(1, 1), id="below it is bad"),
        pytest.param(Counts(10, 2), None, Counts(1, 0.2), id="its ratio counts"),
    ],
)
def test_what_a_slice_counts_for(counts: Counts, target: str | None, expected: Counts) -> None:
    method = Method.RATIO_TIMESLICES if target is None else Method.TIMESLICES
    slicing = Slicing(method, Fraction(60), None if target is None else Fraction(target))
    assert slicing.slice_of(counts) == expected


def test_a_calendar_month_in_its_zone(tmp_path: Path) -> None:
    window = "[{duration: 1M, isRolling: false, calendar: {timeZone: Europe/Berlin}}]"
    (month,) = read(tmp_path, slo("{metric: availability}", window=window))
    assert month.calendar is not None
    assert (month.calendar.unit, month.calendar.zone.key) == (CalendarUnit.MONTH, "Europe/Berlin")
    assert month.period_s == 30 * 86400


def test_an_openslo_ratio_metric_of_our_type_is_read(tmp_path: Path) -> None:
    source = "{metricSource: {type: evenkeel, spec: {metric: ttft, select: {model: m}}}}"
    sli = (
        "apiVersion: openslo/v1\nkind: SLI\nmetadata: {name: start}\n"
        f"spec: {{ratioMetric: {{counter: true, good: {source}, total: {source}}}}}\n"
    )
    text = slo("X", "target: 0.9, value: 1").replace("indicator: X", "indicatorRef: start")
    service = "---\napiVersion: openslo/v1\nkind: Service\nmetadata: {name: chat}\nspec: {}\n"
    (referred,) = read(tmp_path, sli, service, text)
    assert referred.indicator.metric is Metric.TTFT
    assert referred.indicator.select == {"model": "m"}


MISTAKES = [
    ("two kinds of indicator", slo("{metric: ttft, all: {ttft: 1}}"), "give one of metric, all"),
    ("an empty joint", slo("{all: {}}"), "all is empty; name some of ttft"),
    ("a joint with a value", slo("{all: {ttft: 1}}", "target: 0.9, value: 1"), "value applies to"),
    ("a member that is not there", slo("{composite: [{slo: x}, {slo: y}]}"), "slo is 'x', expect"),
    ("tokens with a value", slo("{metric: cache_hit}", "target: 0.9, value: 1"), "cache_hit takes"),
    (
        "a slice target alone",
        slo("{metric: availability}", "target: 0.9, timeSliceTarget: 0.9"),
        "",
    ),
    (
        "a zone that does not exist",
        slo(
            "{metric: availability}",
            window="[{duration: 1M, isRolling: false, calendar: {timeZone: Mars/Base}}]",
        ),
        "timeZone is 'Mars/Base', expected an IANA time zone",
    ),
    (
        "slices longer than a window",
        slo(
            "{metric: availability}",
            "target: 0.9, timeSliceWindow: 10m",
            more="  budgetingMethod: RatioTimeslices\n",
        ),
        "timeSliceWindow is longer than the shortest alert window",
    ),
    *(
        (text, slo(f"{{metric: availability, {text}}}"), message)
        for text, message in (
            ("select: {tenant: []}", "tenant is a list of 1 to 1000 values"),
            ("select: {tenant: {}}", "tenant is empty; give in, not, matches, notMatches"),
            ("select: {tenant: {like: a}}", "like"),
            ("select: {tenant: {matches: '('}}", "not a valid RE2 pattern"),
            ("select: {tenant: {matches: [a, b]}}", "matches is a list, expected text"),
            (r"select: {tenant: {matches: '\Qa.b'}}", "not a pattern the store accepts: missing )"),
            (
                f"select: {{tenant: [{', '.join(f'{n}-' + 'x' * 990 for n in range(999))}]}}",
                "not a pattern the store accepts",
            ),
            ("select: {tenants: [a]}", "tenants"),
            ("httpStatus: {}", "httpStatus is empty; give bad, measured, excluded"),
            ("httpStatus: {bad: 6xx}", "expected a status such as 429, 5xx or 400-499"),
            ("httpStatus: {bad: 499-400}", "expected a status such as 429"),
            ("httpStatus: {bad: 429, excluded: [429]}", "429 is both bad and excluded"),
            ("groupBy: []", "groupBy is empty"),
            ("groupBy: [user]", "groupBy[0] is 'user', expected model or tenant"),
            ("groupBy: [prompt, prompt_name]", "groupBy has prompt_name, which it has already"),
            ("select: {tenant: a}, groupBy: tenant", "tenant, which it selects already"),
            ("maxGroups: 5", "maxGroups requires groupBy"),
            ("groupBy: tenant, maxGroups: 0", "maxGroups is 0, expected 1 to 2000"),
            ("groupBy: tenant, maxGroups: 1.5", "maxGroups is 1.5, expected 1 to 2000"),
        )
    ),
    (
        "answers with lists",
        slo("{metric: eval_pass, select: {model: [a, b]}}"),
        "eval_pass selects single values",
    ),
    ("sessions without a limit", slo("{metric: session_e2e}"), "needs objectives[0].value"),
    (
        "turns without a limit",
        slo("{metric: session_turns}"),
        "session_turns needs objectives[0].value, the most turns that are good",
    ),
    (
        "half a turn",
        slo("{metric: session_turns}", "target: 0.9, value: 2.5"),
        "expected a whole number",
    ),
    (
        "success with a limit",
        slo("{metric: session_success}", "target: 0.9, value: 2"),
        "session_success takes no value",
    ),
    (
        "sessions by HTTP status",
        slo("{metric: session_success, httpStatus: {bad: 5xx}}"),
        "session_success has no httpStatus",
    ),
    (
        "sessions by prompt",
        slo("{metric: session_success, groupBy: prompt}"),
        "session_success can be grouped by model, tenant, route",
    ),
    (
        "a composite of sessions by prompt",
        slo(
            "{composite: [{indicator: {metric: session_success}},"
            " {indicator: {metric: availability}}], groupBy: prompt}"
        ),
        "session_success can be grouped by",
    ),
    (
        "a composite of evaluations by tenant",
        slo(
            "{composite: [{indicator: {metric: eval_pass}},"
            " {indicator: {metric: availability}}], groupBy: tenant}"
        ),
        "eval_pass can be grouped by model, prompt_name, prompt_version, not by other columns",
    ),
    (
        "a composite by what a member selects",
        slo(
            "{composite: [{indicator: {metric: ttft, select: {tenant: acme}}, value: 1},"
            " {indicator: {metric: availability}}], groupBy: [tenant]}"
        ),
        "groupBy has tenant, which it selects already",
    ),
    (
        "a composite by what a named member selects",
        slo("{metric: availability, select: {tenant: acme}}", name="acme-up")
        + slo(
            "{composite: [{slo: acme-up}, {indicator: {metric: availability}}], groupBy: tenant}"
        ),
        "groupBy has tenant, which it selects already",
    ),
    (
        "a member with groups",
        slo(
            "{composite: [{indicator: {metric: availability, groupBy: tenant}},"
            " {indicator: {metric: availability}}]}"
        ),
        "groupBy goes on the composite",
    ),
]


@pytest.mark.parametrize(
    ("text", "message"), [case[1:] for case in MISTAKES], ids=[case[0] for case in MISTAKES]
)
def test_mistakes_name_the_slo_and_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=r"SLO 'chat': .*slos\.yaml:\d+\)") as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
