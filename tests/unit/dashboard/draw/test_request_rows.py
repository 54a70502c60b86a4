"""Table rows of requests and alerts."""

from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

from evenkeel_dashboard.draw.appearance import LIGHT
from evenkeel_dashboard.draw.request_rows import (
    alert_cells,
    alert_headers,
    end_cell,
    example_ids,
    request_cells,
    short_id,
)
from evenkeel_dashboard.draw.zones import use_zone

MINUTE_MS = 60_000


def row(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = dict.fromkeys(
        (
            "queue_s", "prefill_s", "decode_s", "ttft_s", "e2e_s", "input_tokens", "cached_tokens",
            "output_tokens", "tenant", "prompt_name", "prompt_version", "error_type",
            "finish_reason",
        )
    )  # fmt: skip
    return values | {"request_id": "r-1", "time_ms": 0, "model": "m", "status": "ok"} | changes


def test_a_request_leads_to_its_page_and_keeps_the_view() -> None:
    cells = request_cells([row(time_ms=5)], {"range": "6h"}, LIGHT)[0]
    assert cells[0].href == "./request?request_id=r-1&at=5&range=6h"


def test_what_a_request_lacks_is_said() -> None:
    cells = [cell.text or cell.html for cell in request_cells([row()], {}, LIGHT)[0]]
    assert cells[2:8] == ["no data"] * 6


def test_an_end_has_its_reason_once() -> None:
    assert end_cell(row(finish_reason="stop")).text == "ok: stop"
    assert end_cell(row(status="error", error_type="engine_error")).text == "error: engine_error"
    assert end_cell(row(status="shed")).text == "shed"
    assert end_cell(row(status="aborted", finish_reason="abort")).level == "warning"


def test_a_firing_alert_lasts_until_now_and_names_bad_requests() -> None:
    alert: dict[str, Any] = {
        "state": "firing",
        "slo": "s",
        "severity": "page",
        "was_silenced": False,
        "started_ms": 0,
        "fired_ms": MINUTE_MS,
        "ended_ms": None,
        "burn_long": 22.4,
        "annotations": {"summary": "burns", "exemplars": "<r1> (ok 1.69 s)\n\nr2 (error)"},
    }
    cells = alert_cells(alert, 11 * MINUTE_MS, {"range": "6h"})
    assert cells[4].text == "10 min"
    assert cells[6].text == "burns"
    assert "<r1>" not in cells[8].html
    assert './request?request_id=r2&amp;range=6h"' in cells[8].html
    quiet = alert_cells(alert | {"annotations": {}, "was_silenced": True}, 0, {})
    assert "firing (silenced)" in quiet[0].html
    assert quiet[8].html == "–"


def test_a_resolved_alert_is_of_the_past() -> None:
    alert: dict[str, Any] = {
        "state": "resolved", "slo": "s", "severity": "page", "was_silenced": False, "started_ms": 0,
        "fired_ms": MINUTE_MS, "ended_ms": 2 * MINUTE_MS, "burn_long": 20.3,
        "annotations": {"summary": "Chat: the error budget burns 20.3 times too fast"},
    }  # fmt: skip
    said = alert_cells(alert, 0, {})[6].text
    assert said == "Chat: the error budget burned 20.3 times too fast"
    firing = alert_cells(alert | {"state": "firing"}, 0, {})[6].text
    assert firing == "Chat: the error budget burns 20.3 times too fast"


def test_the_header_of_the_time_of_firing_names_the_zone() -> None:
    use_zone(ZoneInfo("Asia/Kolkata"))
    try:
        assert alert_headers()[3] == "fired (IST)"
    finally:
        use_zone(UTC)


def test_ids_of_exemplars_are_first_words() -> None:
    assert example_ids("a (1)\nb (2)\n") == ["a", "b"]
    assert example_ids("") == []
    odd = "my request (2) (ok 2.31 s, prompt of 7 tokens) http://h/request?trace_id=a&at=1"
    assert example_ids(f"{odd}\nplain\n") == ["my request (2)", "plain"]


def test_a_long_id_shows_its_end() -> None:
    assert short_id("chatcmpl-0123456789abcdef") == "…456789abcdef"


def test_an_answer_from_the_cache_misses_nothing() -> None:
    nothing = dict.fromkeys(("queue_s", "prefill_s", "decode_s", "cached_tokens", "output_tokens"))
    seen = {"ttft_s": 0.005, "e2e_s": 0.006, "input_tokens": 720}
    hit = row(**nothing, **seen, response_cache="exact")
    cells = [cell.text or cell.html for cell in request_cells([hit], {}, LIGHT)[0]]
    assert "answered from the cache" in cells and "no data" not in cells
