"""A budget in money as an objective: read, described, exported and read again."""

from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel.slo.model import Metric
from evenkeel.slo.query import slo_parts
from evenkeel_collector.commands.slo_text import check_text
from evenkeel_collector.slo.formats.openslo import dump_documents, slo_document

GOOD = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: acme-spend}
spec:
  indicator: {metric: cost, select: {tenant: acme}}
  objectives: [{value: 300}]
  timeWindow: [{duration: 1M, calendar: {timeZone: UTC}}]
"""


def _path(folder: Path, text: str) -> Path:
    path = folder / "slos.yaml"
    path.write_text(text)
    return path


def test_a_budget_is_read_and_described(tmp_path: Path) -> None:
    file = read_slo_file(_path(tmp_path, GOOD))
    (slo,) = file.slos

    assert (slo.indicator.metric, slo.indicator.budget, slo.target) == (Metric.COST, 300.0, 0)
    assert slo.min_bad == 0
    assert slo.scaled_no_data_s == 0
    assert not slo.indicator.is_requests
    (part,) = slo_parts(slo)
    assert part.budget_per_s * float(slo.scaled_period_s) == pytest.approx(300)
    text = check_text(file)
    assert "acme-spend: costs at most 300 over" in text
    assert "counts: every request with a cost; for tenant=acme" in text
    assert "6 in 1h" in text  # 2% of the budget


def test_an_exported_budget_is_the_same(tmp_path: Path) -> None:
    (slo,) = read_slo_file(_path(tmp_path, GOOD)).slos
    written = dump_documents([slo_document(slo)])
    (again,) = read_slo_file(_path(tmp_path, written)).slos

    assert again.indicator == slo.indicator
    assert (again.target, again.min_bad, again.windows) == (slo.target, slo.min_bad, slo.windows)


WRONG = {
    "no budget": ("{value: 300}", "{}", "cost needs objectives[0].value, what a period may cost"),
    "0": ("value: 300", "value: 0", "value is 0, expected an amount such as 100"),
    "a target": ("value: 300", "value: 300, target: 0.9", "cost takes no target"),
    "endings": ("tenant: acme}", "tenant: acme}, aborted: bad", "cost takes no aborted"),
}


@pytest.mark.parametrize(("good", "wrong", "said"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_budget_is_named_in_one_line(
    tmp_path: Path, good: str, wrong: str, said: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_slo_file(_path(tmp_path, GOOD.replace(good, wrong)))
    assert said in str(caught.value)
    assert "SLO 'acme-spend'" in str(caught.value)
