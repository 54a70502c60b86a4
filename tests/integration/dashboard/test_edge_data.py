"""What pages read at the edges of the data: long ranges, old data, requests at the same moment."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from evenkeel.store import read_query
from evenkeel.times import to_datetime
from evenkeel_collector.store.storage import Storage
from tests.fixtures.dashboard_process import NO_FILTER
from tests.fixtures.new_store import open_new_store
from tests.fixtures.slo_requests import NOW, S, insert
from tests.queries import query

HOUR_S = NOW // S // 3600 * 3600
WEEK_S = 7 * 86_400
SAME = NOW - 7200 * S


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    storage: Storage = open_new_store(tmp_path_factory.mktemp("edges") / "store")
    client = storage.connect()
    insert(
        client,
        {"end_ns": (HOUR_S - 180) * S, "tenant": "late", "e2e_s": 1.0},
        {"end_ns": (HOUR_S - 7300) * S, "tenant": "early", "e2e_s": 1.0},
    )
    insert(
        client,
        *(
            {"end_ns": SAME, "e2e_s": 9.0, "prompt_name": name, "prompt_version": "1",
             "slo_class": name, "request_id": name, "tenant": "same"}
            for name in ("chat", "summary")
        ),
    )  # fmt: skip
    yield client
    client.close()
    storage.close()


def rows(client: Any, name: str, from_s: int, to_s: float, **more: Any) -> list[dict[str, Any]]:
    ends = {"from_ms": from_s * 1000, "to_ms": round(to_s * 1000)}
    return list(
        client.query(read_query(query(name)), {**ends, **NO_FILTER, **more}).named_results()
    )


@pytest.mark.parametrize(
    ("from_s", "to_s", "chosen", "newest_s"),
    [
        pytest.param(HOUR_S - WEEK_S, HOUR_S + 1800, {}, HOUR_S - 181, id="of a whole hour"),
        pytest.param(HOUR_S - WEEK_S, HOUR_S, {"tenant": "early"}, HOUR_S - 7301, id="filtered"),
        pytest.param(HOUR_S - 182, HOUR_S - 179, {}, HOUR_S - 181, id="within one minute"),
        pytest.param(HOUR_S - WEEK_S, HOUR_S, {"tenant": "none"}, None, id="without requests"),
        pytest.param(HOUR_S, HOUR_S + 9, {}, None, id="after the last one"),
        pytest.param(
            HOUR_S - WEEK_S, HOUR_S - 200, {}, HOUR_S - 7209, id="ends before one of its minute"
        ),
        pytest.param(
            HOUR_S - WEEK_S, HOUR_S - 7302, {"tenant": "early"}, None, id="ends before the first"
        ),
        pytest.param(HOUR_S - 310, HOUR_S - 180.5, {}, HOUR_S - 181, id="ends within a minute"),
    ],
)
def test_the_newest_request_is_shown_to_the_second_in_any_range(
    client: Any, from_s: int, to_s: float, chosen: dict[str, str], newest_s: int | None
) -> None:
    (row,) = rows(client, "newest_in_range", from_s, to_s, **chosen)
    assert row["newest_ms"] == (None if newest_s is None else newest_s * 1000)


@pytest.mark.parametrize("chosen", [{"prompt": "chat@1"}, {"slo_class": "chat"}])
def test_the_slowest_requests_are_those_of_the_filter(client: Any, chosen: dict[str, str]) -> None:
    found = rows(
        client, "slowest_requests", HOUR_S - WEEK_S, HOUR_S, rank_by="e2e", limit=5, **chosen
    )
    assert [row["request_id"] for row in found] == ["chat"]


def test_alerts_that_began_at_once_are_listed_in_the_same_order_each_time(client: Any) -> None:
    """Or the cards of the Alerts page change places at each refresh."""
    names = [f"slo-{number:02}" for number in range(30)]
    values = [
        {
            "time": to_datetime(NOW), "starts_at": to_datetime(NOW), "alert_id": f"id-{name}",
            "slo": name, "severity": "page", "state": "firing", "transition_id": name,
        }
        for name in reversed(names)
    ]  # fmt: skip
    columns = list(values[0])
    rows_of = [[value[column] for column in columns] for value in values]
    client.insert("alert_history", rows_of, column_names=columns)
    found = rows(client, "alerts", HOUR_S - 60, HOUR_S + 60)
    assert [row["slo"] for row in found] == names


def test_versions_first_seen_in_one_minute_are_listed_in_the_same_order_each_time(
    client: Any,
) -> None:
    insert(
        client,
        *(
            {"end_ns": (HOUR_S - 4000 + 600 * (number > 0)) * S, "e2e_s": 1.0,
             "prompt_name": f"p{number % 7}", "prompt_version": f"{number:03}"}
            for number in (0, *reversed(range(1, 60)))
        ),
    )  # fmt: skip
    found = rows(client, "changes", HOUR_S - WEEK_S, HOUR_S)
    named = [row["name"] for row in found if row["kind"] == "prompt"]
    assert named == sorted(named) == [f"p0@{number:03}" for number in (7, 14, 21, 28, 35)]
    assert [row["before"] for row in found if row["kind"] == "prompt"][:2] == ["000", "007"]


def test_of_versions_in_use_from_the_begin_the_highest_number_is_the_newest(client: Any) -> None:
    """Whichever had its first request of the range first; one that came later is newer."""
    used_s = (("9", 9000), ("10", 8800), ("8", 8600), ("11", 9000), ("7b", 300))
    insert(
        client,
        *(
            {"end_ns": (HOUR_S - ago_s) * S, "e2e_s": 1.0, "prompt_name": "long-in-use",
             "prompt_version": version}
            for version, ago_s in used_s
        ),
    )  # fmt: skip
    found = rows(client, "prompt_versions", HOUR_S - 9060, HOUR_S)
    named = [r["prompt_version"] for r in found if r["prompt_name"] == "long-in-use"]
    assert named == ["7b", "11", "10", "9", "8"]


def test_the_rollup_says_when_the_newest_request_came_if_no_request_is_left(client: Any) -> None:
    client.command("TRUNCATE TABLE requests")
    (row,) = rows(client, "newest_in_range", HOUR_S - WEEK_S, HOUR_S - 60)
    assert row["newest_ms"] == (HOUR_S - 240) * 1000
