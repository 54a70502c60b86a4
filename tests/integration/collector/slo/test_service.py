"""Evaluation and delivery as they run beside the collector."""

import asyncio
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from evenkeel.errors import ConfigurationError
from evenkeel.prompts.freeze import read_freezes
from evenkeel_collector.alerts.book import FILE_NAME, AlertBook
from evenkeel_collector.alerts.state import State
from evenkeel_collector.delivery.worker import DeliveryPolicy
from evenkeel_collector.slo import service as slo_service
from evenkeel_collector.slo.context import CollectorContext
from evenkeel_collector.store.storage import Storage
from tests.fixtures.alert_receiver import Answer, serve_alerts
from tests.fixtures.slo_requests import ALERTING, SLOW, insert, slo_text

# A receiver that answers is in time on any machine.
QUICK = DeliveryPolicy(timeout_s=60.0, unit_s=0.01, poll_s=0.02)
# One that never answers costs a test this long, and the others of that test have as long.
GIVES_UP = replace(QUICK, timeout_s=15.0)


def context(storage: Storage, tmp_path: Path, text: str, url: str) -> CollectorContext:
    path = tmp_path / "slos.yaml"
    path.write_text(ALERTING.format(url=url) + text)
    return CollectorContext(
        storage.connect, tmp_path, path, "http://127.0.0.1:8501", CollectorRegistry()
    )


def statuses(severity: str) -> Callable[[list[Any]], list[str]]:
    def select(received: list[Any]) -> list[str]:
        # Late evidence is the same notification again, under its id.
        told = {
            r.notification_id: r.body["status"]
            for r in received
            if r.body["commonLabels"]["severity"] == severity
        }
        return list(told.values())

    return select


def is_explained(received: list[Any]) -> bool:
    """Whether a page and a ticket came, each with its evidence at last."""
    last = {r.notification_id: r.body for r in received}
    have_evidence = {
        body["commonLabels"]["severity"]
        for body in last.values()
        if "bad_requests" in body["alerts"][0]["annotations"]
    }
    return have_evidence == {"page", "ticket"}


def severities(received: list[Any]) -> set[str]:
    return {each.body["commonLabels"]["severity"] for each in received}


def ids(received: list[Any]) -> set[str]:
    return {each.notification_id for each in received}


async def test_the_service_tells_a_flaky_receiver_of_a_breach_and_its_end(
    storage: Storage, client: Any, tmp_path: Path
) -> None:
    """In real time: bad requests, the page, good ones, the resolve; every retry under its id."""
    page = statuses("page")
    never = threading.Event()
    with serve_alerts([Answer(500), Answer(500, held=never), Answer(503)]) as receiver:
        service = slo_service.start(context(storage, tmp_path, slo_text(), receiver.url), GIVES_UP)
        try:
            # The shortest window is one second, and a cycle may take longer.
            give_up_s = time.monotonic() + 120
            while severities(receiver.received) != {"page", "ticket"}:
                assert time.monotonic() < give_up_s
                insert(client, *({"end_ns": time.time_ns()} | SLOW for _ in range(20)))
                await asyncio.sleep(0.4)
            receiver.wait_for(lambda got: page(got) == ["firing"])
            # The end of an alert ends the search for its evidence.
            receiver.wait_for(is_explained)
            # Good ones keep coming: silence alone would not end the alert.
            give_up_s = time.monotonic() + 120
            while page(receiver.accepted()) != ["firing", "resolved"]:
                assert time.monotonic() < give_up_s
                insert(client, *({"end_ns": time.time_ns()} for _ in range(20)))
                await asyncio.sleep(0.4)
            # The ticket may be the one whose answer was held.
            receiver.wait_for(lambda got: ids(got) == ids(receiver.received))
        finally:
            never.set()
            await service.close()
    by_id: dict[str, set[str]] = {}
    for received in receiver.received:
        by_id.setdefault(received.notification_id, set()).add(received.body["status"])
    assert all(len(states) == 1 for states in by_id.values())
    updates = len(receiver.accepted()) - len(by_id)
    assert updates <= sum(states == {"firing"} for states in by_id.values())
    assert len(receiver.received) == len(receiver.accepted()) + 3
    last = {received.notification_id: received.body for received in receiver.accepted()}
    firing = [body["alerts"][0] for body in last.values() if body["status"] == "firing"]
    assert all("bad_requests" in alert["annotations"] for alert in firing)


async def test_a_spent_budget_freezes_promotions_whatever_the_folder_is_like(
    storage: Storage, client: Any, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts"
    policy = "  budgetPolicy: [{spent: 1, freeze: prompts}]\n"
    there = context(storage, tmp_path, slo_text() + policy, "http://127.0.0.1:9/")
    # A file where the folder should be: nothing can be frozen, and all else goes on.
    prompts.write_text("")
    service = slo_service.start(replace(there, prompts_dir=prompts), QUICK)
    cycles = "evenkeel_slo_evaluation_seconds_count"
    try:
        insert(client, *({"end_ns": time.time_ns()} | SLOW for _ in range(20)))
        before = _value(there.metrics, cycles)
        await _until(lambda: _value(there.metrics, cycles) > before + 2)
        assert service.why_not() is None
        assert _value(there.metrics, "evenkeel_slo_evaluation_failures_total") == 0
        prompts.unlink()
        prompts.mkdir()
        (prompts / "frozen.json").write_text("{damaged")
        await _until(lambda: "chat" in (prompts / "frozen.json").read_text())
    finally:
        await service.close()
    assert [freeze.slo for freeze in read_freezes(prompts)] == ["chat"]


async def test_a_wrong_file_is_refused_at_the_start_and_ignored_later(
    storage: Storage, tmp_path: Path
) -> None:
    there = context(storage, tmp_path, "kind: nonsense\n", "http://127.0.0.1:9/")
    with pytest.raises(ConfigurationError, match=r"slos\.yaml"):
        slo_service.start(there, QUICK)

    registry = CollectorRegistry()
    good = context(storage, tmp_path, slo_text(), "http://127.0.0.1:9/")
    running = CollectorContext(good.connect, tmp_path, good.slo_file, None, registry)
    service = slo_service.start(running, QUICK)
    try:
        # No reader sees a part of it, which would be another version.
        (tmp_path / "draft").write_text("kind: nonsense\n")
        (tmp_path / "draft").rename(tmp_path / "slos.yaml")
        await _until(lambda: _value(registry, "evenkeel_slo_file_rejections_total") == 1.0)
        before = _value(registry, "evenkeel_slo_evaluation_seconds_count")
        await _until(lambda: _value(registry, "evenkeel_slo_evaluation_seconds_count") > before + 1)
        assert _value(registry, "evenkeel_slo_file_rejections_total") == 1.0, "once a version"
    finally:
        await service.close()


async def test_each_evaluation_sees_what_the_log_held_before_it(
    storage: Storage, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Bad requests that are in the store only because an evaluation asked for them."""
    caplog.set_level("INFO")

    def make_visible() -> None:
        client = storage.connect()
        insert(client, *({"end_ns": time.time_ns()} | SLOW for _ in range(20)))
        client.close()

    with serve_alerts([]) as receiver:
        there = context(storage, tmp_path, slo_text(), receiver.url)
        service = slo_service.start(replace(there, make_visible=make_visible), QUICK)
        try:
            receiver.wait_for(lambda got: statuses("page")(got) == ["firing"])
        finally:
            await service.close()
    assert "slo evaluation started" in caplog.text and "no receivers" not in caplog.text


@pytest.mark.parametrize("is_usable", [True, False], ids=["usual", "a book that is no database"])
async def test_without_a_file_the_default_rules_are_in_force(
    storage: Storage, tmp_path: Path, caplog: pytest.LogCaptureFixture, is_usable: bool
) -> None:
    caplog.set_level("INFO")
    if not is_usable:
        (tmp_path / FILE_NAME).write_text("not a database" * 100)
    row = {
        "name": "evenkeel_runtime_stalled_requests",
        "kind": "gauge",
        "service": "vllm",
        "instance": "a:1",
        "attributes": {"model": "m", "waits_for": "next_token"},
        "value": 1.0,
    }
    used: list[object] = []
    there = CollectorContext(
        storage.connect, tmp_path, None, None, CollectorRegistry(), use_slos=used.append,
        has_own_store=True,
    )  # fmt: skip
    client = storage.connect()
    # The rule looks back 30 s, and the first evaluation may come late.
    now = datetime.now(UTC)
    rows = [[now + timedelta(seconds=after_s), *row.values()] for after_s in range(120)]
    client.insert("engine_state", rows, column_names=["time", *row])
    client.close()
    service = slo_service.start(there, QUICK)
    try:
        if not is_usable:
            assert caplog.text.count("alerts are not evaluated, retrying") == 1
            (tmp_path / FILE_NAME).unlink()
        await _until(lambda: _alerts(tmp_path) == ["stalled-requests/a:1,m"])
    finally:
        await service.close()
    # The rollups go on counting what they counted.
    assert used == []
    assert caplog.text.count("no receivers: alerts notify nobody") == 1


async def test_a_start_without_the_file_leaves_what_the_file_began(
    storage: Storage, client: Any, tmp_path: Path
) -> None:
    (tmp_path / "prompts").mkdir()
    policy = "  budgetPolicy: [{spent: 1, freeze: prompts}]\n"
    # Nobody listens there, and the next attempt is hours away.
    with_file = context(storage, tmp_path, slo_text() + policy, "http://127.0.0.1:9/")
    with_file = replace(with_file, prompts_dir=tmp_path / "prompts", has_own_store=True)

    def begun() -> tuple[object, ...]:
        with AlertBook(tmp_path / FILE_NAME, create=False) as book:
            firing = {(a.slo, a.severity) for a in book.alerts() if a.life.state is State.FIRING}
            freezes = [freeze.slo for freeze in read_freezes(tmp_path / "prompts")]
            return firing, book.count_by_state(), freezes

    service = slo_service.start(with_file, replace(QUICK, unit_s=10_000.0))
    try:
        give_up_s = time.monotonic() + 120
        while begun()[0] != {("chat", "page"), ("chat", "ticket")} or not begun()[2]:
            assert time.monotonic() < give_up_s
            insert(client, *({"end_ns": time.time_ns()} | SLOW for _ in range(20)))
            await asyncio.sleep(0.4)
    finally:
        await service.close()
    before = begun()
    assert before[1] == {"waiting": 2, "delivered": 0, "dead": 0}

    registry = CollectorRegistry()
    service = slo_service.start(replace(with_file, slo_file=None, metrics=registry), QUICK)
    try:
        await _until(lambda: _value(registry, "evenkeel_slo_evaluation_seconds_count") > 0)
        await asyncio.sleep(10 * QUICK.poll_s)
    finally:
        await service.close()
    assert begun() == before


async def test_without_a_file_a_store_that_others_may_evaluate_is_left_to_them(
    storage: Storage, tmp_path: Path
) -> None:
    service = slo_service.start(
        CollectorContext(storage.connect, tmp_path, None, None, CollectorRegistry()), QUICK
    )
    await service.close()
    assert list(tmp_path.iterdir()) == []


async def test_a_store_that_hangs_is_said_by_the_watch_and_over_when_it_answers(
    storage: Storage, tmp_path: Path
) -> None:
    hangs, released = threading.Event(), threading.Event()

    def make_visible() -> None:
        if hangs.is_set():
            released.wait(120)

    def stalled(received: list[Any]) -> list[str]:
        return [
            r.body["status"]
            for r in received
            if r.body["commonLabels"]["alertname"] == "SloEvaluationStalled"
        ]

    with serve_alerts([]) as receiver:
        there = context(storage, tmp_path, slo_text(), receiver.url)
        service = slo_service.start(replace(there, make_visible=make_visible), QUICK)
        try:
            await _until(lambda: _value(there.metrics, "evenkeel_slo_evaluation_seconds_count") > 0)
            hangs.set()
            await _until(lambda: service.why_not() is not None)
            receiver.wait_for(lambda got: stalled(got) == ["firing"])
            hangs.clear()
            released.set()
            receiver.wait_for(lambda got: stalled(got) == ["firing", "resolved"])
            assert service.why_not() is None
        finally:
            released.set()
            await service.close()


def _alerts(folder: Path) -> list[str]:
    if not (folder / FILE_NAME).exists():
        return []
    with AlertBook(folder / FILE_NAME, create=False) as book:
        return [alert.slo for alert in book.alerts()]


def _value(registry: CollectorRegistry, name: str) -> float:
    return registry.get_sample_value(name) or 0.0


async def _until(is_met: Callable[[], bool], timeout_s: float = 120.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not is_met():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
