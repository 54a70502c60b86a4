"""`evenkeel doctor --scrape`: one clear answer for each kind of page."""

import contextlib
import gzip
import json
import threading
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from evenkeel.cli import main
from evenkeel.doctor.command import DOCTOR
from evenkeel.doctor.prometheus_page import read_prometheus_page
from evenkeel.doctor.scrape_report import (
    MAX_PAGE_BYTES,
    EngineReport,
    fetch_page,
    report_page,
)
from evenkeel.errors import CannotMeasureError
from tests.fixtures.engine_pages import PAGES
from tests.fixtures.http_stub import QuietHandler, serving

SHARED = PAGES["opentelemetry"].read_text()
UNKNOWN = "my_engine_running 1\n"
ENCODED = {
    "gzip": gzip.compress(b"x 1\n" * (MAX_PAGE_BYTES // 2)),
    "bad-gzip": b"no gzip",
    "br": b"nonsense",
    "gzip, gzip": b"",
}


class Pages(QuietHandler):
    """Serves fixtures by engine, and pages that no engine has."""

    def do_GET(self) -> None:
        name = self.path.strip("/").split("/")[0]
        text = {
            "html": "<!doctype html><title>hi</title>\n",
            "empty": "",
            "unknown": UNKNOWN,
            "escape": 'vllm:num_requests_running{model_name="model \x1b[2Jx"} 1\n',
            "two": PAGES["vllm"].read_text() + PAGES["sglang"].read_text(),
        }.get(name) or (PAGES[name].read_text() if name in PAGES else "")
        if name == "prometheus":
            text = PAGES["tensorrt-llm"].read_text()
        codes = {"missing": 404, "metrics": 404, "moved": 302}
        self.send_response(codes.get(name, 200))
        if name == "moved":
            self.send_header("location", "http://me:secret@other:1/metrics")
        body = ENCODED.get(name)
        if body is not None:
            self.send_header("content-encoding", name.removeprefix("bad-"))
        self.end_headers()
        if body is not None:
            self.wfile.write(body)
            return
        if name == "slow":
            # Each byte comes soon enough; the page never ends.
            with contextlib.suppress(OSError):
                while not self.server.stopped.wait(0.05):  # type: ignore[attr-defined]
                    self.wfile.write(b"#")
        if name == "huge":
            try:
                for _ in range(MAX_PAGE_BYTES // (1 << 20) + 200):
                    self.wfile.write(b"x" * (1 << 20))
            except OSError:
                return
        self.wfile.write(text.encode())


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    pages = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    pages.stopped = threading.Event()  # type: ignore[attr-defined]
    with serving(pages) as url:
        yield url
        pages.stopped.set()  # type: ignore[attr-defined]


def scrape(*arguments: str) -> int:
    return main(["doctor", "--scrape", *arguments], [DOCTOR])


def report_of(name: str) -> EngineReport:
    (report,) = report_page(read_prometheus_page(PAGES[name].read_text()))
    return report


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_recognised(name: str) -> None:
    report = report_of(name)
    assert report.engine == name
    assert {part.state for part in report.parts} >= {"filled", "not reported"} or name == "vllm"
    states = {(part.page, part.part): part.state for part in report.parts}
    # OpenTelemetry's conventions have no gauges.
    part = "total time histogram" if name == "opentelemetry" else "requests running"
    assert states["Engine", part] == "filled"


@pytest.mark.parametrize(
    ("page", "engines"),
    [
        pytest.param(SHARED, ["opentelemetry"], id="a provider that nobody knows"),
        pytest.param(SHARED.replace("my-cloud", "SGLang"), ["sglang"], id="an engine we know"),
        pytest.param(SHARED.replace("my-cloud", "az.ai.openai"), ["azure-openai"], id="provider"),
        pytest.param(
            SHARED + SHARED.replace("my-cloud", "sglang"), ["opentelemetry"], id="two of them"
        ),
        pytest.param(
            PAGES["vllm"].read_text() + SHARED.replace("my-cloud", "vllm"), ["vllm"], id="ours"
        ),
        pytest.param(PAGES["tgi"].read_text() + SHARED, ["tgi"], id="an engine's own names"),
        pytest.param(SHARED.replace("gen_ai_server", "gen_ai_client"), [], id="a client"),
    ],
)
def test_names_that_engines_share_count_without_others(page: str, engines: list[str]) -> None:
    assert [report.engine for report in report_page(read_prometheus_page(page))] == engines


def test_an_engine_that_is_named_has_only_what_the_shared_names_fill() -> None:
    (report,) = report_page(read_prometheus_page(SHARED.replace("my-cloud", "sglang")))
    states = {(part.page, part.part): part.state for part in report.parts}
    assert states["Engine", "TPOT histogram"] == "filled", "which SGLang's own names do not have"
    assert states["Engine", "KV cache"] == "not reported"
    assert (report.title, report.models) == ("SGLang", ["support"])


@pytest.mark.parametrize(
    ("name", "part", "state"),
    [
        ("sglang", "KV cache", "filled"),
        ("sglang", "why requests wait", "not reported"),
        ("sglang", "rule kv-leak", "filled"),
        ("triton", "rule kv-live-vllm", "filled"),
        ("triton", "rule kv-leak", "not reported"),
        ("tgi", "TTFT histogram", "not reported"),
        ("tgi", "input tokens", "with traces"),
        ("tgi", "prefill", "not reported"),
        ("llama.cpp", "KV cache", "not reported"),
        ("vllm", "batch and step time", "with evenkeel's runtime"),
        ("opentelemetry", "TTFT histogram", "filled"),
        ("opentelemetry", "ITL histogram", "not reported"),
        ("opentelemetry", "requests waiting", "not reported"),
        ("opentelemetry", "output tokens", "with traces"),
    ],
)
def test_each_part_says_what_fills_it(name: str, part: str, state: str) -> None:
    assert [p.state for p in report_of(name).parts if p.part == part] == [state]


def test_the_version_and_the_models_are_those_that_the_page_tells() -> None:
    assert (report_of("vllm").version, report_of("vllm").models) == ("0.9 or later", ["support"])
    assert (report_of("tgi").version, report_of("tgi").models) == ("", [])


def test_json_is_all_that_is_printed(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert scrape(f"{server}/sglang", "--json") == 0
    printed = json.loads(capsys.readouterr().out)
    assert [engine["engine"] for engine in printed["engines"]] == ["sglang"]
    assert {"page", "part", "state", "source"} == printed["engines"][0]["parts"][0].keys()


def test_an_address_without_a_path_is_tried_with_each_engines(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scrape(server) == 0
    assert "TensorRT-LLM" in capsys.readouterr().out


def test_two_engines_on_one_page_are_both_told(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scrape(f"{server}/two") == 0
    out = capsys.readouterr().out
    assert "vLLM" in out and "SGLang" in out and "several engines share this page" in out
    # No metric's name is cut off.
    assert "…" not in out


@pytest.mark.parametrize(
    ("path", "code", "complaint"),
    [
        ("/html", 3, "is not a Prometheus page: its first line is '<!doctype html>"),
        ("/empty", 3, "is not a Prometheus page: it is empty"),
        ("/unknown", 3, "has 1 metrics of no engine we know"),
        ("/missing", 3, "it answered 404"),
        ("/huge", 3, "the page is larger than 20 MiB"),
        ("/gzip", 3, "the page is larger than 20 MiB"),
        ("/bad-gzip", 3, "it claims to be gzip, but is not"),
        ("/br", 3, "it is encoded as 'br'"),
        ("/moved", 3, "it answered 302: see 'http://other:1/metrics'"),
    ],
)
def test_what_is_no_engines_page_is_one_line(
    server: str, path: str, code: int, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scrape(server + path) == code
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1 and not captured.out


def test_a_page_that_never_ends_is_given_up_in_time(
    server: str,
) -> None:
    began_s = time.monotonic()
    with pytest.raises(CannotMeasureError, match="took longer than 1 s"):
        fetch_page(f"{server}/slow", max_s=1.0)
    assert time.monotonic() - began_s < 120


def test_a_server_without_tls_is_one_line(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert scrape(server.replace("http:", "https:") + "/vllm") == 3
    captured = capsys.readouterr()
    assert "SSL" in captured.err and captured.err.count("\n") == 1


def test_what_a_page_says_does_not_control_the_terminal(
    server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scrape(f"{server}/escape") == 0
    assert "model \ufffd[2Jx" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("http://[::1", 2),
        ("http://127.0.0.1:99999/metrics", 2),
        ("ftp://x/metrics", 2),
        ("nonsense", 2),
        ("http://127.0.0.1:1/metrics", 3),
        ("http://", 2),
    ],
)
def test_a_wrong_address_is_one_line(
    url: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert scrape(url) == code
    assert capsys.readouterr().err.count("\n") == 1


def test_a_password_is_not_printed(capsys: pytest.CaptureFixture[str]) -> None:
    scrape("http://me:secret@127.0.0.1:1/metrics")
    assert "secret" not in capsys.readouterr().err
