"""What the threads that gather evidence log while the alert book refuses writes."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from evenkeel_collector.alerts.book import AlertBook
from evenkeel_collector.alerts.evidence_requests import EvidenceQueue
from evenkeel_collector.slo import gathering

FULL = OperationalError("", {}, Exception("database or disk is full"))


class Polls:
    """Stops a thread after this many passes; waits between retries take no time."""

    def __init__(self, num: int) -> None:
        self._num = num

    def wait(self, timeout_s: float) -> bool:
        if timeout_s == gathering._POLL_S:
            self._num -= 1
        return self._num < 0


def test_each_series_of_refused_updates_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    passes: Iterator[Any] = iter([FULL, FULL, 0, FULL, FULL, FULL])

    def update_receivers(*_: object) -> int:
        found = next(passes)
        if isinstance(found, Exception):
            raise found
        return int(found)

    # No alert awaits evidence, so nothing is written between two failures.
    book = SimpleNamespace(update_receivers=update_receivers, awaited=dict)
    monkeypatch.setattr(gathering, "EvidenceBook", lambda _: book)
    nothing: Any = None
    stop: Any = Polls(6)
    gatherer = gathering.Gatherer(nothing, Path(), nothing, dict, stop)
    gatherer._follow(nothing)
    logged = [record.message for record in caplog.records]
    assert len(logged) == 2
    assert all(line.startswith("late evidence cannot be written") for line in logged)


def test_the_log_says_why_no_evidence_could_be_gathered(
    book: AlertBook, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    queue = EvidenceQueue(time.monotonic)
    queue.request("a1", "page", lambda store: {})

    def connect() -> Any:
        stop.set()
        raise OSError("no route to the store")

    gathering.Gatherer(connect, tmp_path, queue, dict, stop)._gather(book)
    assert "evidence cannot be gathered alert=a1" in caplog.text
    assert "no route to the store" in caplog.text
