"""`evenkeel slo export` on given counters."""

import pytest

from evenkeel.cli import main
from evenkeel_collector.commands.slo import SLO
from tests.checkout import ROOT


def export(events: str) -> int:
    words = ["slo", "export", "--slos", str(ROOT / "slos.yaml"), "--name", "support-ttft"]
    return main([*words, "--prometheus", "--events", events, "--bad", "bad_total"], [SLO])


@pytest.mark.parametrize(
    "events",
    [
        "job:http_requests:rate5m",
        "requests_total{}",
        ' requests_total {job="x"} ',
        "requests_total{job=\"x\", code=~'5..',}",
        'requests_total{path="a}\\"b"}',
        '{__name__="requests_total"}',
        '{"http.requests", job!="x"}',
    ],
)
def test_a_metric_with_or_without_a_selector_is_used(
    events: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(events) == 0
    assert "record: slo:error_ratio" in capsys.readouterr().out


@pytest.mark.parametrize(
    "events",
    ["foo bar", "", "5xx_total", "a-b", "{}", "a{job=x}", 'a{job="x"', 'a{job="x"}[5m]', 'a{"x}'],
)
def test_what_promql_cannot_read_is_refused(
    events: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(events) == 2
    said = capsys.readouterr()
    assert f"--events is {events!r}, expected a metric's name" in said.err
    assert said.out == ""
