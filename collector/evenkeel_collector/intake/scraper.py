"""Reads Prometheus endpoints, such as that of a vLLM without our hooks, into `engine_state`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import httpx

from evenkeel.errors import first_line
from evenkeel.http_address import check_http_address
from evenkeel_collector.intake.intake import Intake
from evenkeel_collector.intake.metric_points import GAUGE, Point, encode_points
from evenkeel_collector.intake.otlp_body import CheckedBody
from evenkeel_collector.intake.prometheus_text import read_page
from evenkeel_collector.log.write_ahead_log import LogFullError, LogWriteError

logger = logging.getLogger(__name__)

TRANSPORT = "scrape"
MAX_PAGE_BYTES = 20 << 20
MAX_TIMEOUT_S = 10.0
# Recorded for every endpoint at every scrape, as Prometheus does: 1 if it answered, else 0.
UP = "up"


@dataclass(frozen=True, slots=True)
class ScrapeTarget:
    """An endpoint to scrape.

    Attributes:
        url: Without a password: httpx puts the URL into log lines and errors.
        instance: Its host and port, as in Prometheus.
        service: The service that its points are stored under.
        login: User and password; None if the address has none.
    """

    url: str
    instance: str
    service: str
    login: tuple[str, str] | None = field(default=None, repr=False)


def read_targets(urls: Sequence[str], service: str) -> list[ScrapeTarget]:
    """Return the endpoints to scrape; an address without a path means `/metrics`.

    Raises:
        ConfigurationError: If one is not an http(s) address.
    """
    targets = []
    for url in urls:
        check_http_address("--scrape", url, "http://127.0.0.1:8000/metrics")
        parts = urlsplit(url)
        path = parts.path if parts.path not in ("", "/") else "/metrics"
        host = parts.netloc.rpartition("@")[2]
        login = None
        if parts.username is not None:
            login = unquote(parts.username), unquote(parts.password or "")
        address = parts._replace(netloc=host, path=path).geturl()
        targets.append(ScrapeTarget(address, host, service, login))
    return targets


class Scraper:
    """Scrapes each target at an interval, in one task per target.

    Args:
        targets: The endpoints.
        interval_s: Time between two scrapes.
        intake: Takes the points, through the log like everything else.
        transport: Connects to the targets; None for the network.
    """

    def __init__(
        self,
        targets: list[ScrapeTarget],
        interval_s: float,
        intake: Intake,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._interval_s = interval_s
        self._intake = intake
        self._client = httpx.AsyncClient(
            timeout=min(interval_s, MAX_TIMEOUT_S),
            follow_redirects=False,
            trust_env=False,
            transport=transport,
        )
        self._tasks = [asyncio.create_task(self._run(target)) for target in targets]

    async def close(self) -> None:
        """Stop scraping."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self._client.aclose()

    async def _run(self, target: ScrapeTarget) -> None:
        was_up = True
        while True:
            begin_s = time.monotonic()
            is_up = await self._scrape(target, was_up)
            if is_up and not was_up:
                logger.info("scraping again target=%s", target.instance)
            was_up = is_up
            await asyncio.sleep(max(self._interval_s - (time.monotonic() - begin_s), 0.0))

    async def _scrape(self, target: ScrapeTarget, was_up: bool) -> bool:
        time_ns = time.time_ns()
        is_up = True
        try:
            text = await self._read(target)
            body = await asyncio.to_thread(self._read_body, text, time_ns, target)
        except Exception as error:
            # Whatever a page does to the parser must not end the scraping of its target.
            is_up = False
            body = _body(target, [Point(UP, time_ns, GAUGE, value=0.0)])
            if was_up:
                logger.warning(
                    "cannot scrape target=%s error=%s", target.instance, first_line(error)
                )
        result = "ok" if is_up else "failed"
        try:
            await self._intake.accept(body, TRANSPORT)
        except (LogFullError, LogWriteError) as error:
            # A scrape that does not fit is dropped; the next one supersedes it.
            self._intake.count_rejected(TRANSPORT, error)
            result = "dropped"
        self._intake.metrics.scrapes.labels(target.instance, result).inc()
        return is_up

    def _read_body(self, text: str, time_ns: int, target: ScrapeTarget) -> CheckedBody:
        points = self._intake.pipeline.redact_points(read_page(text, time_ns))
        return _body(target, [*points, Point(UP, time_ns, GAUGE, value=1.0)])

    async def _read(self, target: ScrapeTarget) -> str:
        chunks: list[bytes] = []
        size = 0
        async with self._client.stream(
            "GET", target.url, headers={"accept": "text/plain"}, auth=target.login
        ) as answer:
            answer.raise_for_status()
            async for chunk in answer.aiter_bytes():
                size += len(chunk)
                if size > MAX_PAGE_BYTES:
                    raise ValueError(f"the page is larger than {MAX_PAGE_BYTES} bytes")
                chunks.append(chunk)
        return b"".join(chunks).decode("utf-8", errors="replace")


def _body(target: ScrapeTarget, points: list[Point]) -> CheckedBody:
    resource = {"service.name": target.service, "service.instance.id": target.instance}
    return CheckedBody(encode_points([(resource, points)]), num_points=len(points))
