"""The request page's table of events and logs."""

from typing import Any

import pytest

from evenkeel_dashboard.pages.request.logs import HEADERS, MAX_ATTRIBUTES, log_cells

ARRIVAL_NS = 1_795_168_800 * 10**9


def record(**changes: Any) -> dict[str, Any]:
    return {
        "time_ns": ARRIVAL_NS + 250_000_000, "severity": "INFO", "severity_number": 9,
        "service": "shop", "event": "", "body": "only 3 left", "attributes": {}, "span": "work",
        **changes,
    }  # fmt: skip


def test_a_line_says_when_it_was_written_and_in_which_span() -> None:
    (cells,) = log_cells([record()], ARRIVAL_NS)
    assert len(cells) == len(HEADERS)
    assert [cell.text for cell in cells] == ["+250 ms", "INFO", "–", "only 3 left", "work", "shop"]
    assert cells[0].sorts_as == 0.25


@pytest.mark.parametrize(("number", "level"), [(0, ""), (9, ""), (13, "warning"), (17, "bad")])
def test_severe_lines_stand_out(number: int, level: str) -> None:
    (cells,) = log_cells([record(severity_number=number)], ARRIVAL_NS)
    assert cells[1].level == level


@pytest.mark.parametrize("body", ["", "claude_code.api_request"])
def test_an_event_whose_text_is_only_its_name_shows_its_attributes(body: str) -> None:
    attributes = {"event.name": "api_request", "model": "m", "duration_ms": "12"}
    (cells,) = log_cells(
        [record(body=body, event="api_request", attributes=attributes, severity="", span="")],
        ARRIVAL_NS,
    )
    assert [cell.text for cell in cells[1:5]] == [
        "–", "api_request", "model=m, duration_ms=12", "–",
    ]  # fmt: skip


def test_many_attributes_are_cut() -> None:
    attributes = {f"a{number}": "x" * 100 for number in range(MAX_ATTRIBUTES + 2)}
    (cells,) = log_cells([record(body="", attributes=attributes)], ARRIVAL_NS)
    assert cells[3].text.endswith(" and 2 more")
    assert "x" * 61 not in cells[3].text
