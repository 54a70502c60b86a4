"""Inspect logs: their questions, and the scorer the log names."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_evals.dataset.imports.files import import_file
from evenkeel_evals.scorers.base import Label, make_scorer


def log(scorers: list[dict[str, Any]], samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "t", "scorers": scorers},
        "samples": samples,
    }


SAMPLES = [
    {"id": 1, "epoch": 1, "input": "Capital?", "target": ["Paris", "It is Paris"]},
    {"id": 1, "epoch": 2, "input": "Capital?", "target": ["Paris", "It is Paris"]},
    {
        "id": "x",
        "epoch": 1,
        "input": [{"role": "user", "content": "Which?"}],
        "target": "B",
        "choices": ["red", "blue"],
    },
    {"id": "y", "epoch": 1, "input": "Do it", "target": "z", "sandbox": "docker"},
]


@pytest.mark.parametrize(
    ("scorer", "right", "wrong"),
    [
        ({"name": "includes"}, "yes, PARIS it is", "Rome"),
        ({"name": "includes", "options": {"ignore_case": False}}, "Paris!", "PARIS"),
        ({"name": "match"}, "So: paris.", "Paris, perhaps"),
        ({"name": "inspect_ai/match", "options": {"location": "begin"}}, " paris, yes", "In Paris"),
        ({"name": "match", "options": {"location": "exact"}}, "Paris.", "In Paris"),
        ({"name": "match", "options": {"location": "any"}}, "in paris, yes", "Rome"),
    ],
)
def test_the_logs_scorer_is_kept_and_any_target_will_do(
    scorer: dict[str, Any], right: str, wrong: str, tmp_path: Path
) -> None:
    (tmp_path / "l.json").write_text(json.dumps(log([scorer, {"name": "other"}], SAMPLES)))
    found = import_file("inspect", tmp_path / "l.json")
    row = found.rows[0]
    judge = make_scorer(row["scorer"], row["reference"])
    assert judge.score(right).label is Label.RIGHT
    assert judge.score("it is Paris").label is Label.RIGHT
    assert judge.score(wrong).label is Label.WRONG
    assert [row["id"] for row in found.rows] == ["1", "x"]
    assert "'other' is skipped" in found.problems[0]
    assert found.problems[1] == "l.json:4: has sandbox, which an item cannot hold"


@pytest.mark.parametrize(
    ("scorer", "why"),
    [
        ({"name": "model_graded_qa"}, "'model_graded_qa' has no counterpart"),
        ({"name": "match", "options": {"numeric": True}}, "only at the end"),
    ],
)
def test_other_scorers_are_named(scorer: dict[str, Any], why: str, tmp_path: Path) -> None:
    (tmp_path / "l.json").write_text(json.dumps(log([scorer], SAMPLES)))
    found = import_file("inspect", tmp_path / "l.json")
    assert len(found.rows) == 1 and why in found.problems[0]


def test_scores_name_the_scorer_that_a_header_lacks(tmp_path: Path) -> None:
    sample = {"id": 1, "input": "?", "target": " No", "scores": {"match": {"value": "C"}}}
    (tmp_path / "l.json").write_text(json.dumps({"eval": {"task": "t"}, "samples": [sample]}))
    row = import_file("inspect", tmp_path / "l.json").rows[0]
    assert make_scorer(row["scorer"], row["reference"]).score("No.").label is Label.RIGHT


def test_archives(tmp_path: Path) -> None:
    path = tmp_path / "l.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({"eval": {"scorers": [{"name": "match"}]}}))
        for number, sample in enumerate(SAMPLES):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))
    assert next(row["scorer"] for row in import_file("inspect", path).rows) == {
        "name": "ends_with",
        "strip": True,
        "case_sensitive": False,
    }


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a.json": "{}"}, "has no header.json"),
        ({"header.json": "[]"}, "is not an object"),
        ({"header.json": "{"}, "is not JSON"),
        ({"header.json": "{}", "samples/1.json": "x" * 70_000_000}, "is larger than 64 MiB"),
    ],
)
def test_archives_that_are_none(content: dict[str, str], message: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "l.eval", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    with pytest.raises(ConfigurationError, match=message):
        import_file("inspect", tmp_path / "l.eval")


def test_an_archive_packed_in_an_unknown_way(tmp_path: Path) -> None:
    path = tmp_path / "l.eval"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.json", "{}")
    # Method 93, zstd, in the local header and in the directory.
    content = bytearray(path.read_bytes())
    directory = content.index(b"PK\x01\x02")
    content[8:10] = content[directory + 10 : directory + 12] = (93).to_bytes(2, "little")
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="inspect log convert --to json"):
        import_file("inspect", path)
