"""Times how soon the Request page shows a trace of thousands of spans.

    python bench/trace_page.py --json build/trace_page.json

Starts a collector and a dashboard, sends agents' traces of several sizes, and opens each in a
headless Chromium, in turns. A visit ends when the waterfall's rows are drawn and the page has drawn
all its cards. Prints the median and the slowest of each size; also the time to find a span by name
and to scroll to the end.
"""

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from playwright.sync_api import Browser, Page, sync_playwright

from bench.dashboard_processes import collect, serve_dashboard
from bench.report import write_report

CHROMIUM_ARGS = "--no-sandbox --disable-gpu --no-first-run --disable-background-networking".split()
SIZES = (50, 5_000, 20_000)
MS = 10**6
SLOS = Path("slos.yaml")
TIMEOUT_MS = 120_000
# Of an agent's turn: name, kind of span, attributes. Ours has the call's tokens.
TURN = (
    ("retrieve", 1, {"openinference.span.kind": "RETRIEVER"}),
    ("chat support", 3, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "support"}),
    ("POST", 3, {"http.request.method": "POST"}),
    ("chat support", 2, {"evenkeel.status": "ok", "gen_ai.request.model": "support",
                         "gen_ai.usage.input_tokens": "1200", "evenkeel.e2e_s": "0.05"}),
    ("evenkeel.decode", 1, {}),
    ("execute_tool search", 1, {"gen_ai.operation.name": "execute_tool",
                                "gen_ai.tool.name": "search"}),
    ("SELECT documents", 3, {"db.system.name": "postgresql"}),
    ("parse", 1, {}),
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--visits", type=int, default=7, help="visits of each size, in turns")
    parser.add_argument(
        "--sizes", type=int, nargs="+", default=list(SIZES), help="spans of a trace"
    )
    parser.add_argument("--json", type=Path, help="file to write")
    parser.add_argument("--screenshots", type=Path, help="folder for pictures of the largest trace")
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser")
    args = parser.parse_args()
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        addresses = collect(stack, Path(folder), "--slos", str(SLOS))
        for size in args.sizes:
            send(addresses["http_url"], size)
        url = serve_dashboard(stack, addresses, SLOS)
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=args.chromium, args=CHROMIUM_ARGS)
        wait_until_stored(addresses["query_url"], sum(args.sizes))
        visit(browser, url, args.sizes[0])  # The server imports pandas at the first visit.
        found: dict[int, list[dict[str, float]]] = {size: [] for size in args.sizes}
        for _ in range(args.visits):
            for size in args.sizes:
                found[size].append(visit(browser, url, size))
        if args.screenshots:
            take_pictures(browser, url, args.sizes, args.screenshots)
        browser.close()
    result = {str(size): summary(visits) for size, visits in found.items()}
    for size, values in result.items():
        print(size, "spans:", ", ".join(f"{name} {value:.2f}" for name, value in values.items()))
    content = {"visits": args.visits, "spans": result, "runs": found}
    write_report(args.json, content)
    return 0


def summary(visits: list[dict[str, float]]) -> dict[str, float]:
    """Return median and slowest of each figure."""
    found = {}
    for name in visits[0]:
        values = [visit[name] for visit in visits]
        found[name] = statistics.median(values)
        found[f"{name}_slowest"] = max(values)
    return found


def trace_id(size: int) -> bytes:
    return size.to_bytes(16, "big")


def send(http_url: str, size: int) -> None:
    """Send an agent's trace: a root, and turns in which it retrieves, calls a model and a tool."""
    request = ExportTraceServiceRequest()
    begin_ns = time.time_ns() - 600 * 1000 * MS
    scopes = {}
    for service in ("agent", "model"):
        resource_spans = request.resource_spans.add()
        attribute = resource_spans.resource.attributes.add(key="service.name")
        attribute.value.string_value = service
        scopes[service] = resource_spans.scope_spans.add()
    add(scopes["agent"], size, 0, 0, "invoke_agent helper", 1, begin_ns, size * MS,
        {"gen_ai.operation.name": "invoke_agent"})  # fmt: skip
    number = 1
    while number < size:
        turn = number
        for name, kind, attributes in TURN:
            if number >= size:
                break
            is_ours = "evenkeel" in name or "evenkeel.status" in attributes
            # A call's spans are below each other, all else is below the agent.
            above = number if name in ("POST", "evenkeel.decode") or is_ours else 1
            more = {"evenkeel.request.id": f"r-{size}-{turn}"} if "evenkeel.status" in attributes \
                else {}  # fmt: skip
            # Each span of a call lies within the one above it.
            lasts_ns = (20 - 2 * (number - turn)) * MS if above > 1 or kind == 3 else 5 * MS
            add(
                scopes["model" if is_ours else "agent"], size, number, above, name, kind,
                begin_ns + number * MS, lasts_ns, {**attributes, **more},
            )  # fmt: skip
            number += 1
    body = request.SerializeToString()
    headers = {"content-type": "application/x-protobuf"}
    httpx.post(f"{http_url}/v1/traces", content=body, headers=headers).raise_for_status()


def add(
    scope: object, trace: int, number: int, above: int, name: str, kind: int, start_ns: int,
    lasts_ns: int, attributes: dict[str, str],
) -> None:  # fmt: skip
    span = scope.spans.add(  # type: ignore[attr-defined]
        trace_id=trace_id(trace),
        span_id=(number + 1).to_bytes(8, "big"),
        parent_span_id=above.to_bytes(8, "big") if above else b"",
        name=name,
        kind=kind,
        start_time_unix_nano=start_ns,
        end_time_unix_nano=start_ns + lasts_ns,
    )
    for key, value in attributes.items():
        span.attributes.add(key=key).value.string_value = value


def wait_until_stored(query_url: str, num_spans: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = httpx.post(query_url, content="SELECT count() FROM evenkeel.spans").text.strip()
        if int(found) >= num_spans:
            return
        time.sleep(0.2)
    raise AssertionError("not all spans were stored within 60 s")


def address(url: str, size: int) -> str:
    return f"{url}/request?trace_id={trace_id(size).hex()}&live=off"


def visit(browser: Browser, url: str, size: int) -> dict[str, float]:
    """Open the trace in a new profile; return the seconds of each step."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    begun = time.monotonic()
    page.goto(address(url, size))
    page.locator(".ek-trace-row").first.wait_for(timeout=TIMEOUT_MS)
    rows = time.monotonic()
    page.locator(".st-key-card-neighbours").wait_for(timeout=TIMEOUT_MS)
    whole = time.monotonic()
    found = {"rows_s": rows - begun, "page_s": whole - begun, **search(page)}
    context.close()
    return found


def search(page: Page) -> dict[str, float]:
    """Search a span, and open all and scroll to the end: milliseconds until the rows are drawn."""
    timing = page.evaluate(
        """async () => {
          const frame = () => new Promise((done) => requestAnimationFrame(() => done()));
          const field = document.querySelector(".ek-trace-search");
          let begun = performance.now();
          field.value = "documents"; field.dispatchEvent(new Event("input")); await frame();
          const search = performance.now() - begun;
          field.value = ""; field.dispatchEvent(new Event("input"));
          begun = performance.now();
          document.querySelector(".ek-trace-button").click();
          const view = document.querySelector(".ek-trace-view");
          view.scrollTop = view.scrollHeight; await frame(); await frame();
          return [search, performance.now() - begun,
                  document.querySelectorAll(".ek-trace-row").length];
        }"""
    )
    return {"search_ms": timing[0], "to_end_ms": timing[1], "rows_drawn": float(timing[2])}


def take_pictures(browser: Browser, url: str, sizes: list[int], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for size in sizes[:2]:
        for scheme in ("light", "dark"):
            for width in (1440, 390):
                page = browser.new_page(
                    color_scheme=scheme,
                    viewport={"width": width, "height": 1000},  # type: ignore[arg-type]
                )
                page.goto(address(url, size))
                page.locator(".ek-trace-row").first.wait_for(timeout=TIMEOUT_MS)
                page.wait_for_timeout(2_000)
                page.screenshot(path=folder / f"trace-{size}-{scheme}-{width}.png")
                page.close()


if __name__ == "__main__":
    raise SystemExit(main())
