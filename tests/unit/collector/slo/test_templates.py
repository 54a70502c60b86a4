"""Every template is a valid document."""

from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo.file.slo_file import read_slo_file
from evenkeel_collector.slo.templates import Template, find_template, read_templates

AN_SLO = find_template("chat").text


@pytest.mark.parametrize("template", read_templates().values(), ids=lambda t: t.name)
def test_a_template_is_a_valid_document(tmp_path: Path, template: Template) -> None:
    path = tmp_path / "slos.yaml"
    text = template.text if "kind: SLO" in template.text else f"{AN_SLO}---\n{template.text}"
    path.write_text(text)
    file = read_slo_file(path)
    names = [rule.name for rule in file.rules] or [slo.name for slo in file.slos]
    assert names == [template.name]


def test_an_unknown_template_names_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match="no template 'chatt'; did you mean 'chat'"):
        find_template("chatt")


# LLM_LATENCY_LIMITS of MLCommons' submission checker, round v6.0, in milliseconds: TTFT, TPOT.
MLPERF_MS = {
    "llama2-70b-server": (2000, 200),
    "llama2-70b-interactive": (450, 40),
    "llama31-405b-server": (6000, 175),
    "llama31-405b-interactive": (4500, 80),
    "llama31-8b-server": (2000, 100),
    "llama31-8b-interactive": (500, 30),
    "mixtral-8x7b-server": (2000, 200),
    "deepseek-r1-server": (2000, 80),
    "deepseek-r1-interactive": (1500, 15),
    "gpt-oss-120b-server": (3000, 80),
    "gpt-oss-120b-interactive": (2000, 15),
}


def test_the_limits_of_mlperf_are_those_of_its_submission_checker(tmp_path: Path) -> None:
    found = {}
    for template in read_templates().values():
        if template.name.startswith("mlperf-"):
            path = tmp_path / f"{template.name}.yaml"
            path.write_text(template.text)
            (slo,) = read_slo_file(path).slos
            assert float(slo.target) == 0.99
            limits = [round(seconds * 1000) for seconds in slo.indicator.judged.values()]
            found[template.name.removeprefix("mlperf-")] = tuple(limits)
    assert found == MLPERF_MS
