"""`eval live` stores each drift once, also if the collector is away at first."""

import gzip
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel import spans
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.commands.live import _Watch
from evenkeel_evals.production.dial_back import Dials
from evenkeel_evals.production.dial_targets import FolderLabels
from evenkeel_evals.production.live import LiveRun, LiveWindow, Row
from evenkeel_evals.production.live_config import load_config
from evenkeel_evals.production.live_estimate import LiveEstimate
from tests.fixtures.http_stub import QuietHandler, serving

DRIFT = LiveEstimate("pii", 100, 0, 100.0, 0.5, 0.4, 0.6, 0.9, 1e-6)


class Collector(QuietHandler):
    """Takes spans, or answers 500 while it is broken."""

    is_broken = True
    bodies: list[bytes]

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        if not self.is_broken:
            self.bodies.append(body)
        self.send_response(400 if self.is_broken else 200)
        self.end_headers()


@pytest.fixture
def collector() -> Iterator[tuple[type[Collector], str]]:
    kind = type("Mine", (Collector,), {"bodies": []})
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), kind)) as url:
        yield kind, url


def test_a_drift_is_stored_once_the_collector_takes_it(
    collector: tuple[type[Collector], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kind, url = collector
    path = tmp_path / "live.toml"
    path.write_text('name = "one"\n[[scorer]]\nname = "pii"\ngood_at_least = 0.9\n')
    config = load_config(path)
    with Journal(tmp_path / "live.jsonl") as journal:
        live = LiveRun(config, journal)
        dials = Dials(config, live, FolderLabels(tmp_path), None, acts=False)
        watch = _Watch(config, live, url, is_json=True, dials=dials, judge_key=None)
        watch.alert([DRIFT])
        assert "results were not stored" in capsys.readouterr().err and not kind.bodies
        kind.is_broken = False
        for _ in range(2):
            watch.alert([DRIFT])
    (body,) = kind.bodies
    sent = ExportTraceServiceRequest.FromString(gzip.decompress(body))
    (span,) = sent.resource_spans[0].scope_spans[0].spans
    said = {a.key: a.value.string_value for a in span.attributes}
    assert said[spans.EVAL_RUN_ID] == "live-one"
    # The verdict of the whole run, which the Evals page asks for.
    assert said[spans.EVAL_RUN_VERDICT] == said[spans.EVAL_VERDICT] == "regressed"
    assert "DRIFT: below 90.0%" in said[spans.EVAL_RUN_HEADLINE]


def drifting_window() -> LiveWindow:
    row = Row(
        *("a" * 32, "b" * 16, "c" * 16, "-", 0.5, "pii", 0.0, "wrong", None, 1.0),
        *("m", None, "support", "1", None, None),
    )
    now_ns = time.time_ns()
    return LiveWindow(now_ns - 1, now_ns, 80, 40, {}, 0, 1.0, [row] * 40)


def test_a_drift_that_was_not_stored_is_stored_by_the_next_process(
    collector: tuple[type[Collector], str], tmp_path: Path
) -> None:
    # As `eval live --once` from a timer does.
    kind, url = collector
    path = tmp_path / "live.toml"
    path.write_text('name = "one"\n[[scorer]]\nname = "pii"\ngood_at_least = 0.9\n')
    config = load_config(path)
    no_window_is_due: Any = None
    stored: list[int] = []
    for is_broken in (True, False, False):
        kind.is_broken = is_broken
        with Journal(tmp_path / "live.jsonl") as journal:
            live = LiveRun(config, journal)
            if not live.windows:
                live.keep(drifting_window())
            dials = Dials(config, live, FolderLabels(tmp_path), None, acts=False)
            watch = _Watch(config, live, url, is_json=True, dials=dials, judge_key=None)
            watch.go(no_window_is_due, since_s=60, is_once=True, duration_s=None)
        bodies = [ExportTraceServiceRequest.FromString(gzip.decompress(b)) for b in kind.bodies]
        found = [s.name for b in bodies for s in b.resource_spans[0].scope_spans[0].spans]
        stored.append(found.count(spans.SPAN_EVALUATION_RUN))
    assert stored == [0, 1, 1]
