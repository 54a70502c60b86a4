"""Which requests count, for which objective, and that both judges agree."""

import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from evenkeel.errors import StoreError
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.matchers import Matcher, Operator
from evenkeel.slo.model import COUNTED_APART, DURATIONS, SESSIONS, Indicator, Metric, Treatment
from evenkeel.slo.query import CountedIndicator, Span, count_parameters
from evenkeel.slo.selection import Filter, SelectOperator
from evenkeel.times import to_datetime
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.slo.arrivals import Arrivals
from evenkeel_collector.slo.corrections import Correction, Corrections, whole_minutes
from evenkeel_collector.slo.evaluator import Evaluator
from evenkeel_collector.slo.store import SloStore
from tests.fixtures.slo_requests import (
    NOW,
    SLOW,
    S,
    counting_evaluator,
    insert,
    random_filters,
    random_statuses,
    slo_text,
)
from tests.queries import query

# What is no metric of requests, and cost, which needs a budget (test_costs.py).
OTHERS = (*SESSIONS, *COUNTED_APART, Metric.COMPOSITE)

EVENTS: list[tuple[str, str, list[dict[str, Any]], tuple[float, float]]] = [
    ("a fast one and a slow one", "ttft", [{}, SLOW], (2, 1)),
    ("at the limit is good", "ttft", [{"ttft_s": 0.5}], (1, 0)),
    ("failed is bad however fast", "ttft", [{"status": "error", "ttft_s": 0.1}], (1, 1)),
    (
        "a refused mistake of the caller is no event",
        "availability",
        [{"status": "error", "http_status": code} for code in (400, 401, 404, 422)],
        (0, 0),
    ),
    (
        "a timeout and a server's error are bad",
        "availability",
        [{"status": "error", "http_status": code} for code in (408, 429, 500, 503)],
        (4, 4),
    ),
    (
        "a mistake is no event of latency either",
        "ttft",
        [{"status": "error", "http_status": 400}],
        (0, 0),
    ),
    ("shed is bad", "availability", [{"status": "shed", "e2e_s": None}], (1, 1)),
    ("aborted is judged where the file says so", "ttft", [{"status": "aborted"}], (1, 0)),
    (
        "aborted after the limit without a token is bad",
        "ttft",
        [{"status": "aborted", "ttft_s": None, "e2e_s": 0.6}],
        (1, 1),
    ),
    (
        "aborted before the limit without a token says nothing",
        "ttft",
        [{"status": "aborted", "ttft_s": None, "e2e_s": 0.4}],
        (0, 0),
    ),
    ("one token has no TPOT and is no event of it", "tpot", [{"tpot_s": None}], (0, 0)),
    ("another model is no event", "ttft", [{"model": "other"}], (0, 0)),
    ("a sampled request counts for what it stands for", "ttft", [{"sample_weight": 10.0}], (10, 0)),
    ("availability takes any ok", "availability", [SLOW, {"ttft_s": None}], (2, 0)),
]


@pytest.mark.parametrize(
    ("metric", "rows", "expected"), [case[1:] for case in EVENTS], ids=[case[0] for case in EVENTS]
)
def test_which_requests_count(
    client: Any,
    tmp_path: Path,
    metric: str,
    rows: list[dict[str, Any]],
    expected: tuple[float, float],
) -> None:
    insert(client, *({"end_ns": NOW - S} | row for row in rows))
    verdict = counting_evaluator(client, tmp_path, slo_text(metric=metric)).cycle(NOW)["chat"]
    assert (verdict.counts.total, verdict.counts.bad) == expected


@pytest.mark.parametrize("metric", ["itl", "stall", "e2e"])
def test_every_metric_has_a_column(client: Any, tmp_path: Path, metric: str) -> None:
    row = {"end_ns": NOW - S, "itl_p99_s": 0.6, "stall_s": 0.7, "e2e_s": 0.8}
    insert(client, row, row | {"itl_p99_s": 0.1, "stall_s": 0.1, "e2e_s": 0.2})
    verdict = counting_evaluator(client, tmp_path, slo_text(metric=metric)).cycle(NOW)["chat"]
    assert (verdict.counts.total, verdict.counts.bad) == (2, 1)


def test_no_event_is_no_data_and_never_100_percent(client: Any, tmp_path: Path) -> None:
    text = slo_text(select="model: support, tenant: nobody")
    insert(client, {"end_ns": NOW - S, "tenant": "somebody"})
    counting_evaluator(client, tmp_path, text).cycle(NOW)
    (row,) = client.query(
        "SELECT state, severity, sli, budget_left_ratio, total, windows.burn_long, selector "
        "FROM slo_status"
    ).result_rows
    assert row == (
        "no_data",
        None,
        None,
        None,
        0.0,
        [None] * 4,
        {"model": "support", "tenant": "nobody"},
    )


def test_the_status_names_a_calendar_period(client: Any, tmp_path: Path) -> None:
    month = "{duration: 1M, isRolling: false, calendar: {timeZone: Europe/Berlin}}"
    rolling, path = slo_text("rolling"), tmp_path / "slos.yaml"
    text = slo_text("monthly").replace("{duration: 30d, isRolling: true}", month)
    path.write_text(f"{rolling}---\n{text}")
    book = AlertBook(tmp_path / "alerts.db")
    Evaluator(read_slo_file(path), SloStore(client), book).cycle(NOW)
    rows = client.query("SELECT slo, calendar_period FROM slo_status ORDER BY slo").result_rows
    assert rows == [("monthly", "a calendar month"), ("rolling", "")]


def test_incremental_counts_are_those_of_a_fresh_read(client: Any, tmp_path: Path) -> None:
    """Requests arrive late and out of order, some long; every cycle agrees with a cold start."""
    choose = random.Random(11)
    warm = counting_evaluator(client, tmp_path, slo_text())
    for cycle in range(25):
        now_ns = NOW + cycle * 7 * S
        insert(
            client,
            *(
                {
                    "end_ns": now_ns - int(choose.expovariate(0.2) * S),
                    "ttft_s": choose.choice([0.1, 0.9]),
                    "e2e_s": choose.choice([0.9, 30.0, 500.0]),
                    "sample_weight": choose.choice([1.0, 2.0]),
                }
                for _ in range(choose.randrange(1, 9))
            ),
        )
        (tmp_path / "cold").mkdir(exist_ok=True)
        cold = counting_evaluator(client, tmp_path / "cold", slo_text())
        assert warm.cycle(now_ns) == cold.cycle(now_ns)


def test_requests_that_come_hours_late_are_counted(client: Any, tmp_path: Path) -> None:
    """A store that was down, an exporter that was cut off: minutes later the budget knows."""
    insert(client, {"end_ns": NOW - 7200 * S}, {"end_ns": NOW - S})
    warm = counting_evaluator(client, tmp_path, slo_text())
    assert warm.cycle(NOW)["chat"].counts.total == 2
    insert(client, {"end_ns": NOW - 7200 * S} | SLOW, {"end_ns": NOW - 3600 * S} | SLOW)
    assert warm.cycle(NOW + 5 * S)["chat"].counts.bad == 0
    assert warm.cycle(NOW + 300 * S)["chat"].counts.bad == 2
    insert(client, {"end_ns": NOW - 1200 * S} | SLOW)
    assert warm.cycle(NOW + 600 * S)["chat"].counts.bad == 3


def test_late_requests_are_found_after_an_erasure_and_after_a_look_that_failed(
    client: Any,
) -> None:
    old = {"end_ns": NOW - 7200 * S}
    arrivals, from_ns = Arrivals(SloStore(client)), NOW - 10 * 86_400 * S
    insert(client, old, old, old, {"end_ns": NOW - S})

    def look(age_s: int) -> int | None:
        found = arrivals.since(from_ns, NOW + age_s * S)
        arrivals.commit()
        return found

    assert (look(0), look(300)) == (None, None)
    client.command("TRUNCATE TABLE requests")
    insert(client, {"end_ns": NOW - S})
    assert look(600) is None
    insert(client, old)
    found = look(900)
    assert found is not None
    assert found <= NOW - 7200 * S < found + 600 * S
    assert look(1200) is None
    # Found, but what came is not counted; then the store is away for a look.
    insert(client, old | SLOW)
    assert arrivals.since(from_ns, NOW + 1500 * S) == found
    client.command("RENAME TABLE requests TO away")
    with pytest.raises(StoreError):
        arrivals.since(from_ns, NOW + 1800 * S)
    client.command("RENAME TABLE away TO requests")
    arrivals.commit()
    assert look(2100) == found


SELECTIONS: list[tuple[str, list[str | None], float]] = [
    ("tenant: [acme, globex]", ["acme", "globex", "other", None], 2),
    ("tenant: {not: acme}", ["acme", "globex", None], 2),
    ("tenant: {not: [acme, globex]}", ["acme", "globex", "other", None], 2),
    ('tenant: {matches: "acme-.*"}', ["acme-1", "acme", "x-acme-1", "acme-\n2"], 2),
    ('tenant: {notMatches: "acme-.*"}', ["acme-1", "acme", None], 2),
    ('tenant: {matches: "acme.*", not: acme-test}', ["acme", "acme-test", "acme-1"], 2),
    ('tenant: ["a.b", "c|d"]', ["a.b", "axb", "c|d", "c", "d"], 2),
    ('tenant: ["it\'s", "müller", "a\\\\b"]', ["it's", "müller", "a\\b", "its"], 3),
]


@pytest.mark.parametrize(
    ("select", "tenants", "expected"), SELECTIONS, ids=[case[0] for case in SELECTIONS]
)
def test_selectors_take_lists_negation_and_patterns(
    client: Any, tmp_path: Path, select: str, tenants: list[str | None], expected: float
) -> None:
    insert(client, *({"end_ns": NOW - S, "tenant": tenant} for tenant in tenants))
    text = slo_text(select=f"model: support, {select}")
    assert counting_evaluator(client, tmp_path, text).cycle(NOW)["chat"].counts.total == expected


def test_more_patterns_than_one_read_has_room_for(client: Any, tmp_path: Path) -> None:
    insert(client, *({"end_ns": NOW - S, "tenant": f"t{i}"} for i in range(100)))
    text = "---\n".join(
        slo_text(f"slo-{i}", select=f'tenant: {{matches: "t{i}|t0"}}') for i in range(1, 100)
    )
    verdicts = counting_evaluator(client, tmp_path, text).cycle(NOW)
    assert {verdict.counts.total for verdict in verdicts.values()} == {2}


PATTERNS = [
    "a|b", "(?i)acme", "(?i)müller", "..", "[^a]*", "a.*|", "^acme$|^ab", r"acme-\d", r"\pL+",
    "(?s:.)*", r"\Qa.b\E", "(?m)^acme$", "(?U)a.*", r"\bacme\b.*", "", "'", r"\\\\n",
]  # fmt: skip
VALUES = ["a", "ab", "acme", "ACME", "acme-1", "a.b", "axb", "Müller", "acme\nx", "'", "\\n", "x\0"]


def test_the_store_matches_patterns_as_matchers_do(client: Any, tmp_path: Path) -> None:
    insert(client, *({"end_ns": NOW - S, "tenant": tenant} for tenant in [*VALUES, None]))
    matchers = [Matcher("tenant", Operator.MATCHES, pattern) for pattern in PATTERNS]
    parts = [
        CountedIndicator(
            Indicator(Metric.AVAILABILITY, None, filters=(each,)), Fraction(9, 10), 3600 * S
        )
        for pattern in PATTERNS
        for each in (Filter("tenant", SelectOperator.MATCHES, (pattern,)),)
    ]
    found = [b.total.sum() for b in SloStore(client).counts(parts, Span(NOW - 2 * S, NOW + 1))]
    assert found == [
        sum(matcher.matches({"tenant": value}) for value in [*VALUES, ""]) for matcher in matchers
    ]


HTTP: list[tuple[str, list[dict[str, Any]], tuple[float, float]]] = [
    ("{bad: 5xx}", [{"status": "ok", "http_status": 503}, {}], (2, 1)),
    ("{bad: [404]}", [{"status": "error", "http_status": 404}], (1, 1)),
    (
        "{excluded: [429, 503]}",
        [{"status": "error", "http_status": code} for code in (429, 503, 500)],
        (1, 1),
    ),
    (
        "{bad: 4xx, measured: 404, excluded: 420-429}",
        [{"status": "error", "http_status": code} for code in (400, 404, 429, 500)],
        (3, 2),
    ),
]


@pytest.mark.parametrize(("statuses", "rows", "expected"), HTTP, ids=[case[0] for case in HTTP])
def test_requests_count_by_their_http_status(
    client: Any,
    tmp_path: Path,
    statuses: str,
    rows: list[dict[str, Any]],
    expected: tuple[float, float],
) -> None:
    insert(client, *({"end_ns": NOW - S} | row for row in rows))
    text = slo_text(metric="availability").replace("aborted:", f"httpStatus: {statuses}, aborted:")
    verdict = counting_evaluator(client, tmp_path, text).cycle(NOW)["chat"]
    assert (verdict.counts.total, verdict.counts.bad) == expected


JOINT = "{all: {ttft: 0.5, tpot: 0.05, stall: 1}}"


INDICATORS: list[tuple[str, str, list[dict[str, Any]], tuple[float, float]]] = [
    ("joint: each must be met", JOINT, [{"tpot_s": 0.06}, {"stall_s": 2.0}, {}], (3, 2)),
    ("joint: one token has no TPOT", JOINT, [{"tpot_s": None}], (1, 0)),
    ("joint: aborted is bad", JOINT, [{"status": "aborted"}], (1, 1)),
    (
        "acceptance counts drafted tokens",
        "{metric: acceptance}",
        [{"drafted_tokens": 10, "accepted_tokens": 7}, {"drafted_tokens": 0}, {}],
        (10, 3),
    ),
    (
        "cache hits count input tokens, where they are known",
        "{metric: cache_hit}",
        [{"cached_tokens": 30}, {"cached_tokens": 0}, {}],
        (80, 50),
    ),
]


@pytest.mark.parametrize(
    ("indicator", "rows", "expected"),
    [case[1:] for case in INDICATORS],
    ids=[case[0] for case in INDICATORS],
)
def test_objectives_beyond_one_duration(
    client: Any,
    tmp_path: Path,
    indicator: str,
    rows: list[dict[str, Any]],
    expected: tuple[float, float],
) -> None:
    empty = {"drafted_tokens": None, "accepted_tokens": None, "cached_tokens": None}
    insert(client, *({"end_ns": NOW - S, "stall_s": 0.1} | empty | row for row in rows))
    text = slo_text(metric="availability").replace(
        "{metric: availability, select: {model: support}, aborted: measured}", indicator
    )
    verdict = counting_evaluator(client, tmp_path, text).cycle(NOW)["chat"]
    assert (verdict.counts.total, verdict.counts.bad) == pytest.approx(expected)


def test_vectors_and_sql_judge_alike(client: Any, tmp_path: Path) -> None:
    """Random requests with gaps of every kind, judged by random objectives, in both places."""
    choose = random.Random(5)

    def maybe(*values: Any) -> Any:
        return choose.choice((None, *values))

    rows = [
        {
            "end_ns": NOW - choose.randrange(90 * S),
            "status": choose.choice(["ok", "ok", "error", "aborted", "shed"]),
            "http_status": maybe(200, 400, 429, 500),
            "model": choose.choice(["support", "other"]),
            "tenant": maybe("a", "b"),
            "ttft_s": maybe(0.1, 0.5, 0.50001, 2.0),
            "tpot_s": maybe(0.01, 0.1),
            "itl_p99_s": maybe(0.1, 1.0),
            "stall_s": maybe(0.1, 3.0),
            "e2e_s": maybe(0.2, 0.5, 9.0),
            "drafted_tokens": maybe(0, 4, 9),
            "accepted_tokens": choose.choice([0, 3]),
            "cached_tokens": maybe(0, 30, 50),
            "sample_weight": choose.choice([1.0, 2.5]),
        }
        for _ in range(600)
    ]
    insert(client, *rows)
    parts = []
    for _ in range(60):
        metric = choose.choice([m for m in Metric if m not in OTHERS])
        limits = {m: choose.choice([0.1, 0.5, 1.0]) for m in choose.sample(DURATIONS, 2)}
        indicator = Indicator(
            metric,
            choose.choice([0.1, 0.5, 2.0]) if metric in DURATIONS else None,
            choose.choice([{}, {"tenant": "a"}, {"model": "other", "tenant": "b"}]),
            choose.choice(list(Treatment)),
            choose.choice(list(Treatment)),
            choose.choice(list(Treatment)),
            limits if metric is Metric.JOINT else {},
            filters=random_filters(choose),
            statuses=random_statuses(choose),
        )
        parts.append(CountedIndicator(indicator, Fraction(9, 10), 7 * S))
    span = Span(NOW - 100 * S, NOW + 1)
    in_sql: list[dict[int, tuple[float, float]]] = [{} for _ in parts]
    for row in SloStore(client).read(query("slo_counts"), count_parameters(parts, span)):
        in_sql[row["slo"]][row["bucket"]] = (row["total_sum"], row["bad_sum"])
    for part, found, expected in zip(
        parts, SloStore(client).counts(parts, span), in_sql, strict=True
    ):
        in_vectors = {
            found.first + int(i): (found.total[i], found.bad[i]) for i in found.total.nonzero()[0]
        }
        # Weights are halves: sums are exact.
        assert in_vectors == expected, part
    assert sum(map(len, in_sql)) > 300


def test_composites_slices_and_evaluations_are_counted(client: Any, tmp_path: Path) -> None:
    insert(client, *({"end_ns": NOW - 400 * S} | (SLOW if i < 3 else {}) for i in range(10)))
    client.insert(
        "eval_results",
        [[to_datetime(NOW - S), "answer", label] for label in ("right", "wrong", "unscored")],
        column_names=["time", "kind", "label"],
    )
    text = slo_text("fast") + "---\n" + slo_text("up", metric="availability")
    both = slo_text("both", metric="availability").split("indicator:")[0]
    rest = "  objectives: [{target: 0.9}]\n  timeWindow: [{duration: 30d, isRolling: true}]\n"
    text += "---\n" + both + "indicator: {composite: [{slo: fast, weight: 2}, {slo: up}]}\n" + rest
    evals = both.replace("both", "evals")
    text += "---\n" + evals + "indicator: {metric: eval_pass}\n" + rest
    sliced = slo_text("sliced").replace("service: support", "budgetingMethod: RatioTimeslices")
    text += "---\n" + sliced.replace("value: 0.5", "value: 0.5, timeSliceWindow: 5m")
    counts = {
        name: (verdict.counts.total, verdict.counts.bad)
        for name, verdict in counting_evaluator(client, tmp_path, text).cycle(NOW).items()
    }
    assert counts == {
        "fast": (10, 3),
        "up": (10, 0),
        "both": (30, 6),
        "evals": (2, 1),
        "sliced": (1, pytest.approx(0.3)),
    }


def test_a_correction_is_worked_out_anew_and_taken_back(client: Any, tmp_path: Path) -> None:
    insert(client, {"end_ns": NOW - 200 * S} | SLOW, {"end_ns": NOW - S})
    engine = counting_evaluator(client, tmp_path, slo_text())
    assert engine.cycle(NOW)["chat"].counts.bad == 1
    book = AlertBook(tmp_path / "alerts.db")
    corrections = Corrections(book)
    span = whole_minutes(NOW - 210 * S, NOW - 190 * S)
    corrections.add(Correction("c1", "chat", *span, "maintenance", "ann", "drained", NOW))
    corrected = engine.cycle(NOW + S)["chat"].counts
    assert (corrected.total, corrected.bad) == (1, 0)
    assert corrections.revoke("c1", "bob", NOW + 2 * S)
    assert engine.cycle(NOW + 3 * S)["chat"].counts.bad == 1
    assert [c.revoked_by for c in corrections.all()] == ["bob"]
    book.close()
