"""One definition, many SLOs: groups appear, burn, are bounded and leave, each for itself."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from evenkeel.errors import StoreError
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.groups import with_groups
from evenkeel.slo.matchers import parse_matchers
from evenkeel.times import parse_time_ns
from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.state import State
from evenkeel_collector.slo.evaluator import Evaluator
from evenkeel_collector.slo.store import SloStore
from tests.fixtures.slo_files import slo_file
from tests.fixtures.slo_requests import NOW, SLOW, S, evaluator, insert, slo_text

HOUR = 3600 * S


def grouped(more: str = "groupBy: [tenant]", **words: str) -> str:
    return slo_text(**words).replace("aborted:", f"{more}, aborted:")


def of_tenant(tenant: str | None, num: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [{"end_ns": NOW - S, "tenant": tenant} | more for _ in range(num)]


def totals(engine: Evaluator, now_ns: int = NOW) -> dict[str, tuple[float, float]]:
    return {
        name: (verdict.counts.total, verdict.counts.bad)
        for name, verdict in engine.cycle(now_ns).items()
    }


def firing(engine: Evaluator) -> dict[str, dict[str, str]]:
    return {
        slo: dict(alert.details.labels)
        for (slo, _), alert in engine._engine.alerts.items()
        if alert.life.state is State.FIRING
    }


def test_each_tenant_has_a_budget_and_alerts_of_its_own(client: Any, tmp_path: Path) -> None:
    """200 tenants are one document; one of them burns."""
    insert(
        client,
        *(row for i in range(200) for row in of_tenant(f"t{i}", 3)),
        *of_tenant("t7", 30, **SLOW),
        *of_tenant(None, 5, **SLOW),
    )
    engine = evaluator(client, tmp_path, grouped())
    found = totals(engine)
    assert len(found) == 200
    assert found["chat/t7"] == (33, 30)
    assert {found[name] for name in found if name != "chat/t7"} == {(3, 0)}
    alerts = firing(engine)
    assert list(alerts) == ["chat/t7"]
    wanted = {"tenant": "t7", "slo": "chat/t7", "slo_group": "chat", "model": "support"}
    assert alerts["chat/t7"].items() >= wanted.items()
    later = NOW + 3 * HOUR
    insert(client, *of_tenant("t7", 3000, end_ns=later - S))
    engine.cycle(later)
    assert firing(engine) == {}


def test_a_new_group_is_seen_while_running_and_reads_no_more_than_its_own(
    client: Any, tmp_path: Path
) -> None:
    insert(client, *of_tenant("old", 2))
    engine = evaluator(client, tmp_path, grouped())
    assert totals(engine) == {"chat/old": (2, 0)}
    insert(client, *of_tenant("new", 4, end_ns=NOW + 9 * S), *of_tenant("old", 1))
    assert totals(engine, NOW + 11 * S) == {"chat/old": (3, 0), "chat/new": (4, 0)}
    # What comes late counts as it does for any SLO.
    insert(client, *of_tenant("new", 3, end_ns=NOW - 2 * HOUR))
    found = totals(engine, NOW + 311 * S)
    assert found["chat/new"] == (7, 0), found


def test_more_groups_than_there_may_be_leave_those_there_alone(client: Any, tmp_path: Path) -> None:
    insert(client, *of_tenant("busy", 9), *of_tenant("quiet", 2), *of_tenant("rare", 1))
    engine = evaluator(client, tmp_path, grouped("groupBy: tenant, maxGroups: 2"))
    assert set(totals(engine)) == {"chat/busy", "chat/quiet"}
    assert engine.groups_left_out == {"chat": 1}
    flood = [row for i in range(500) for row in of_tenant(f"made-up-{i}", 5)]
    insert(client, *flood)
    for seconds in (11, 311):
        assert set(totals(engine, NOW + seconds * S)) == {"chat/busy", "chat/quiet"}
    assert engine.groups_left_out == {"chat": 501}


ODD = ["a/b", "a,b", "100%", "müller & co", 'it\'s "x"', "x" * 128, "../..", "no-data"]


def test_odd_values_make_groups_that_are_told_apart(client: Any, tmp_path: Path) -> None:
    refused = ["x" * 129, "line\nbreak", "bell\x07", ""]
    insert(client, *(row for value in [*ODD, *refused] for row in of_tenant(value, 2)))
    found = totals(evaluator(client, tmp_path, grouped()))
    assert len(found) == len(ODD)
    assert {"chat/a%2Fb", "chat/a%2Cb", "chat/100%25", "chat/..%2F..", "chat/no-data"} <= set(found)
    assert set(found.values()) == {(2, 0)}


@pytest.mark.parametrize("tenant", ["acme", 'it\'s "x" & $y', "müller"])
def test_an_alert_says_how_to_silence_its_group(client: Any, tmp_path: Path, tenant: str) -> None:
    insert(client, *of_tenant(tenant, 30, **SLOW))
    engine = evaluator(client, tmp_path, grouped())
    engine.cycle(NOW)
    alert, *_ = (a for a in engine._engine.alerts.values() if a.life.state is State.FIRING)
    *_, which, _, _ = shlex.split(alert.details.annotations["silence"])
    assert all(m.matches(alert.details.labels) for m in parse_matchers(which))


def test_combinations_selectors_and_composites(client: Any, tmp_path: Path) -> None:
    insert(
        client,
        *of_tenant("a", 2, route="chat"),
        *of_tenant("a", 1, route="mail"),
        *of_tenant("b", 1, route="chat"),
        *of_tenant("test", 1, route="chat"),
        *of_tenant("c", 1, model="other", route="chat"),
    )
    select = "model: support, tenant: {not: test}"
    text = grouped("groupBy: [tenant, route]", select=select) + "---\n"
    text += slo_text("up", metric="availability") + "---\n"
    both = slo_text("both", metric="availability").split("  indicator:")[0]
    text += both + "  indicator: {composite: [{slo: chat}, {slo: up}], groupBy: tenant}\n"
    text += "  objectives: [{target: 0.9}]\n  timeWindow: [{duration: 30d, isRolling: true}]\n"
    found = totals(evaluator(client, tmp_path, text))
    assert found == {
        "chat/a,chat": (2, 0), "chat/a,mail": (1, 0), "chat/b,chat": (1, 0),
        "up": (5, 0),
        "both/a": (6, 0), "both/b": (2, 0), "both/test": (1, 0), "both/c": (0, 0),
    }  # fmt: skip


def test_a_group_leaves_after_a_period_without_requests(client: Any, tmp_path: Path) -> None:
    insert(client, *of_tenant("gone", 5, **SLOW), *of_tenant("stays", 1))
    engine = evaluator(client, tmp_path, grouped())
    engine.cycle(NOW)
    assert list(firing(engine)) == ["chat/gone"]
    # The file scales 30 days to 2.4 hours.
    later = NOW + 4 * HOUR
    insert(client, *of_tenant("stays", 1, end_ns=later - S))
    assert set(totals(engine, later)) == {"chat/stays"}
    assert firing(engine) == {}


def test_while_groups_cannot_be_read_nothing_is_resolved(client: Any, tmp_path: Path) -> None:
    insert(client, *of_tenant("a", 30, **SLOW))
    engine = evaluator(client, tmp_path, grouped())
    engine.cycle(NOW)
    assert list(firing(engine)) == ["chat/a"]
    client.command("RENAME TABLE requests_1h TO away")
    try:
        # A collector that was started again, before a store that cannot say.
        again = Evaluator(
            read_slo_file(tmp_path / "slos.yaml"),
            SloStore(client),
            AlertBook(tmp_path / "alerts.db"),
        )
        again.cycle(NOW + 5 * S)
        assert list(firing(again)) == ["chat/a"]
    finally:
        client.command("RENAME TABLE away TO requests_1h")
    assert totals(again, NOW + 20 * S) == {"chat/a": (30, 30)}
    assert list(firing(again)) == ["chat/a"]


def test_a_group_that_goes_quiet_is_told_only_where_the_file_wants_it(
    client: Any, tmp_path: Path
) -> None:
    insert(client, *of_tenant("a", 3))
    text = grouped() + "---\n" + grouped(name="asked") + "  alerting: {noData: 10m}\n"
    engine = evaluator(client, tmp_path, text)
    for seconds in range(0, 1201, 240):
        engine.cycle(NOW + seconds * S)
    assert list(firing(engine)) == ["asked/a/no-data"]


def test_commands_read_the_groups_of_a_span(client: Any, tmp_path: Path) -> None:
    insert(client, *of_tenant("a", 2), *of_tenant("b", 1, end_ns=NOW - 40 * 24 * HOUR))
    slos = slo_file(tmp_path, grouped()).slos
    read = SloStore(client).read
    assert [slo.name for slo in with_groups(slos, read, NOW)] == ["chat/a"]
    far = with_groups(slos, read, NOW, 60 * 24 * HOUR)
    assert sorted(slo.name for slo in far) == ["chat/a", "chat/b"]
    client.command("RENAME TABLE requests_1h TO away")
    try:
        with pytest.raises(StoreError):
            with_groups(slos, read, NOW)
    finally:
        client.command("RENAME TABLE away TO requests_1h")


def test_a_group_stays_to_the_end_of_a_long_month(client: Any, tmp_path: Path) -> None:
    """Also after a restart on its last day, which reads all of it."""
    last_day = parse_time_ns("2026-10-31T12:00Z")
    first_day = parse_time_ns("2026-10-01T08:00Z")
    insert(client, *of_tenant("early", 2, **SLOW, end_ns=first_day))
    insert(client, *of_tenant("both", 2, **SLOW, end_ns=first_day))
    insert(client, *of_tenant("both", 3, end_ns=last_day - S))
    text = grouped().replace("isRolling: true", "calendar: {timeZone: UTC}").replace("30d", "1M")
    file = slo_file(tmp_path, text)
    engine = Evaluator(file, SloStore(client), AlertBook(tmp_path / "alerts.db"))
    assert totals(engine, last_day) == {"chat/both": (5, 2), "chat/early": (2, 2)}
    reader = SloStore(client).read
    assert len(with_groups(file.slos, reader, last_day)) == 2
