"""Runs the demo: starts the parts, sends traffic, shows progress and prints the report."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.http_address import with_port
from evenkeel.outside_text import drawn_on
from evenkeel.private_files import FOLDER_MODE, make_private_folder
from evenkeel.processes import Part, Platform, refuse_taken_ports
from evenkeel.secret_text import hide_password
from evenkeel.store import Store
from evenkeel_demo import parts, report
from evenkeel_demo.comparison import EvalProcess
from evenkeel_demo.parts import DemoLocation, Endpoints, Ports
from evenkeel_demo.questions import read_popular, read_questions
from evenkeel_demo.receiver import ReceivedAlert, WebhookReceiver
from evenkeel_demo.screen import Frame, Screen
from evenkeel_demo.story import DEFAULT_LENGTH_S, Story
from evenkeel_demo.traffic import DemoPhase, Rates, Traffic

# Names in the data folder, and a file only a collector's folder has.
LOGS = "logs"
COLLECTOR_ID = "collector/collector-id"
FEEDBACK_PATH = "/v1/feedback"
DEFAULT_RECEIVER_PORT = 9095
START_TIMEOUT_S = 300.0
# How long the demo runs over for an unfinished A/B run or an unresolved alert: a slow machine needs
# longer for both.
GRACE_S = 300.0


@dataclass(frozen=True, slots=True)
class Options:
    """The command's options.

    Attributes:
        host: Address to bind.
        port_offset: Added to the five ports.
        exit_after_s: None means until Ctrl-C.
        has_dashboard: Whether to start the dashboard.
        is_json: Whether to print the report as JSON.
        data_dir: Where to keep the data; None for a new folder.
        running: Where the parts answer, if they are already running.
        receiver_url: Where the collector reaches the demo's webhook receiver, if not on loopback.
    """

    host: str
    port_offset: int
    exit_after_s: float | None
    has_dashboard: bool
    is_json: bool
    data_dir: Path | None
    running: Endpoints | None = None
    receiver_url: str | None = None


def perform(options: Options) -> int:
    """Run the demo to completion and return the exit code.

    Raises:
        ConfigurationError: If a port is taken, a folder is not writable or a part is missing.
        CannotMeasureError: If a part ended, or nothing was stored.
    """
    place = _locate(options)
    screen = Screen(drawn_on(sys.stderr))
    receiver = _open_receiver(options.receiver_url)
    try:
        with _signals_as_interrupt(), Platform(place.data_dir / LOGS) as platform:
            screen.say(f"data and logs: {place.data_dir}")
            _start(platform, place, receiver, options, screen)
            stage = _Stage(options, place, platform, receiver, screen)
            try:
                asyncio.run(stage.play())
            except KeyboardInterrupt:
                screen.say("stopping")
            figures = stage.report()
    except KeyboardInterrupt:
        return 130
    finally:
        receiver.close()
    if options.is_json:
        print(json.dumps(figures, indent=2))
    else:
        screen.show_report(figures)
    return 0


def write_files(options: Options) -> None:
    """Write the parts' configuration files to the data folder, for parts that start without us.

    Raises:
        ConfigurationError: If the folder is not writable.
    """
    receiver_url = (
        options.receiver_url or f"http://{with_port(options.host, DEFAULT_RECEIVER_PORT)}/"
    )
    data_dir = _make_data_dir(options.data_dir, is_shared=True, is_new=True)
    parts.write_files(data_dir, receiver_url)


def _locate(options: Options) -> DemoLocation:
    ports = Ports(options.port_offset)
    endpoints = options.running
    if endpoints is None:
        refuse_taken_ports(ports.as_dict(), options.host)
        endpoints = Endpoints.on(options.host, ports)
    data_dir = _make_data_dir(options.data_dir, is_shared=options.running is not None)
    return DemoLocation(options.host, ports, data_dir, endpoints)


def port_of(url: str) -> int:
    """Return the port that a sender connects to, the scheme's own if the address has none."""
    parts_of_url = urlsplit(url)
    return parts_of_url.port or (443 if parts_of_url.scheme == "https" else 80)


def _open_receiver(url: str | None) -> WebhookReceiver:
    if url is None:
        return WebhookReceiver()
    port = port_of(url)
    try:
        return WebhookReceiver("0.0.0.0", port)
    except OSError as error:
        raise ConfigurationError(
            f"port {port} for the webhook receiver is not free ({error.strerror}); choose another "
            "one with --receiver-url"
        ) from error


def _start(
    platform: Platform,
    place: DemoLocation,
    receiver: WebhookReceiver,
    options: Options,
    screen: Screen,
) -> None:
    if options.running is not None:
        _refuse_absent_parts(place.endpoints)
        parts.write_control_file(place.data_dir, "dry-run")
        platform.start(parts.live_evaluation(place))
        screen.say(f"dashboard: {place.endpoints.dashboard}")
        return
    slo_file = parts.write_files(place.data_dir, receiver.url)
    collector = parts.collector(place, slo_file)
    started: list[Part] = [collector, parts.runtime(place)]
    if options.has_dashboard:
        started.append(parts.dashboard(place, slo_file))
    for part in started:
        platform.start(part)
    for part in started:
        began_s = time.monotonic()
        screen.say(f"starting the {part.name} …")
        platform.wait_ready(part, START_TIMEOUT_S)
        screen.say(f"{part.name} ready after {time.monotonic() - began_s:.0f} s")
    platform.start(parts.live_evaluation(place))
    if options.has_dashboard:
        screen.say(f"dashboard: {place.endpoints.dashboard}")


def _refuse_absent_parts(endpoints: Endpoints) -> None:
    for name, url in (
        ("runtime", endpoints.runtime + "/health"),
        ("collector", endpoints.collector + "/readyz"),
    ):
        try:
            status: object = httpx.get(url, timeout=10).status_code
        except httpx.TransportError as error:
            status = error
        if status != httpx.codes.OK:
            raise CannotMeasureError(
                f"the {name} is not ready: {hide_password(url)} answered {status}; "
                "start it before the demo"
            )


class _Stage:
    """The demo after its parts are ready: traffic, screen, A/B run and report."""

    def __init__(
        self,
        options: Options,
        place: DemoLocation,
        platform: Platform,
        receiver: WebhookReceiver,
        screen: Screen,
    ) -> None:
        self.options, self.place, self.platform = options, place, platform
        self.receiver, self.screen = receiver, screen
        dataset = parts.dataset_dir()
        self.story = Story(options.exit_after_s or DEFAULT_LENGTH_S)
        self.traffic = Traffic(
            place.endpoints.runtime,
            place.endpoints.collector + FEEDBACK_PATH,
            parts.system_prompt(dataset / "sides" / "full.toml"),
            read_questions(dataset / "support.jsonl"),
            read_popular(),
            place.endpoints.collector,
        )
        self.comparison = EvalProcess(place, dataset)
        self.since = datetime.now(UTC)
        self.began_s = time.monotonic()
        self._control_acts = False
        self._told: tuple[ReceivedAlert, ...] = ()

    def elapsed_s(self) -> float:
        return time.monotonic() - self.began_s

    async def play(self) -> None:
        await self.traffic.warm_up()
        self.since, self.began_s = datetime.now(UTC), time.monotonic()
        traffic = asyncio.create_task(self.traffic.run(self._rates))
        try:
            with self.screen:
                while not self._is_over():
                    await asyncio.sleep(0.5)
                    self._refuse_ended_parts(traffic)
                    if self.story.is_comparing(self.elapsed_s()):
                        await self.comparison.advance()
                    self.screen.draw(self._frame())
        finally:
            # What stopping causes is not part of the story.
            self._told = tuple(self.receiver.notifications)
            traffic.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await traffic
            await self.comparison.close()

    def _rates(self) -> tuple[DemoPhase, Rates]:
        self.story.advance(self.elapsed_s(), self.traffic.counters)
        act = self.story.act
        if act.control_acts is not self._control_acts:
            self._control_acts = act.control_acts
            mode = "act" if act.control_acts else "dry-run"
            parts.write_control_file(self.place.data_dir, mode)
        return act.phase, act.rates

    def _is_over(self) -> bool:
        if self.options.exit_after_s is None:
            return False
        is_told = self.comparison.is_over and not self.receiver.has_firing_page()
        overtime_s = self.elapsed_s() - max(self.options.exit_after_s, self.story.over_s)
        return overtime_s >= (0.0 if is_told else GRACE_S)

    def _refuse_ended_parts(self, traffic: asyncio.Task[None]) -> None:
        if traffic.done():
            traffic.result()
        self.platform.refuse_any_ended()

    def _frame(self) -> Frame:
        return Frame(
            elapsed_s=self.elapsed_s(),
            phase=self.story.act.phase,
            counters=self.traffic.counters,
            notifications=self.receiver.notifications,
            comparison=self.comparison.summary,
            crowds=report.compare_crowds(self.traffic.counters),
            dashboard_url=self._page_url(),
        )

    def _page_url(self) -> str | None:
        """The first page, limited to the demo's own time range."""
        url = self._dashboard_url()
        return None if url is None else f"{url}/?range=5m"

    def _dashboard_url(self) -> str | None:
        if not self.options.has_dashboard:
            return None
        return self.place.endpoints.dashboard

    def report(self) -> dict[str, Any]:
        counters = self.traffic.counters
        query_url = self.place.endpoints.query
        store = Store(query_url)
        try:
            figures = report.measure_settled(store, self.since, counters.requests)
        finally:
            store.close()
        return {
            **figures,
            "client": {
                "requests": counters.requests,
                "errors": counters.errors,
                "refused": counters.refused,
                "cancelled": counters.cancelled,
            },
            "crowds": report.compare_crowds(counters),
            "phases": report.describe_chats(counters),
            "alerts": [
                {
                    "at": n.at,
                    "status": n.status,
                    "slo": n.name,
                    "severity": n.severity,
                    "summary": n.summary,
                }
                for n in self._told
            ],
            "comparison": self.comparison.result,
            "comparison_summary": self.comparison.summary,
            "query_url": hide_password(query_url),
            "dashboard_url": self._dashboard_url(),
            "data_dir": str(self.place.data_dir),
        }


def _make_data_dir(wanted: Path | None, *, is_shared: bool, is_new: bool = False) -> Path:
    try:
        if wanted is None:
            path = Path(tempfile.mkdtemp(prefix="evenkeel-demo-"))
        else:
            path = wanted.resolve()
            if is_new:
                path.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            # The parts read a shared one, so it is not the demo's to close.
            if not is_shared:
                make_private_folder(path, COLLECTOR_ID)
        (path / LOGS).mkdir(exist_ok=True)
    except OSError as error:
        raise ConfigurationError(
            f"the data folder {wanted} cannot be used ({error.strerror}); choose another one "
            "with --data-dir"
        ) from error
    if not os.access(path, os.W_OK):
        raise ConfigurationError(f"the data folder {path} is not writable")
    return path


@contextlib.contextmanager
def _signals_as_interrupt() -> Iterator[None]:
    """Make SIGTERM and SIGHUP stop the demo like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_ENDING = (signal.SIGTERM, signal.SIGHUP)
