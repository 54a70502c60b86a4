"""Scraping goes on, whatever a page holds."""

import asyncio
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from evenkeel_collector.intake.metric_points import _PointSegment
from evenkeel_collector.intake.otlp_body import CheckedBody
from evenkeel_collector.intake.scraper import Scraper, read_targets
from evenkeel_collector.telemetry.metrics import SelfMetrics


def points_in(body: CheckedBody) -> dict[str, float]:
    (group,) = _PointSegment.FromString(body.payload).metric_groups
    return {point.name: point.value for point in group.points}


@pytest.mark.parametrize(
    "page",
    [
        pytest.param('{"m", ="b"} 1\n', id="labels that the parser fails on"),
        pytest.param(f"x {'9' * 400}\n", id="a number that is no float"),
        pytest.param("<html>", id="another format"),
    ],
)
async def test_an_odd_page_is_a_failed_scrape_and_the_next_one_is_read(page: str) -> None:
    pages = iter([page])
    taken: list[dict[str, float]] = []
    is_read_again = asyncio.Event()

    async def accept(body: CheckedBody, transport: str) -> None:
        taken.append(points_in(body))
        if len(taken) == 2:
            is_read_again.set()

    intake: Any = SimpleNamespace(
        accept=accept, metrics=SelfMetrics(), pipeline=SimpleNamespace(redact_points=list)
    )
    answers = httpx.MockTransport(lambda request: httpx.Response(200, text=next(pages, "x 1\n")))
    scraper = Scraper(read_targets(["http://engine"], "vllm"), 0.01, intake, answers)
    try:
        await asyncio.wait_for(is_read_again.wait(), 120)
    finally:
        await scraper.close()
    assert taken[:2] == [{"up": 0.0}, {"x": 1.0, "up": 1.0}]
