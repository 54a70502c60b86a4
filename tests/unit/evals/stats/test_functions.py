"""`evenkeel eval stats`: the table of docs/inside/statistics.md, by name, JSON in and JSON out."""

import argparse
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_evals.commands.eval import EVAL
from evenkeel_evals.stats.functions import MODULE_OF_FUNCTION, answer

# Function, an input, and the names of its output.
CASES: dict[str, tuple[dict[str, Any], set[str]]] = {
    "paired_binary": (
        {"n11": 5, "n10": 3, "n01": 1, "n00": 2},
        {"n", "delta", "p_exact", "p_midp", "p_asymptotic", "p_cc", "ci95"},
    ),
    "clustered_mean": (
        {"scores": [1, 0, 1], "clusters": ["a", "a", "b"]},
        {"mean", "se_iid", "se_cr0", "se_cr1"},
    ),
    "sample_size_paired": (
        {
            "alpha": 0.05,
            "power": 0.8,
            "delta": 0.1,
            "omega2": 0.1,
            "var_a": 0.1,
            "var_b": 0.1,
            "k_a": 1,
            "k_b": 1,
        },
        {"n"},
    ),
    "proportion": ({"x": 3, "n": 9}, {"wilson", "clopper_pearson"}),
    "multiplicity": ({"p": [0.01, 0.2], "alpha": 0.05}, {"bonferroni", "holm", "fdr_bh"}),
    "shift_unpaired": (
        {"x": [1, 2, 3], "y": [2, 3, 4, 5]},
        {"u", "p_greater", "p_two_sided", "hodges_lehmann", "ci95"},
    ),
    "shift_paired": (
        {"x": [1, 2, 3], "y": [2, 3, 5]},
        {"v", "p_greater", "p_two_sided", "pseudo_median", "ci95"},
    ),
    "quantiles": ({"x": [1, 2, 3], "q": 0.5}, {"harrell_davis", "linear"}),
    "quantile_ci": (
        {"n": 20, "q": 0.99, "level": 0.95},
        {"lower_rank", "upper_rank", "coverage"},
    ),
    "noninferior_latency": (
        {"a": [1, 2, 3], "b": [1.1, 2, 3], "margin_ratio": 1.05},
        {"ratio", "upper95", "p", "verdict"},
    ),
    "noninferior_accuracy": (
        {"n": 50, "n10": 2, "n01": 1, "margin": 0.05},
        {"delta", "z", "p", "lower90", "verdict"},
    ),
    "evalue_discordant": ({"k": 5, "n": 6, "prior": 1}, {"log_e", "e", "anytime_p"}),
    "confidence_sequence": ({"alpha": 0.05, "rho": 1, "v": 3}, {"bound"}),
    "kappa": ({"table": [[4, 1], [2, 5]]}, {"kappa", "std_error"}),
    "judge_swap": ({"pairs": [["A", "B"]]}, {"verdicts", "flip_rate"}),
    "judge_corrected": (
        {"human": [1, 0], "judge_on_human": [1, 1], "judge_sum": 7, "judge_n": 10},
        {"judge_only", "estimate", "ci95"},
    ),
    "mcnemar_power": ({"n": 50, "p10": 0.2, "p01": 0.05, "alpha": 0.05}, {"power"}),
    "permutation_paired": ({"a": [1, 2], "b": [2, 4]}, {"delta", "p_two_sided"}),
}


def test_every_function_has_a_case() -> None:
    assert set(CASES) == set(MODULE_OF_FUNCTION)


@pytest.mark.parametrize("name", CASES)
def test_input_and_output_have_the_documented_names(name: str) -> None:
    payload, expected = CASES[name]
    assert set(json.loads(answer(name, json.dumps(payload)))) == expected


@pytest.mark.parametrize("name", CASES)
def test_a_missing_and_an_unknown_name_are_refused(name: str) -> None:
    payload = dict(CASES[name][0])
    with pytest.raises(ConfigurationError, match="has no argument 'extra'"):
        answer(name, json.dumps({**payload, "extra": 1}))
    missing = next(iter(payload))
    del payload[missing]
    with pytest.raises(ConfigurationError, match=f"needs '{missing}'"):
        answer(name, json.dumps(payload))


@pytest.mark.parametrize("name", CASES)
def test_nonsense_is_one_line_and_no_traceback(name: str) -> None:
    payload = CASES[name][0]
    for nonsense in (None, "x", [], {}, -1, 1e308, True, [[]], [None]):
        for key in payload:
            try:
                text = answer(name, json.dumps({**payload, key: nonsense}))
            except ConfigurationError as error:
                assert "\n" not in str(error)
            else:
                assert "NaN" not in text and "Infinity" not in text


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"x": NaN, "n": 2}', '{"x": Infinity, "n": 2}'])
def test_what_is_not_an_object_of_finite_numbers_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        answer("proportion", text)


def test_an_unbounded_rank_is_null() -> None:
    text = answer("quantile_ci", '{"n": 20, "q": 0.99, "level": 0.95}')
    assert json.loads(text)["upper_rank"] is None


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_the_command_prints_json_only(
    flags: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    EVAL.configure(parser)
    monkeypatch.setattr("sys.stdin", io.StringIO('{"x": 1, "n": 4}'))
    args = parser.parse_args(["stats", "proportion", *flags])
    assert args.run(args) == 0
    out, err = capsys.readouterr()
    assert set(json.loads(out)) == {"wilson", "clopper_pearson"}
    assert err == ""


def test_no_standard_input_is_an_empty_one(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = argparse.ArgumentParser()
    EVAL.configure(parser)
    monkeypatch.setattr("sys.stdin", None)
    args = parser.parse_args(["stats", "proportion"])
    with pytest.raises(ConfigurationError, match="the input is not JSON"):
        args.run(args)


def test_an_unknown_function_is_refused_before_input_is_read() -> None:
    parser = argparse.ArgumentParser()
    EVAL.configure(parser)
    args = parser.parse_args(["stats", "nope"])
    with pytest.raises(ConfigurationError, match="no statistic is named 'nope'"):
        args.run(args)


def test_docs_list_every_function() -> None:
    text = (Path(__file__).parents[4] / "docs" / "inside" / "statistics.md").read_text(
        encoding="utf-8"
    )
    assert set(re.findall(r"^### `(\w+)`", text, re.MULTILINE)) == set(MODULE_OF_FUNCTION)
