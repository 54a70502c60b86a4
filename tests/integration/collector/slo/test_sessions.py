"""Sessions as events of SLOs: which are over, which of those are good, and when."""

from pathlib import Path
from typing import Any

import pytest

from evenkeel.slo.burn_rates import Counts
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.groups import with_groups
from evenkeel.slo.query import Span
from evenkeel_collector.slo.history import count_buckets
from tests.fixtures.slo_files import slo_file
from tests.fixtures.slo_requests import NOW, Reader, S, evaluator, insert

MINUTE = 60 * S

TASKS = """\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: tasks}}
spec:
  indicator: {{{indicator}}}
  objectives: [{{target: 0.9{value}}}]
  timeWindow: [{{duration: 30d, isRolling: true}}]
  alerting: {{scale: 1}}
"""


def tasks(indicator: str, value: float | None = None) -> str:
    limit = "" if value is None else f", value: {value}"
    return TASKS.format(indicator=indicator, value=limit)


def session(client: Any, name: str, ends_ns: int, *rows: dict[str, Any]) -> None:
    """Insert a session's requests, a minute apart; the last one ends at `ends_ns`."""
    last = len(rows) - 1
    insert(
        client,
        *(
            {
                "session_id": name, "session_source": "header", "request_id": f"{name}-{i}",
                "end_ns": ends_ns - (last - i) * MINUTE, "route": None,
            }
            | row
            for i, row in enumerate(rows)
        ),
    )  # fmt: skip


FAILED: dict[str, Any] = {"status": "error"}
OVER = NOW - 31 * MINUTE

CASES: list[tuple[str, str, list[dict[str, Any]], tuple[float, float]]] = [
    ("within the limit", tasks("metric: session_e2e", 100), [{}, {}], (1, 0)),
    ("beyond the limit", tasks("metric: session_e2e", 100), [{}, {}, {}], (1, 1)),
    ("as many turns as allowed", tasks("metric: session_turns", 3), [{}, {}, {}], (1, 0)),
    ("a turn too many", tasks("metric: session_turns", 3), [{}] * 4, (1, 1)),
    ("what failed was tried again", tasks("metric: session_success"), [FAILED, {}], (1, 0)),
    ("the last request failed", tasks("metric: session_success"), [{}, FAILED], (1, 1)),
    ("failed in time is bad", tasks("metric: session_e2e", 100), [{}, FAILED], (1, 1)),
    ("failures measured", tasks("metric: session_e2e, error: measured", 100), [FAILED], (1, 0)),
    ("left out", tasks("metric: session_success, error: excluded"), [FAILED], (0, 0)),
    (
        "another tenant's",
        tasks("metric: session_success, select: {tenant: acme}"),
        [{"tenant": "globex"}],
        (0, 0),
    ),
    (
        "a pattern",
        tasks('metric: session_success, select: {tenant: {matches: "ac.*"}}'),
        [{"tenant": "acme"}],
        (1, 0),
    ),
]


@pytest.mark.parametrize(
    ("text", "rows", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_which_sessions_are_good(
    client: Any,
    tmp_path: Path,
    text: str,
    rows: list[dict[str, Any]],
    expected: tuple[float, float],
) -> None:
    session(client, "one", OVER, *rows)
    verdict = evaluator(client, tmp_path, text).cycle(NOW)["tasks"]
    assert (verdict.counts.total, verdict.counts.bad) == expected


def test_a_session_counts_once_it_is_silent_and_again_elsewhere_if_it_goes_on(
    client: Any, tmp_path: Path
) -> None:
    warm = evaluator(client, tmp_path, tasks("metric: session_success, silence: 10m"))
    session(client, "one", NOW - 9 * MINUTE, FAILED)
    assert warm.cycle(NOW)["tasks"].counts.total == 0, "not over yet"
    verdict = warm.cycle(NOW + 2 * MINUTE)["tasks"]
    assert (verdict.counts.total, verdict.counts.bad) == (1, 1)
    # Its next request comes late: the verdict is taken back, and given again when it is over.
    session(client, "one", NOW + MINUTE, {})
    assert warm.cycle(NOW + 5 * MINUTE)["tasks"].counts.total == 0
    verdict = warm.cycle(NOW + 12 * MINUTE)["tasks"]
    assert (verdict.counts.total, verdict.counts.bad) == (1, 0)


def test_bad_sessions_fire_an_alert_that_names_them(client: Any, tmp_path: Path) -> None:
    for number in range(8):
        session(client, f"task-{number}", NOW - 11 * MINUTE, {"tenant": "acme"}, FAILED)
    text = tasks("metric: session_success, silence: 10m").replace("target: 0.9", "target: 0.99")
    found = evaluator(client, tmp_path, text)
    found.cycle(NOW)
    found.cycle(NOW + S)
    rows = client.query("SELECT slo, state, annotations FROM alert_history").result_rows
    firing = [notes for slo, state, notes in rows if slo == "tasks" and state == "firing"]
    assert firing
    assert "of sessions in the last" in firing[0]["description"]


def test_evidence_links_the_sessions(client: Any, tmp_path: Path) -> None:
    from evenkeel_collector.slo.evidence import gather
    from evenkeel_collector.slo.store import SloStore

    session(client, "well", OVER, {})
    session(client, "badly", OVER, {"tenant": "acme"}, FAILED | {"tenant": "acme"})
    (slo,) = slo_file(tmp_path, tasks("metric: session_e2e", 100)).slos
    facts = gather(slo, NOW - 3600 * S, NOW, "http://board", SloStore(client))
    assert facts["bad_sessions"] == "1 of 2"
    assert facts["example_sessions"] == (
        "badly (error, 60.4 s, 2 turns, 0 tools) http://board/sessions?session_id=badly&of=acme"
    )


def test_each_tenant_has_an_slo_and_a_backtest_counts_the_same(client: Any, tmp_path: Path) -> None:
    session(client, "one", OVER, {"tenant": "acme"})
    session(client, "two", OVER, {"tenant": "globex"}, FAILED | {"tenant": "globex"})
    text = tasks("metric: session_success, groupBy: tenant")
    verdicts = evaluator(client, tmp_path, text).cycle(NOW)
    assert {name: v.sli for name, v in verdicts.items()} == {"tasks/acme": 1.0, "tasks/globex": 0.0}
    reader = Reader(client)
    written = read_slo_file(tmp_path / "slos.yaml").slos
    for slo in with_groups(written, reader.rows, NOW):
        counted = count_buckets(reader, slo, Span(NOW - 7200 * S, NOW + 1), MINUTE)
        assert list(counted.values()) == [Counts(1.0, 1.0 - (verdicts[slo.name].sli or 0.0))]
