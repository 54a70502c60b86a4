"""A real collector filled by the simulator, a dashboard that reads it, and how tests look at it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from playwright.sync_api import Browser, Page, expect

from evenkeel import spans
from evenkeel.prompts.registry import Move, PromptRegistry, PromptVersion, digest
from evenkeel.store import Store
from evenkeel_dashboard.frame.selection import Selection
from tests.queries import query

# Playwright gives up after 5 s, too soon on a busy machine.
expect.set_options(timeout=120_000)
CHROMIUM = Path("/usr/bin/chromium")
CHROMIUM_ARGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
ROOT = Path(__file__).parents[3]
NUM_REQUESTS = 1500
OLD_PROMPT, NEW_PROMPT = "You answer questions.", "You answer questions in one word."
NO_FILTER = {"model": "", "tenant": "", "prompt": "", "slo_class": ""}
RUN_ID = "run-7"
SLO = "chat-ttft"
SLOS = """\
apiVersion: evenkeel/v1
kind: Alerting
spec: {interval: 1s, receivers: []}
---
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat-ttft, displayName: Chat answers start within 500 ms}
spec:
  service: chat
  indicator: {metric: ttft, select: {slo_class: interactive}, aborted: measured}
  objectives: [{op: lte, value: 0.5, target: 0.95}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""


@dataclass(frozen=True, slots=True)
class Platform:
    """A collector with simulated requests, and a dashboard that reads it."""

    query_url: str
    http_url: str
    dashboard_url: str
    from_ms: int
    to_ms: int
    simulated: dict[str, object]
    slo_file: Path
    prompts: PromptRegistry

    def page(self, path: str = "", **params: str) -> str:
        fixed = Selection().narrowed(self.from_ms, self.to_ms).to_params()
        return str(httpx.URL(f"{self.dashboard_url}/{path}", params=fixed | params))

    def range(self) -> dict[str, int]:
        return {"from_ms": self.from_ms, "to_ms": self.to_ms}


def make_registry(folder: Path) -> PromptRegistry:
    """A registry in which the old prompt is in production, and the new one is the draft."""
    registry = PromptRegistry(folder)
    old = PromptVersion("support", digest(OLD_PROMPT), OLD_PROMPT)
    registry.keep(old)
    registry.move("support", Move(1_700_000_000, "production", old.version, "the first", None))
    (folder / "support.toml").write_text(f'system = "{NEW_PROMPT}"\n', encoding="utf-8")
    return registry


def evenkeel(
    *arguments: str, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    path = os.environ.get("PYTHONPATH", str(ROOT))
    return subprocess.Popen(
        [sys.executable, "-m", "evenkeel", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stop(process: subprocess.Popen[str]) -> int:
    process.send_signal(signal.SIGINT)
    try:
        process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    return process.returncode


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(url: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise AssertionError(f"{url} ended with {process.returncode}: {process.communicate()}")
        try:
            if httpx.get(url).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise AssertionError(f"{url} did not answer within 60 s")


def wait_until_stored(query_url: str, num_requests: int = NUM_REQUESTS) -> None:
    store = Store(query_url)
    everything = {"from_ms": 0, "to_ms": 4_000_000_000_000}
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if store.rows(query("range_contents"), everything)[0]["num_requests"] == num_requests:
            break
        time.sleep(0.3)
    else:
        raise AssertionError("the collector did not store all simulated requests within 30 s")
    store.close()


def send_evaluation(http_url: str, at_ns: int) -> None:
    """A run of ten items in which the candidate loses one and its gate regresses."""
    message = ExportTraceServiceRequest()
    scope = message.resource_spans.add().scope_spans.add()

    def add(number: int, name: str, attributes: dict[str, object]) -> None:
        scope.spans.add(
            trace_id=number.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name=name,
            start_time_unix_nano=at_ns,
            end_time_unix_nano=at_ns + 1,
            attributes=[
                KeyValue(
                    key=key,
                    value=AnyValue(double_value=value)
                    if isinstance(value, float)
                    else AnyValue(string_value=str(value)),
                )
                for key, value in ({spans.EVAL_RUN_ID: RUN_ID} | attributes).items()
            ],
        )

    for item in range(10):
        for side, is_right in (("A", True), ("B", item != 3)):
            add(
                100 + 2 * item + (side == "B"),
                spans.SPAN_EVALUATION,
                {
                    spans.EVAL_NAME: "exact",
                    spans.EVAL_SCORE: float(is_right),
                    spans.EVAL_LABEL: "right" if is_right else "wrong",
                    spans.EVAL_EXPLANATION: f"{side} said <b>{item}</b>",
                    spans.EVAL_SIDE: side,
                    spans.EVAL_ITEM_ID: f"item-{item}",
                    spans.PROMPT_NAME: "support",
                    spans.PROMPT_VERSION: digest(OLD_PROMPT if side == "A" else NEW_PROMPT),
                },
            )
    add(
        200,
        spans.SPAN_EVALUATION_RUN,
        {
            spans.EVAL_GATE: "accuracy>=-1%",
            spans.EVAL_SLICE: "overall",
            spans.EVAL_VERDICT: "regressed",
            spans.EVAL_RUN_VERDICT: "regressed",
            spans.EVAL_ESTIMATE: -0.1,
            spans.EVAL_LOWER: -0.4,
            spans.EVAL_UPPER: 0.05,
        },
    )
    response = httpx.post(
        f"{http_url}/v1/traces",
        content=message.SerializeToString(),
        headers={"content-type": "application/x-protobuf"},
    )
    assert response.status_code == 200, response.text


def opened(browser: Browser, url: str, scheme: str = "light", width: int = 1440) -> Page:
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": 1000})  # type: ignore[arg-type]
    page.goto(url)
    expect(page.get_by_text("data as of").first).to_be_visible()
    return page


def assert_no_exception(page: Page) -> None:
    assert page.locator("[data-testid=stException]").all_inner_texts() == []


def overflow(page: Page) -> int:
    """How many pixels the page is wider than its window."""
    return int(
        page.evaluate(
            "() => { const main = document.querySelector('[data-testid=stMain]');"
            " return main.scrollWidth - main.clientWidth }"
        )
    )
