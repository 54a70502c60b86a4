"""The demo's report waits for the last requests."""

from datetime import UTC, datetime
from typing import Any

import pytest

from evenkeel_demo import report


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        pytest.param([10, 11], 10, id="all are there at once"),
        pytest.param([4, 9, 10, 11], 10, id="the last ones come late"),
        pytest.param([4, 9, 9, 10], 9, id="some never come"),
    ],
)
def test_the_report_is_read_once_no_more_requests_arrive(
    monkeypatch: pytest.MonkeyPatch, stored: list[int], expected: int
) -> None:
    class Growing:
        counts = iter(stored)

        def rows(self, *_: object) -> list[dict[str, Any]]:
            return [{"requests": next(self.counts), "ttft_s": None, "itl_s": None}]

    monkeypatch.setattr(report, "SETTLE_S", 0.0)
    growing: Any = Growing()
    figures = report.measure_settled(growing, datetime.now(UTC), num_sent=10)
    assert figures["requests"] == expected
