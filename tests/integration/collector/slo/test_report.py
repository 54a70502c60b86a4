"""Reports and backtests on the real store."""

from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from evenkeel.slo.backtest import replay
from evenkeel.slo.burn_rates import Counts
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.query import Span, slo_parts
from evenkeel.times import to_datetime
from evenkeel_collector.commands.slo_burned import burned_text
from evenkeel_collector.slo.corrections import Correction
from evenkeel_collector.slo.history import count_buckets
from evenkeel_collector.slo.report import SloReport, measure
from evenkeel_collector.slo.report_text import report_html, report_json, report_markdown
from tests.fixtures.slo_files import slo_file
from tests.fixtures.slo_requests import NOW, SLOW, Reader, S, evaluator, insert, slo_text

MINUTE = 60 * S
DAY = 86400 * S
LEFT_OUT = Correction(
    "c1", "chat", NOW - 7200 * S, NOW - 3600 * S, "maintenance", "ann", "<b>drained</b>", NOW
)


def report(client: Any, tmp_path: Path) -> SloReport:
    """One good and three bad requests now, a bad one in a correction, one bad one days ago."""
    insert(
        client,
        {"end_ns": NOW - S},
        *({"end_ns": NOW - S} | SLOW for _ in range(3)),
        {"end_ns": NOW - 5000 * S} | SLOW,
        {"end_ns": NOW - 2 * 86400 * S} | SLOW,
    )
    evaluator(client, tmp_path, slo_text()).cycle(NOW)
    span = Span(NOW - 3 * 86400 * S, NOW + 1)
    return measure(
        Reader(client),
        read_slo_file(tmp_path / "slos.yaml"),
        span,
        [LEFT_OUT],
        ZoneInfo("Europe/Berlin"),
    )


def test_a_report_counts_events_firings_and_what_was_left_out(client: Any, tmp_path: Path) -> None:
    found = report(client, tmp_path)
    (slo,) = report_json(found)["slos"]
    assert (slo["good"], slo["total"], slo["sli"]) == (1, 5, 0.2)
    assert slo["budget_left_ratio"] == pytest.approx(float(1 - Fraction(4, 5) / Fraction(1, 100)))
    assert slo["firings"] == {"page": 1, "ticket": 1}
    assert slo["budget_spent_by_day"] == pytest.approx({"2026-11-18": 20.0, "2026-11-20": 80.0})
    assert [alert["ended"] for alert in slo["alerts"]] == [None, None]
    assert [c["by"] for c in slo["left_out"]] == ["ann"]
    text = report_markdown(found)
    assert "| 20.0000% | -7900.0% | 4 | 5 | 1 page, 1 ticket |" in text
    assert "Worst day: 2026-11-20, 3 of 4 bad, 75% of all bad events." in text
    assert "| maintenance | ann | <b>drained</b> |" in text
    assert "| still firing | page | queue: 1.60 s on average" in text


def test_an_alert_that_ended_after_the_period_has_its_end(client: Any, tmp_path: Path) -> None:
    changes = [
        ("a", "firing", NOW - 3 * DAY),
        ("a", "resolved", NOW - 3 * DAY + 3600 * S),
        ("b", "firing", NOW - DAY - 60 * S),
        ("b", "resolved", NOW - DAY + 60 * S),
        ("c", "firing", NOW - DAY - 30 * S),
        ("d", "firing", NOW - DAY + 30 * S),
        ("d", "resolved", NOW - DAY + 90 * S),
    ]
    client.insert(
        "alert_history",
        [
            [
                *(to_datetime(at_ns), alert, "chat", "page", state),
                to_datetime(at_ns) if state == "resolved" else None,
            ]
            for alert, state, at_ns in changes
        ],
        column_names=["time", "alert_id", "slo", "severity", "state", "ends_at"],
    )
    path = tmp_path / "slos.yaml"
    path.write_text(slo_text())
    span = Span(NOW - 4 * DAY, NOW - DAY)
    found = measure(Reader(client), read_slo_file(path), span)
    assert [firing.ended_ns for firing in found.results[0].firings] == [
        NOW - 3 * DAY + 3600 * S,
        NOW - DAY + 60 * S,
        None,
    ]


def test_an_slo_that_matches_nothing_reads_no_data(client: Any, tmp_path: Path) -> None:
    file = slo_file(tmp_path, slo_text(select="model: nobody"))
    span = Span(NOW - 86400 * S, NOW + 1)
    insert(client, {"end_ns": NOW - S} | SLOW)
    reader = Reader(client)
    found = measure(reader, file, span, [], ZoneInfo("UTC"))
    for text in (report_markdown(found), report_html(found)):
        assert "No data: no events matched." in text
    assert burned_text(reader, slo_parts(file.slos[0]), span, 5) == (  # type: ignore[arg-type]
        "no data: no requests matched"
    )


def test_a_page_holds_all_of_it_and_no_markup_of_others(client: Any, tmp_path: Path) -> None:
    page = report_html(report(client, tmp_path))
    assert page.startswith("<!doctype html>")
    assert '<td class="number over">-7900.0%</td>' in page
    assert "&lt;b&gt;drained&lt;/b&gt;" in page
    assert "<b>" not in page
    assert "2026-11-20: -7900.0% left" in page
    assert "http" not in page.replace("http://127.0.0.1", ""), "a page that needs nothing else"


def test_stored_requests_are_replayed_by_the_minute(client: Any, tmp_path: Path) -> None:
    """Five bad minutes in an hour of good ones: the page that the live code would have sent."""
    insert(
        client,
        *(
            {"end_ns": NOW - minute * MINUTE - S, "sample_weight": 10.0}
            | (SLOW if 20 <= minute < 25 else {})
            for minute in range(60)
        ),
    )
    (slo,) = slo_file(tmp_path, slo_text()).slos
    span = Span(NOW - 86400 * S, NOW)
    minutes = count_buckets(Reader(client), slo, span, MINUTE)
    now_minute = NOW // MINUTE
    assert len(minutes) == 60
    assert minutes[now_minute - 20] == Counts(10.0, 0.0)
    assert minutes[now_minute - 21] == Counts(10.0, 10.0)
    alerts = {a.severity.value: a for a in replay(slo, minutes).alerts}
    # With the third bad minute: 3 of 38 is above 6 times 1%, the 6 h pair's limit; 2 of 37 is not.
    assert alerts["page"].from_minute == now_minute - 23
    left = [Correction("c", "", NOW - 25 * MINUTE, NOW - 20 * MINUTE, "maintenance", "a", "", 0)]
    corrected = count_buckets(Reader(client), slo, span, MINUTE, left)
    assert len(corrected) == 55
    assert replay(slo, corrected).alerts == ()


def test_a_year_reads_only_the_days_that_have_requests(client: Any, tmp_path: Path) -> None:
    """One that began the evening before it ended counts as well."""
    midnight = (NOW - 200 * DAY) // DAY * DAY
    insert(
        client,
        {"end_ns": midnight + 60 * S, "e2e_s": 600.0} | SLOW,
        {"end_ns": NOW - 20 * DAY},
        {"end_ns": NOW - S},
    )
    (slo,) = slo_file(tmp_path, slo_text()).slos
    reader = CountingReader(client)
    found = count_buckets(reader, slo, Span(NOW - 365 * DAY, NOW), MINUTE)
    assert {bucket: counts.total for bucket, counts in found.items()} == {
        (midnight + 60 * S) // MINUTE: 1.0,
        (NOW - 20 * DAY) // MINUTE: 1.0,
        (NOW - S) // MINUTE: 1.0,
    }
    assert reader.num_reads < 10


class CountingReader(Reader):
    num_reads = 0

    def rows(
        self, query: Path, parameters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        self.num_reads += 1
        return super().rows(query, parameters)
