"""Months, in whose time zone they are, and what their corrections are."""

from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_collector.commands.slo_correct import read_corrections
from evenkeel_collector.commands.slo_report import month_span

UTC, BERLIN = ZoneInfo("UTC"), ZoneInfo("Europe/Berlin")


def ns(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp()) * 10**9


NOW = ns("2026-11-20T10:00+00:00")


@pytest.mark.parametrize(
    ("text", "zone", "begin", "end"),
    [
        pytest.param("2026-02", UTC, "2026-02-01T00:00Z", "2026-03-01T00:00Z", id="a month"),
        pytest.param(
            "2025-12", BERLIN, "2025-12-01T00:00+01:00", "2026-01-01T00:00+01:00", id="December"
        ),
        pytest.param(
            "last", BERLIN, "2026-10-01T00:00+02:00", "2026-11-01T00:00+01:00", id="an hour more"
        ),
        pytest.param("2026-11", UTC, "2026-11-01T00:00Z", "2026-11-20T10:00Z", id="up to now"),
    ],
)
def test_which_span_a_month_is(text: str, zone: ZoneInfo, begin: str, end: str) -> None:
    span = month_span(text, zone, NOW)
    assert (span.from_ns, span.to_ns) == (ns(begin), ns(end))


@pytest.mark.parametrize("text", ["2026-13", "October", "2026-12", ""])
def test_what_is_no_month(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--month is"):
        month_span(text, UTC, NOW)


def test_in_january_the_last_month_is_december() -> None:
    span = month_span("last", UTC, ns("2026-01-05T00:00Z"))
    assert (span.from_ns, span.to_ns) == (ns("2025-12-01T00:00Z"), ns("2026-01-01T00:00Z"))


def test_a_folder_without_corrections_is_refused_if_it_was_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_corrections(None) == ()
    with pytest.raises(ConfigurationError, match=r"alerts\.db does not exist; give the --data-dir"):
        read_corrections(tmp_path)
