"""`evenkeel eval judge` from files to exit code, without requests or fakes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from evenkeel.cli import main

N = 400
Answers = Mapping[str, Any]


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    folder = tmp_path / "sums"
    folder.mkdir()
    rows = [
        {
            "id": f"q{i}",
            "messages": [{"role": "user", "content": f"{i}?"}],
            "reference": str(i),
            "scorer": "numeric",
            "tags": ["odd" if i % 2 else "even"],
        }
        for i in range(N)
    ]
    write(folder / "sums.jsonl", rows)
    (folder / "sums.toml").write_text('version = "1"\n')
    return folder


def write(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def answers(
    path: Path, is_right: Callable[[int], bool] = lambda i: True, **more: Callable[[int], Any]
) -> Path:
    return write(
        path,
        [
            {
                "id": f"q{i}",
                "answer": f"It is {i if is_right(i) else -1}",
                **{key: value(i) for key, value in more.items()},
            }
            for i in range(N)
        ],
    )


def judge(dataset: Path, a: Path, b: Path, *flags: str) -> list[str]:
    return [
        "eval",
        "judge",
        "--dataset",
        str(dataset),
        "--baseline",
        str(a),
        "--candidate",
        str(b),
        *flags,
    ]


def test_a_negative_seed_is_refused(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = answers(tmp_path / "a.jsonl", ttft_s=lambda i: 0.1 + i / N)
    assert main(judge(dataset, a, a, "--gate", "p95_ttft<=+5%", "--seed", "-1")) == 2
    assert "seed" in capsys.readouterr().err


def test_the_same_answers_are_no_worse(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = answers(tmp_path / "a.jsonl", lambda i: i % 4 > 0)
    assert main(judge(dataset, a, a)) == 0
    out = capsys.readouterr()
    assert "verdict: no worse" in out.out and "300 of 400 right" in out.out
    assert out.err == ""


def test_a_tag_named_overall_does_not_count_as_all_items(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    items = dataset / "sums.jsonl"
    rows = [json.loads(line) for line in items.read_text().splitlines()]
    write(items, [{**row, "tags": ["overall"] if i < 5 else []} for i, row in enumerate(rows)])
    a = answers(tmp_path / "a.jsonl")
    assert main(judge(dataset, a, a, "--json")) == 0
    gates = json.loads(capsys.readouterr().out)["gates"]
    found = [(g["slice"], g["pairs"], g["lost"]) for g in gates if g["gate"] == "accuracy>=-1%"]
    assert found == [("overall", 400, 0), ("tag:overall", 5, 0)]


def test_a_regression_exits_1_with_the_contracts_json(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = answers(tmp_path / "a.jsonl")
    b = answers(tmp_path / "b.jsonl", lambda i: i % 10 > 0)
    assert main(judge(dataset, a, b, "--json")) == 1
    record = json.loads(capsys.readouterr().out)
    assert record["verdict"] == "regressed"
    overall, errors, even = record["gates"][:3]
    assert (errors["gate"], errors["verdict"]) == ("errors<=+1%", "no worse")
    assert set(overall) == {
        "gate",
        "slice",
        "verdict",
        "effect",
        "low",
        "high",
        "pairs",
        "lost",
        "gained",
    }
    assert (overall["pairs"], overall["lost"], overall["gained"]) == (N, 40, 0)
    assert overall["effect"] == pytest.approx(-0.1)
    assert overall["low"] < -0.1 < overall["high"]
    assert (even["slice"], even["lost"], even["pairs"]) == ("even", 40, N // 2)
    assert record["baseline"]["accuracy"] == 1.0


def test_missing_twofold_and_unknown_ids_are_said(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = answers(tmp_path / "a.jsonl"), answers(tmp_path / "b.jsonl")
    rows = [json.loads(line) for line in a.read_text().splitlines()]
    write(a, [*rows[2:], {**rows[5], "answer": "other"}, {"id": "zz", "answer": "1"}])
    write(b, [json.loads(line) for line in b.read_text().splitlines()][1:])
    assert main(judge(dataset, a, b, "--json")) == 0
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert record["problems"] == [
        "a.jsonl:399: id 'q5' is already at a.jsonl:4, which is used",
        "item 'q0' of 400 answered in neither file: skipped",
        "baseline a: item 'q1' without an answer: unscored",
        "baseline a: item 'zz' not in the dataset: skipped",
    ]
    assert captured.err.splitlines() == [f"evenkeel: {line}" for line in record["problems"]]
    assert (record["num_pairs"], record["num_unmeasured"]) == (N - 1, 1)


def test_too_many_missing_answers_could_not_measure(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = answers(tmp_path / "a.jsonl"), answers(tmp_path / "b.jsonl")
    # Leaving out hard items must not make a candidate better.
    b.write_text("".join(b.read_text().splitlines(keepends=True)[:300]))
    assert main(judge(dataset, a, b)) == 3
    assert "could not measure: 100 of 400 pairs" in capsys.readouterr().out


def test_recorded_times_are_judged(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a = answers(tmp_path / "a.jsonl", e2e_s=lambda i: 1 + i % 7 / 10, ttft_s=lambda i: 0.1)
    b = answers(tmp_path / "b.jsonl", e2e_s=lambda i: 1.2 * (1 + i % 7 / 10), ttft_s=lambda i: 0.1)
    assert main(judge(dataset, a, b, "--gate", "accuracy>=-1%, shift_e2e<=+5%")) == 1
    out = capsys.readouterr().out
    assert "regressed: shift_e2e<=+5%" in out and "only fair if the two sides took turns" in out
    assert main(judge(dataset, a, b, "--gate", "shift_ttft<=+5%", "--json")) == 0
    gate = json.loads(capsys.readouterr().out)["gates"][0]
    assert (gate["lost"], gate["gained"], gate["effect"]) == (None, None, pytest.approx(0))
    assert main(judge(dataset, a, b, "--gate", "shift_tpot<=+5%")) == 3
    assert "needs" not in capsys.readouterr().out


def test_reports_have_the_same_bytes_twice(dataset: Path, tmp_path: Path) -> None:
    a = answers(tmp_path / "a.jsonl", trace_id=lambda i: "c" * 32)
    b = answers(tmp_path / "b.jsonl", lambda i: i != 3)
    for name in ("one", "two"):
        assert (
            main(
                judge(
                    dataset,
                    a,
                    b,
                    "--report",
                    str(tmp_path / name),
                    "--json",
                    "--allow-inconclusive",
                )
            )
            == 0
        )
    for file in ("run.json", "report.html", "report.md", "junit.xml", "manifest.json"):
        content = (tmp_path / "one" / file).read_bytes()
        assert content == (tmp_path / "two" / file).read_bytes()
    page = (tmp_path / "one" / "report.html").read_text()
    # Only answers with a trace id have a link.
    assert page.count("trace_id=") == page.count("c" * 32) // 2 == 1


def test_python_assertions_run_only_if_allowed(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (dataset / "checks.py").write_text(
        "def get_assert(output, context):\n    return output.endswith(context['reference'])\n"
    )
    rows = [json.loads(line) for line in (dataset / "sums.jsonl").read_text().splitlines()]
    for row in rows:
        row["scorer"] = {"name": "python", "file": "checks.py"}
    write(dataset / "sums.jsonl", rows)
    a = answers(tmp_path / "a.jsonl")
    assert main(judge(dataset, a, a)) == 2
    assert "'q0' and 399 more: python assertions run code" in capsys.readouterr().err
    assert main(judge(dataset, a, a, "--allow-python", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["baseline"]["accuracy"] == 1.0
    (dataset / "checks.py").unlink()
    assert main(judge(dataset, a, a, "--allow-python")) == 2
    assert "checks.py', a Python assertion, is missing from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gate", "preference>=-5%"], "needs a judge"),
        (["--gate", "speed<=1%"], "is unknown"),
        (["--judge", "none.toml"], "cannot be read"),
        (["--candidate", "none.jsonl"], "cannot be read"),
    ],
)
def test_bad_usage(
    flags: list[str],
    message: str,
    dataset: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    a = answers(tmp_path / "a.jsonl")
    assert main(judge(dataset, a, a, *flags)) == 2
    assert message in capsys.readouterr().err


def test_ids_of_another_dataset_and_rubrics_without_a_judge(
    dataset: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = write(tmp_path / "o.jsonl", [{"id": "x1", "answer": "1"}])
    assert main(judge(dataset, other, other)) == 2
    assert "first item is 'q0', the first answer in" in capsys.readouterr().err
    rows = [json.loads(line) for line in (dataset / "sums.jsonl").read_text().splitlines()]
    rows[0] |= {"scorer": "rubric", "reference": "is a number"}
    write(dataset / "sums.jsonl", rows)
    a = answers(tmp_path / "a.jsonl")
    assert main(judge(dataset, a, a)) == 2
    assert "item 'q0': rubric assertions need a judge model" in capsys.readouterr().err
    side = tmp_path / "side.toml"
    side.write_text('name = "side"\n')
    assert (
        main(
            [
                "eval",
                "run",
                str(dataset),
                "--baseline",
                str(side),
                "--candidate",
                str(side),
                "--allow-inconclusive",
            ]
        )
        == 2
    )
    assert "item 'q0': rubric assertions need a judge model" in capsys.readouterr().err


PRICES = """
[[model]]
name = "big"
input = 10
cached_input = 1
output = 30
source = "https://example.org/prices"
read = 2026-11-01
"""
USED = {"model": lambda i: "big", "input_tokens": lambda i: 100 + i, "output_tokens": lambda i: 20}


@pytest.fixture
def prices(tmp_path: Path) -> str:
    path = tmp_path / "prices.toml"
    path.write_text(PRICES)
    return str(path)


def test_a_dearer_candidate_regresses_the_gate_on_cost(
    dataset: Path, tmp_path: Path, prices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a = answers(tmp_path / "a.jsonl", **USED)
    b = answers(tmp_path / "b.jsonl", **{**USED, "output_tokens": lambda i: 60 + i % 5})
    flags = ("--gate", "accuracy>=-1%, cost<=+5%", "--prices", prices, "--json")
    assert main(judge(dataset, a, b, *flags)) == 1
    record = json.loads(capsys.readouterr().out)
    cost = next(g for g in record["gates"] if g["gate"] == "cost<=+5%")
    assert (cost["slice"], cost["verdict"], cost["pairs"]) == ("overall", "regressed", N)
    mean_a = sum((100 + i) * 10 + 600 for i in range(N))
    mean_b = sum((100 + i) * 10 + (60 + i % 5) * 30 for i in range(N))
    assert cost["effect"] == pytest.approx(mean_b / mean_a - 1)
    assert cost["low"] < cost["effect"] < cost["high"]
    assert (cost["lost"], cost["gained"]) == (None, None)


def test_cached_tokens_are_cheaper(
    dataset: Path, tmp_path: Path, prices: str, capsys: pytest.CaptureFixture[str]
) -> None:
    a = answers(tmp_path / "a.jsonl", **USED)
    b = answers(tmp_path / "b.jsonl", **USED, cached_tokens=lambda i: 96)
    flags = ("--gate", "cost<=+5%", "--prices", prices)
    assert main(judge(dataset, a, b, *flags)) == 0
    assert "USD" in capsys.readouterr().out


@pytest.mark.parametrize("more", [(), ("--allow-inconclusive",)], ids=["strict", "lenient"])
def test_a_missing_price_is_could_not_measure_and_never_0(
    dataset: Path,
    tmp_path: Path,
    prices: str,
    more: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
) -> None:
    a = answers(tmp_path / "a.jsonl", **USED)
    b = answers(tmp_path / "b.jsonl", **{**USED, "model": lambda i: "other"})
    flags = ("--gate", "accuracy>=-1%, cost<=+5%", "--prices", prices, "--json", *more)
    assert main(judge(dataset, a, b, *flags)) == 3
    record = json.loads(capsys.readouterr().out)
    assert record["verdict"] == "could not measure"
    assert "no price of 'other'" in record["headline"]
    cost = next(g for g in record["gates"] if g["gate"] == "cost<=+5%")
    assert (cost["effect"], cost["verdict"]) == (None, "inconclusive")


def test_a_flag_names_the_model_of_lines_that_do_not(
    dataset: Path, tmp_path: Path, prices: str
) -> None:
    tokens = {key: value for key, value in USED.items() if key != "model"}
    a, b = answers(tmp_path / "a.jsonl", **tokens), answers(tmp_path / "b.jsonl", **tokens)
    flags = ("--gate", "cost<=+5%", "--prices", prices)
    assert main(judge(dataset, a, b, *flags)) == 3
    models = ("--baseline-model", "big", "--candidate-model", "big")
    assert main(judge(dataset, a, b, *flags, *models)) == 0


def test_costs_that_the_lines_state_need_no_prices(dataset: Path, tmp_path: Path) -> None:
    a = answers(tmp_path / "a.jsonl", cost=lambda i: 0.01 + i / 1e5)
    b = answers(tmp_path / "b.jsonl", cost=lambda i: 0.02 + i / 1e5)
    assert main(judge(dataset, a, b, "--gate", "cost<=+5%")) == 1
    assert main(judge(dataset, a, a, "--gate", "cost<=+5%")) == 0
    assert main(judge(dataset, answers(a), a, "--gate", "cost<=+5%")) == 3
