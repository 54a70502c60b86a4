"""The engines' files: each fact is in its fixture, and a wrong file is one line."""

import itertools
from pathlib import Path

import pytest

from evenkeel.conventions import SERVER_METRIC_BOUNDS_S
from evenkeel.doctor.prometheus_page import read_prometheus_page
from evenkeel.engines.engine_map import known_engines, read_engine, sources_of, title_of
from evenkeel.engines.measures import MEASURES, PAGE_PARTS
from evenkeel.errors import ConfigurationError
from tests.fixtures.engine_pages import PAGES, SPANS, read_span

GOOD = """\
name = "mine"
title = "Mine"

[facts]
version = "1"
basis = "recorded"
source = ["here"]

[metrics]
prefixes = ["mine_"]

[metrics.names]
num_running = "mine_running"
"""


def test_the_engines_that_people_use_are_known() -> None:
    assert set(known_engines()) == {
        "anthropic", "azure-openai", "bedrock", "deepspeed-mii", "llama.cpp", "ollama", "openai",
        "opentelemetry", "sglang", "tensorrt-llm", "tgi", "triton", "vllm",
    }  # fmt: skip
    assert (title_of("sglang"), title_of("my-engine")) == ("SGLang", "my-engine")


@pytest.mark.parametrize("name", known_engines())
def test_a_file_is_named_after_its_engine_and_has_fixtures(name: str) -> None:
    engine = known_engines()[name]
    assert engine.facts.source and engine.facts.version
    # Spans by OpenTelemetry's conventions are those of clients.
    assert (name in SPANS) == (name != "opentelemetry")
    # Bedrock's metrics are a stream of CloudWatch, not a page.
    assert (name in PAGES) == (engine.metrics is not None and name != "bedrock")


@pytest.mark.parametrize("path", [*PAGES.values(), *SPANS.values()], ids=lambda path: path.name)
def test_a_fixture_names_its_version_and_source(path: Path) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    header = " ".join(itertools.takewhile(lambda line: line.startswith("# "), lines))
    assert "values are made up" in header.replace("\n", " ").replace(" # ", " ")


@pytest.mark.parametrize("name", PAGES)
def test_each_mapped_metric_is_on_the_engines_page(name: str) -> None:
    page = read_prometheus_page(PAGES[name].read_text(encoding="utf-8"))
    metrics = known_engines()[name].metrics
    assert metrics is not None
    assert not page.num_wrong
    for measure, sources in metrics.names.items():
        # Older names are not on a page of the newest version.
        newest = sources[0]
        assert page.has(newest.metric, list(newest.where.items())), (measure, newest.metric)
        assert newest.metric.startswith(tuple(metrics.prefixes))
        if metrics.model_label:
            assert metrics.model_label in page.metrics[newest.metric].labels


@pytest.mark.parametrize("name", SPANS)
def test_each_mapped_attribute_is_on_the_engines_span(name: str) -> None:
    rule, span = known_engines()[name].spans, read_span(name)
    if rule is None:
        assert span["kind"] == "CLIENT"
        return
    optional = {"gen_ai.request.max_tokens", "gen_ai.request.temperature"}
    assert set(rule.attributes) <= set(span["attributes"])
    assert set(rule.fields.values()) - optional <= set(span["attributes"])
    assert rule.scope in ("", span["scope"]) and rule.span in ("", span["span"])


def test_no_two_engines_claim_the_same_clients_or_metrics() -> None:
    engines = known_engines().values()
    clients = [name for each in engines for name in (each.name, *each.providers)]
    assert len(clients) == len(set(clients))
    prefixes = [prefix for each in engines if each.metrics for prefix in each.metrics.prefixes]
    for prefix in prefixes:
        assert [other for other in prefixes if other.startswith(prefix)] == [prefix]


def test_names_that_engines_share_are_opentelemetrys_server_metrics_in_both_forms() -> None:
    shared = [e for e in known_engines().values() if e.metrics and e.metrics.is_shared]
    assert [each.name for each in shared] == ["opentelemetry"]
    names = {s.metric for m in MEASURES for s in shared[0].sources(m)}
    assert names == {
        form
        for name in SERVER_METRIC_BOUNDS_S
        for form in (name, f"{name.replace('.', '_')}_seconds")
    }


def test_each_measure_is_reported_by_an_engine_and_fills_something() -> None:
    used = {measure for part in PAGE_PARTS for measure in part.measures}
    for measure in MEASURES:
        assert list(sources_of(measure)), measure
    assert used <= set(MEASURES)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("[facts]", "[fact]", "mine.toml: facts is missing"),
        ('name = "mine"', 'name = "Mine!"', "name: String should match pattern"),
        ('basis = "recorded"', 'basis = "guessed"', "facts.basis: Input should be"),
        ("num_running =", "num_walking =", "names.num_walking is not one of num_running"),
        (
            '"mine_running"',
            '{ metric = "mine_running", take = "sum" }',
            "names.num_running: take = 'sum' is for counters",
        ),
        (
            '"mine_running"',
            "[]",
            r"mine\.toml:13: metrics\.names\.num_running: Value should have at least 1 item",
        ),
        ('"mine_running"', "3", "num_running"),
        ('title = "Mine"', "title = ", "is not TOML"),
    ],
)
def test_a_wrong_file_is_one_line(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(GOOD, encoding="utf-8")
    assert read_engine(path).sources("num_running")[0].metric == "mine_running"
    path.write_text(GOOD.replace(old, new), encoding="utf-8")
    with pytest.raises(ConfigurationError, match=complaint) as caught:
        read_engine(path)
    assert "\n" not in str(caught.value) and "mine.toml" in str(caught.value)
