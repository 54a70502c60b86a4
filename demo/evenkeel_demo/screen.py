"""The demo's output: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from evenkeel.durations import measured_duration
from evenkeel.token_latency import zero_gap_note
from evenkeel_demo.receiver import ReceivedAlert
from evenkeel_demo.report import quantile
from evenkeel_demo.traffic import ClientCounters, DemoPhase

PLAIN_LINE_EVERY_S = 5.0
RECENT_REQUESTS = 50

PHASE_WORDS = {
    DemoPhase.HEALTHY: "healthy: golden questions at a varying rate",
    DemoPhase.CROWDED: "crowded: long prompts fill the batch; control only observes (dry run)",
    DemoPhase.RECOVERED: "recovered: the crowd is over; control now acts",
    DemoPhase.CONTROLLED: "controlled: the same crowd again, with control acting",
    DemoPhase.POPULAR: "popular: many ask the same in their own words; the cache helps",
    DemoPhase.CUT: "cut: a client release asks for 12 tokens; an anomaly alerts, and users notice",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """A snapshot of the demo to display."""

    elapsed_s: float
    phase: DemoPhase
    counters: ClientCounters
    notifications: Sequence[ReceivedAlert]
    comparison: str
    crowds: Mapping[str, Mapping[str, Any]]
    dashboard_url: str | None


class Screen:
    """Displays frames; use it as a context manager around the live part."""

    def __init__(self, stream: IO[str]) -> None:
        # Folders and alerts may have brackets.
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._live: Live | None = None
        self._drawn: Frame | None = None
        self._plain_s = -math.inf
        self._num_told = 0
        self._phase: DemoPhase | None = None
        self._comparison = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            if self._drawn is not None:
                # What stays on the screen no longer says how to end it.
                self._live.update(_render(self._drawn, hint=""), refresh=True)
            self._live.stop()
            self._live = None

    def say(self, line: str) -> None:
        """Print one line."""
        self._console.print(line, soft_wrap=True)

    def draw(self, frame: Frame) -> None:
        """Show a frame: immediately on a terminal, every few seconds as a line elsewhere."""
        if self._live is not None:
            self._drawn = frame
            self._live.update(_render(frame), refresh=True)
            return
        for notification in frame.notifications[self._num_told :]:
            self.say(_describe_notification(notification))
        self._num_told = len(frame.notifications)
        if frame.phase is not self._phase:
            self._phase = frame.phase
            self.say(PHASE_WORDS[frame.phase])
        if frame.comparison != self._comparison:
            self._comparison = frame.comparison
            self.say(frame.comparison)
        if time.monotonic() - self._plain_s >= PLAIN_LINE_EVERY_S:
            self._plain_s = time.monotonic()
            cells = ", ".join(f"{name} {value}" for name, value in _cells(frame))
            self.say(f"{frame.elapsed_s:4.0f} s  {frame.phase}  {cells}")

    def show_report(self, figures: dict[str, Any]) -> None:
        """Print the report of the whole demo."""
        table = Table("figure", "value", title="evenkeel demo: stored results")
        for name in _COUNTS:
            table.add_row(name.replace("_", " "), f"{figures[name]:,}")
        for name in ("ttft_s", "itl_s"):
            values = [_duration(value) for value in figures[name].values()]
            note = zero_gap_note(*figures[name].values()) if name == "itl_s" else ""
            words = " / ".join(values) + (f" ({note})" if note else "")
            table.add_row(f"{name[:-2].upper()} p50 / p95 / p99", words)
        table.add_row("tokens/s", _number(figures["tokens_per_s"], ",.0f"))
        table.add_row("cached prompt tokens", _number(figures["cached_token_ratio"], ".1%"))
        table.add_row("accepted draft tokens", _number(figures["acceptance_rate"], ".1%"))
        self._console.print(table)
        for line in describe_crowds(figures["crowds"]):
            self.say(line)
        self.say(figures["comparison_summary"])
        for alert in figures["alerts"]:
            self.say(
                f"{_clock(alert['at'])}  alert {alert['status']}: {alert['slo']} "
                f"({alert['severity']})"
            )
        self.say(f"data and logs: {figures['data_dir']}")


def _render(frame: Frame, hint: str = "    (Ctrl-C ends the demo)") -> Group:
    table = Table(*(name for name, _ in _cells(frame)), title="evenkeel demo")
    table.add_row(*(value for _, value in _cells(frame)))
    lines = [Text(f"{frame.elapsed_s:.0f} s, {PHASE_WORDS[frame.phase]}")]
    lines += [Text(_describe_notification(n)) for n in frame.notifications[-4:]]
    lines += [Text(line) for line in describe_crowds(frame.crowds)]
    lines.append(Text(frame.comparison))
    where = "not started" if frame.dashboard_url is None else frame.dashboard_url
    lines.append(Text(f"dashboard: {where}{hint}"))
    return Group(table, *lines)


def _cells(frame: Frame) -> list[tuple[str, str]]:
    counters = frame.counters
    recent = sorted(counters.ttft_s[-RECENT_REQUESTS:])
    return [
        ("requests", f"{counters.requests:,}"),
        ("in flight", str(counters.in_flight)),
        ("errors", str(counters.errors)),
        ("cancelled", str(counters.cancelled)),
        ("chat TTFT p50", _duration(quantile(recent, 0.50))),
        ("p95", _duration(quantile(recent, 0.95))),
    ]


def describe_crowds(crowds: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return a line per crowd on how chats fared during it."""
    return [
        f"chats during the crowd, control {mode}: {_number(crowd['in_time_ratio'], '.0%')} of "
        f"{crowd['chats']} answered in time, TTFT p95 {_duration(crowd['ttft_p95_s'])}"
        for mode, crowd in crowds.items()
        if crowd["chats"]
    ]


def _describe_notification(notification: ReceivedAlert) -> str:
    when = _clock(notification.at)
    # The summary describes the state when the alert fired.
    summary = f" {notification.summary}" if notification.status == "firing" else ""
    return (
        f"{when}  webhook: {notification.name} {notification.status} "
        f"({notification.severity}){summary}"
    )


def _clock(unix_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(unix_s))


def _duration(seconds: float | None) -> str:
    return "no data" if seconds is None else measured_duration(seconds)


_COUNTS = (
    "requests", "errors", "cancelled", "spans_stored",
    "answered_from_cache", "verified_from_cache", "compressed", "feedback", "live_evaluations",
)  # fmt: skip


def _number(value: float | None, form: str) -> str:
    return "no data" if value is None else format(value, form)
