"""The rollups on the real store: events of objectives, phases, weights."""

import random
import threading
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import pytest

from evenkeel.engines.engine_map import known_engines
from evenkeel.errors import StoreError
from evenkeel.slo.model import (
    COUNTED_APART,
    DURATIONS,
    SESSIONS,
    Indicator,
    Member,
    Metric,
    Slo,
    Treatment,
)
from evenkeel.slo.query import CountedIndicator, Span, count_parameters
from evenkeel.slo.selection import Filter, SelectOperator
from evenkeel.store import QUERIES
from evenkeel.times import to_datetime
from evenkeel_collector.slo.store import SloStore
from evenkeel_collector.store.migrations import run_statement
from evenkeel_collector.store.rollups import Rollups, view_statements
from evenkeel_collector.store.storage import Storage
from evenkeel_collector.store.views_of_others import set_views_of_others
from tests.fixtures.slo_requests import random_filters, random_statuses

# What is no metric of requests.
OTHERS = (*SESSIONS, *COUNTED_APART, Metric.COMPOSITE)

S = 10**9
NOW = 1_795_168_800 * S
DAY = 86_400 * S
EVENTS_1H = "SELECT slo, sum(good + bad), sum(bad) FROM slo_counts_1h GROUP BY slo"
EVENTS_1M = "SELECT slo, sum(good + bad), sum(bad) FROM slo_counts_1m GROUP BY slo"


@pytest.fixture
def rollups(storage: Storage, client: Any) -> Rollups:
    return Rollups(storage.connect, storage.gate)


def slo(name: str, indicator: Indicator) -> Slo:
    return Slo(name, name, indicator, Fraction(9, 10), Fraction(86_400), ())


def ttft(limit_s: float, **select: str) -> Indicator:
    return Indicator(Metric.TTFT, limit_s, select)


def insert(client: Any, *rows: Mapping[str, Any]) -> None:
    """Insert requests by their arrival."""
    empty: dict[str, Any] = {column: None for row in rows for column in row}
    usual = {"model": "m", "status": "ok", "sample_weight": 1.0, "time_ns": NOW}
    complete = [empty | usual | dict(row) for row in rows]
    for row in complete:
        row["time"] = to_datetime(row.pop("time_ns"))
    columns = list(complete[0])
    client.insert("requests", [[r[c] for c in columns] for r in complete], column_names=columns)


def events(client: Any, sql: str = EVENTS_1M) -> dict[str, tuple[float, float]]:
    return {name: (total, bad) for name, total, bad in client.query(sql).result_rows}


def random_requests(choose: random.Random, num: int) -> list[dict[str, Any]]:
    def maybe(*values: Any) -> Any:
        return choose.choice((None, *values))

    return [
        {
            "time_ns": NOW - choose.randrange(3 * DAY),
            "status": choose.choice(["ok", "ok", "error", "aborted", "shed"]),
            "http_status": maybe(200, 400, 408, 429, 500),
            "model": choose.choice(["support", "other"]),
            "tenant": maybe("a", "b"),
            "ttft_s": maybe(0.1, 0.5, 0.50001, 2.0),
            "tpot_s": maybe(0.01, 0.1),
            "itl_p99_s": maybe(0.1, 1.0),
            "stall_s": maybe(0.1, 3.0),
            "e2e_s": maybe(0.2, 0.5, 9.0),
            "input_tokens": maybe(0, 40),
            "drafted_tokens": maybe(0, 4, 9),
            "accepted_tokens": maybe(0, 3, 12),
            "cached_tokens": maybe(0, 30, 50),
            "sample_weight": choose.choice([1.0, 2.5]),
        }
        for _ in range(num)
    ]


def random_slos(choose: random.Random, num: int) -> list[Slo]:
    slos = []
    for number in range(num):
        metric = choose.choice([m for m in Metric if m not in OTHERS])
        limits = {m: choose.choice([0.1, 0.5, 1.0]) for m in choose.sample(DURATIONS, 2)}
        indicator = Indicator(
            metric,
            choose.choice([0.1, 0.5, 2.0]) if metric in DURATIONS else None,
            choose.choice([{}, {"tenant": "a"}, {"model": "other", "tenant": "b"}]),
            error=choose.choice(list(Treatment)),
            aborted=choose.choice(list(Treatment)),
            shed=choose.choice(list(Treatment)),
            limits=limits if metric is Metric.JOINT else {},
            filters=random_filters(choose),
            statuses=random_statuses(choose),
        )
        slos.append(slo(f"it's {number}", indicator))
    return slos


def test_rollups_and_view_count_what_the_evaluation_counts(client: Any, rollups: Rollups) -> None:
    """Random requests, half of them stored before the objectives, judged by random objectives."""
    choose = random.Random(5)
    slos = random_slos(choose, 40)
    insert(client, *random_requests(choose, 500))
    assert rollups.use(slos)
    insert(client, *random_requests(choose, 500))
    span = Span(NOW - 4 * DAY, NOW + DAY, DAY)
    parts = [CountedIndicator(each.indicator, each.target, DAY) for each in slos]
    expected = {
        each.name: (found.total.sum(), found.bad.sum())
        for each, found in zip(slos, SloStore(client).counts(parts, span), strict=True)
        if found.total.sum()
    }
    # Weights are halves: sums are exact.
    assert events(client) == expected
    viewed: dict[str, tuple[float, float]] = {}
    for row in SloStore(client).read(QUERIES / "slo_counts.sql", count_parameters(parts, span)):
        total, bad = viewed.get(slos[row["slo"]].name, (0.0, 0.0))
        viewed[slos[row["slo"]].name] = total + row["total_sum"], bad + row["bad_sum"]
    assert viewed == expected
    assert events(client, EVENTS_1H) == expected
    assert len(expected) > 30


def test_objectives_with_long_lists_are_counted(client: Any, rollups: Rollups) -> None:
    """The views' text is longer than the engine takes by default."""
    slos = [
        slo(
            f"slo-{first}",
            Indicator(
                Metric.AVAILABILITY,
                None,
                filters=(
                    Filter("tenant", test, tuple(f"it's {i + first}" for i in range(200))),
                    Filter("model", SelectOperator.NOT_MATCHES, ("other",)),
                ),
            ),
        )
        for first in range(150)
        for test in (SelectOperator.NOT if first else SelectOperator.IN,)
    ]
    assert rollups.use(slos)
    insert(client, *({"tenant": f"it's {i}"} for i in (0, 199, 200, 5000)))
    counted = events(client)
    assert (counted["slo-0"], counted["slo-100"]) == ((2, 0), (2, 0))


def test_a_changed_objective_is_counted_anew_and_apart(client: Any, rollups: Rollups) -> None:
    insert(client, {"ttft_s": 0.3}, {"ttft_s": 0.7})
    other = slo("other", Indicator(Metric.AVAILABILITY, None))
    rollups.use([slo("chat", ttft(0.5)), other])
    assert events(client) == {"chat": (2, 1), "other": (2, 0)}
    assert not rollups.use([slo("chat", ttft(0.5)), other])
    rollups.use([slo("chat", ttft(0.2)), other])
    insert(client, {"ttft_s": 0.1})
    assert events(client) == {"chat": (3, 2), "other": (3, 0)}
    # Back to the first, which was not counted meanwhile.
    rollups.use([slo("chat", ttft(0.5)), other])
    assert events(client) == events(client, EVENTS_1H) == {"chat": (3, 1), "other": (3, 0)}
    keys = client.query("SELECT DISTINCT slo, key FROM slo_objectives WHERE slo != ''").result_rows
    assert sorted(name for name, _ in keys) == ["chat", "chat", "chat", "other"]


def test_a_composite_is_its_members_by_weight(client: Any, rollups: Rollups) -> None:
    fast, up = ttft(0.5), Indicator(Metric.AVAILABILITY, None)
    both = Indicator(
        Metric.COMPOSITE, None, members=(Member(fast, Fraction(2)), Member(up, Fraction(1)))
    )
    rollups.use([slo("fast", fast), slo("up", up), slo("both", both)])
    insert(client, {"ttft_s": 0.3}, {"ttft_s": 0.7})
    assert events(client) == {"fast": (2, 1), "up": (2, 0), "both": (6, 2)}


@pytest.mark.parametrize("num_whole", [0, 1, 2, 3])
def test_a_change_of_the_views_that_is_cut_off_is_taken_up_again(
    client: Any, storage: Storage, num_whole: int
) -> None:
    """The store goes away while a view has its other name; both views are changed twice."""
    left: int | None = None

    def render(statement: str) -> list[str]:
        nonlocal left
        if left is None or not statement.startswith("RENAME") or "," not in statement:
            return [statement]
        left -= 1
        return [statement] if left >= 0 else [statement.partition(",")[0], "gone"]

    rollups = Rollups(storage.connect, storage.gate, render)
    left = num_whole
    with pytest.raises(StoreError):
        rollups.use([slo("chat", ttft(0.5))])
    left = None
    assert rollups.use([slo("chat", ttft(0.5))])
    assert not rollups.use([slo("chat", ttft(0.5))])
    insert(client, {"ttft_s": 0.3}, {"ttft_s": 0.7})
    assert events(client) == events(client, EVENTS_1H) == {"chat": (2, 1)}


def test_another_start_goes_on_with_the_objectives_in_force(
    client: Any, storage: Storage, rollups: Rollups
) -> None:
    rollups.use([slo("chat", ttft(0.5))])
    insert(client, {"ttft_s": 0.7})
    again = Rollups(storage.connect, storage.gate)
    insert(client, {"ttft_s": 0.3})
    assert not again.use([slo("chat", ttft(0.5))])
    assert events(client) == {"chat": (2, 1)}


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_change_that_fails_in_the_middle_is_made_from_the_start(
    client: Any, storage: Storage, rollups: Rollups, is_restarted: bool
) -> None:
    rollups.use([slo("chat", ttft(0.5))])
    insert(client, {"ttft_s": 0.3})
    client.command("RENAME TABLE slo_objectives TO slo_objectives_away")
    with pytest.raises(StoreError, match="slo_objectives"):
        rollups.use([slo("chat", ttft(0.2))])
    client.command("RENAME TABLE slo_objectives_away TO slo_objectives")
    if is_restarted:
        rollups = Rollups(storage.connect, storage.gate)
    insert(client, {"ttft_s": 0.4})
    assert events(client) == {"chat": (2, 0)}
    assert rollups.use([slo("chat", ttft(0.2))])
    assert events(client) == {"chat": (2, 2)}


def test_requests_stored_during_a_change_count_once(
    client: Any, storage: Storage, rollups: Rollups
) -> None:
    is_over = threading.Event()
    num_stored = 0

    def store() -> None:
        nonlocal num_stored
        mine = storage.connect()
        while not is_over.is_set():
            with storage.gate.inserting():
                # Times that differ: identical rows would be taken for a repetition.
                first = num_stored
                insert(
                    mine,
                    *({"ttft_s": 0.3, "time_ns": NOW - (first + i) * S} for i in range(20)),
                )
            num_stored += 20
        mine.close()

    storing = threading.Thread(target=store)
    storing.start()
    for limit_s in (0.5, 0.2, 0.6):
        rollups.use([slo("chat", ttft(limit_s)), slo(f"new {limit_s}", ttft(limit_s * 2))])
    is_over.set()
    storing.join()
    assert num_stored > 0
    assert events(client) == {"chat": (num_stored, 0), "new 0.6": (num_stored, 0)}


def test_everything_is_weighted_and_phases_have_sums(client: Any, rollups: Rollups) -> None:
    phases = {"queue_s": 1.0, "prefill_s": 2.0, "decode_s": 4.0, "input_tokens": 10}
    insert(
        client,
        phases | {"ttft_s": 1.0, "sample_weight": 3.0, "cached_tokens": 5},
        phases | {"ttft_s": 5.0, "queue_s": 2.0, "cached_tokens": None},
        phases | {"status": "shed", "sample_weight": float("nan")},
    )
    insert(client, {"model": "bare", "status": "error", "sample_weight": 1e300})
    for table in ("requests_1m", "requests_1h"):
        (row,) = client.query(
            "SELECT sum(num_requests) AS num, sum(num_shed) AS shed, sum(input_tokens) AS tokens,"
            " sum(cached_tokens) / sum(cacheable_tokens) AS cached,"
            " sum(queue_sum_s) / sum(num_queue) AS queue, sum(decode_sum_s) AS decode,"
            " sum(num_decode) AS num_decode"
            f" FROM {table} WHERE model = 'm'"
        ).named_results()
        assert row == {
            "num": 5, "shed": 1, "tokens": 50, "cached": 0.5, "queue": 5 / 4, "decode": 16,
            "num_decode": 4,
        }  # fmt: skip
        (bare,) = client.query(
            "SELECT sum(num_requests), sum(num_error), sum(input_tokens), sum(queue_sum_s)"
            f" FROM {table} WHERE model = 'bare'"
        ).result_rows
        assert bare == (1, 1, None, 0)


def test_percentiles_are_those_of_the_requests_that_rows_stand_for(
    client: Any, rollups: Rollups
) -> None:
    slow = [{"ttft_s": 4.0 + i / 100} for i in range(100)]
    sampled = [{"ttft_s": 1.0 + i / 100, "sample_weight": 10.0} for i in range(50)]
    insert(client, *slow, *sampled)
    for table in ("requests_1m", "requests_1h"):
        (found,) = client.query(
            f"SELECT quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s) FROM {table}"
        ).first_row
        # 500 of 600 requests took 1 to 1.5 s, the others 4 to 5 s.
        assert found == pytest.approx([1.3, 4.7, 4.94], abs=0.03)


def test_a_models_percentiles_are_kept_over_its_cohorts(client: Any, rollups: Rollups) -> None:
    for part in range(3):
        insert(
            client,
            *(
                {"ttft_s": 0.01 * i, "tenant": f"t{i % 4}", "model": f"m{i % 2}"}
                for i in range(part, 90, 3)
            ),
        )
    query = (
        "SELECT model, minute, quantilesTDigestMerge(0.5, 0.95, 0.99)(ttft_s) FROM requests_1m"
        " WHERE model != '' GROUP BY model, minute ORDER BY model"
    )
    plain = f"{query} SETTINGS optimize_use_projections = 0"
    for _ in range(2):
        assert "(by_model)" in str(client.query(f"EXPLAIN {query}").result_rows)
        assert "(by_model)" not in str(client.query(f"EXPLAIN {plain}").result_rows)
        kept, merged = client.query(query).result_rows, client.query(plain).result_rows
        assert len(kept) == 2
        for one, other in zip(kept, merged, strict=True):
            assert one[:2] == other[:2]
            assert one[2] == pytest.approx(other[2], rel=0.02)
        client.command("OPTIMIZE TABLE requests_1m FINAL")


class Recorder:
    """A client that remembers its commands."""

    def __init__(self, client: Any) -> None:
        self.query = client.query
        self._client = client
        self.commands: list[str] = []

    def command(self, statement: str, **options: Any) -> None:
        self.commands.append(statement)
        self._client.command(statement, **options)


def test_a_start_changes_only_the_views_that_differ(client: Any, rollups: Rollups) -> None:
    read = "SELECT name, as_select FROM system.tables WHERE engine = 'MaterializedView' ORDER BY 1"
    before = client.query(read).result_rows
    start, engines = Recorder(client), known_engines()
    set_views_of_others(start, engines=engines)
    for statement in view_statements([]):
        run_statement(start, statement, lambda statement: [statement])
    assert [each.partition(" ")[0] for each in start.commands] == ["RENAME"] * 4
    # The prefix of an attribute counts, though that of a table does not.
    statement = (
        "ALTER TABLE spans_to_spans_of_others MODIFY QUERY\n"
        "SELECT * FROM spans WHERE SpanAttributes['evenkeel.status'] = 'it\\'s FROM evenkeel.x'"
    )
    changed = statement.replace("evenkeel.", "")
    for query, num_changes in ((statement, 1), (statement, 0), (changed, 1)):
        start.commands.clear()
        run_statement(start, query, lambda statement: [statement])
        assert sum("MODIFY QUERY" in each for each in start.commands) == num_changes
    start.commands.clear()
    set_views_of_others(start, engines=engines)
    assert [each.split()[2] for each in start.commands if "MODIFY QUERY" in each] == [
        "spans_to_spans_of_others"
    ]
    assert client.query(read).result_rows == before


def test_a_new_store_has_no_events(client: Any, rollups: Rollups) -> None:
    assert events(client) == {}
    assert not rollups.use([])
