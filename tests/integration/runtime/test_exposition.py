"""The metrics that boards ask for are on the pages of real servers, with the labels they use."""

import re
from collections.abc import Collection
from pathlib import Path

import httpx

from evenkeel.conventions import SERVER_METRIC_BOUNDS_S
from tests.checkout import ROOT
from tests.fixtures.board_queries import prometheus_queries
from tests.fixtures.collector_process import running_collector, wait_for
from tests.fixtures.equipped_server import EquippedServer
from tests.fixtures.metric_series import VALUES, exposed

# A metric's name, and no label's.
_NAME = re.compile(r"\b(?:evenkeel|vllm|kv_cache|batch)[\w:]+\b(?!\s*=)")
_SAMPLE = re.compile(r"([\w:]+)(?:\{(.*)\})? ")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def family_of(name: str) -> str:
    """Return the metric of a sample's name."""
    stem = re.sub(r"_(bucket|sum|count)$", "", name)
    return stem if stem in exposed() else name


def asked_for(prefixes: tuple[str, ...]) -> set[str]:
    names = {n for query in prometheus_queries() for n in _NAME.findall(query.text)}
    return {family_of(name) for name in names if name.startswith(prefixes)}


def lacks(page: str, asked: set[str], texts: Collection[str] = ()) -> set[str]:
    """Return which metrics, and which texts, a page does not have."""
    return asked - set(re.findall(r"^# TYPE (\S+) ", page, re.M)) | {
        text for text in texts if text not in page
    }


def check_page(page: str, asked: set[str]) -> None:
    """Every metric is declared, and its samples have the labels, and the values, of ours."""
    assert asked
    assert not lacks(page, asked)
    for line in page.splitlines():
        if line[:1] != "#" and (match := _SAMPLE.match(line)):
            name = family_of(match[1])
            if name in asked:
                labels = dict(_LABEL.findall(match[2] or "")) | {"le": ""}
                assert labels.keys() - {"le"} == set(exposed()[name].labels), line
                for label, value in labels.items():
                    known = VALUES.get(label, {}).get(name, (value,))
                    assert value in known or label == "slo", line


def check_reference(page: str) -> None:
    """Everything of ours on a page is in the generated reference."""
    reference = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    ours = set(re.findall(r"^# TYPE (evenkeel_\S+) ", page, re.M))
    assert {n for n in ours if f"`{n}`" not in reference and not n.endswith("_created")} == set()


def read_page(equipped: EquippedServer) -> str:
    return httpx.get(f"{equipped.served.url}/metrics").text


def test_the_servers_page_has_what_boards_ask_for(equipped: EquippedServer) -> None:
    for route in ("serve", "draft", "shadow", "compress"):
        equipped.ask("How long is the warranty?", route, "boards")
    runtime = ("evenkeel_runtime", "evenkeel_engine", "evenkeel_control", "evenkeel_cache")
    asked = asked_for((*runtime, "evenkeel_spec", "evenkeel_comp", "vllm:", "kv_", "batch"))
    counted = {f"\n{name.replace('.', '_')}_seconds_count{{" for name in SERVER_METRIC_BOUNDS_S}
    # The exporter hands over its figures a moment after the requests.
    wait_for(lambda: not lacks(read_page(equipped), asked, counted))
    page = read_page(equipped)
    check_page(page, asked)
    check_reference(page)


def test_the_collectors_page_has_what_boards_ask_for(tmp_path: Path) -> None:
    with running_collector(tmp_path, ("--slos", str(ROOT / "slos.yaml"))) as collector:
        page = httpx.get(f"{collector.http_url}/metrics").text
    check_page(page, asked_for(("evenkeel_collector", "evenkeel_slo", "evenkeel_alert")))
    check_reference(page)
