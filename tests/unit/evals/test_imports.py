"""Files of other tools become datasets; what has no counterpart is named with its line."""

import json
from pathlib import Path

import pytest

from evals.dataset import load_dataset
from evals.dataset_lock import (
    Difference,
    compare,
    hash_items,
    next_version,
    read_lock,
    write_lock,
)
from evals.imports import Imported, import_file
from evals.scorers import Label, make_scorer
from evenkeel.cli import main
from evenkeel.errors import ConfigurationError


def read(kind: str, name: str, text: str, tmp_path: Path) -> Imported:
    (tmp_path / name).write_text(text, encoding="utf-8")
    return import_file(kind, tmp_path / name)


def scores(imported: Imported, answers: list[str]) -> list[Label]:
    return [
        make_scorer(row["scorer"], row["reference"]).score(answer).label
        for row, answer in zip(imported.rows, answers, strict=True)
    ]


def test_gsm8k(tmp_path: Path) -> None:
    lines = [
        {"question": "Two and two?", "answer": "2+2=<<2+2=4>>4\n#### 4"},
        {"question": "Much?", "answer": "#### -1,250"},
        {"question": "None?", "answer": "forgot"},
    ]
    found = read("gsm8k", "g.jsonl", "\n".join(map(json.dumps, lines)), tmp_path)
    assert [row["reference"] for row in found.rows] == ["4", "-1250"]
    assert scores(found, ["So it is 4.", "−1,250"]) == [Label.RIGHT, Label.RIGHT]
    assert found.problems == ("g.jsonl:3: its answer does not end with #### and a number",)


def test_csv_and_jsonl_take_the_usual_names(tmp_path: Path) -> None:
    table = 'id,question,expected,tags\nq1,"Open, when?","9 to 5","hours,plain"\nq2,Where?,,\n'
    found = read("csv", "t.csv", table, tmp_path)
    assert found.rows == (
        {
            "id": "q1",
            "messages": [{"role": "user", "content": "Open, when?"}],
            "reference": "9 to 5",
            "scorer": "normalised",
            "tags": ["hours", "plain"],
        },
    )
    assert found.problems[0].startswith("t.csv:3: has none of reference, ideal, target")
    line = json.dumps({"prompt": "2+2", "output": 4, "scorer": "numeric"})
    rows = read("jsonl", "t.jsonl", f"{line}\n[1]\n{line[:9]}\n", tmp_path)
    assert (rows.rows[0]["id"], len(rows.problems)) == ("t-1", 2)
    empty = '{"question": " ", "answer": "x"}'
    problems = read("jsonl", "t.jsonl", f"{line}\n{empty}\n", tmp_path).problems
    assert problems == ("t.jsonl:2: its question is empty",)


def test_openai_evals(tmp_path: Path) -> None:
    sample = {
        "input": [{"role": "system", "content": "Short."}, {"role": "user", "content": "Capital?"}],
        "ideal": ["Paris", "paris"],
    }
    found = read("openai", "s.jsonl", json.dumps(sample), tmp_path)
    assert found.rows[0]["messages"] == sample["input"]
    assert scores(found, ["paris"]) == [Label.RIGHT]


def test_inspect_choices_ask_for_the_letter(tmp_path: Path) -> None:
    samples = [
        {"input": "Which?", "choices": ["red", "blue"], "target": "B", "id": 7},
        {"input": "Say it.", "target": "hello there"},
        {"input": "Which?", "choices": ["red"], "target": "C"},
    ]
    found = read("inspect", "s.json", json.dumps(samples), tmp_path)
    assert found.rows[0]["id"] == "7"
    assert "B) blue" in found.rows[0]["messages"][0]["content"]
    assert scores(found, ["(B) blue", "Well, hello there!"]) == [Label.RIGHT, Label.RIGHT]
    assert found.problems == ("s.json:3: target 'C' is none of the choices A",)


def test_promptfoo(tmp_path: Path) -> None:
    config = """
prompts: ["Translate to {{language}}: {{ text }}", other]
providers: [openai:x]
tests:
  - vars: {language: French, text: Hello}
    assert: [{type: icontains, value: bonjour}]
  - vars: {language: German, text: Hi}
    assert: [{type: is-json, value: {type: object}}]
  - vars: {language: Welsh}
    assert: [{type: equals, value: x}]
  - vars: {language: a, text: b}
    assert: [{type: llm-rubric, value: nice}]
"""
    found = read("promptfoo", "p.yaml", config, tmp_path)
    assert found.rows[0]["messages"][0]["content"] == "Translate to French: Hello"
    assert scores(found, ["Bonjour!", "{}"]) == [Label.RIGHT, Label.RIGHT]
    assert "p.yaml:9: has no value for the variable 'text'" in found.problems
    assert "assertion 'llm-rubric' has no counterpart" in found.problems[1]


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("excel", "", "'excel' is unknown; known: csv, gsm8k"),
        ("jsonl", "\n", "holds nothing that can be imported"),
        ("promptfoo", "a: [", "is not YAML"),
        ("promptfoo", "prompts: [file://p.txt]\ntests: []", "is no text of its own"),
        ("inspect", "[1", "is not JSON"),
    ],
)
def test_what_cannot_be_imported(kind: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read(kind, "f", text, tmp_path)


def test_a_changed_item_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "faq.csv"
    source.write_text("id,question,answer\n" + "".join(f"q{i},Ask {i}?,{i}\n" for i in range(9)))
    folder = tmp_path / "faq"
    assert main(["eval", "import", "csv", str(source), "--into", str(folder)]) == 0
    assert load_dataset(folder).problems == ()
    items = folder / "faq.jsonl"
    lines = items.read_text().splitlines()
    lines[2] = lines[2].replace('"2"', '"two"')
    items.write_text("\n".join([*lines[:8], lines[8].replace("q8", "new")]) + "\n")
    problems = load_dataset(folder).problems
    assert "not what version 1.0.0 locked; added: new; changed: q2; removed: q8" in problems[1]
    assert main(["eval", "lock", str(folder), "--check"]) == 1
    assert main(["eval", "lock", str(folder)]) == 2
    assert "--note" in capsys.readouterr().err
    assert main(["eval", "lock", str(folder), "--note", "Corrected two."]) == 0
    dataset = load_dataset(folder)
    assert (dataset.version, dataset.problems) == ("2.0.0", ())
    changelog = (folder / "CHANGELOG.md").read_text()
    assert changelog.index("## 2.0.0") < changelog.index("## 1.0.0")
    assert "Corrected two." in changelog and "- changed: q2" in changelog
    assert main(["eval", "lock", str(folder), "--check"]) == 0
    assert main(["eval", "import", "csv", str(source), "--into", str(folder)]) == 2


def test_the_card_keeps_its_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"id": "a", "x": 1}\n')
    card = 'name = "d"\nversion = "1.0.0"\nlicence = "MIT"\n\n[tags]\nversion = 3\n'
    path.with_suffix(".toml").write_text(card)
    write_lock(path, "1.1.0", Difference(("a",), (), ()), "x")
    text = path.with_suffix(".toml").read_text()
    assert 'version = "1.1.0"' in text and "[tags]\nversion = 3" in text and "MIT" in text
    lock = read_lock(path)
    assert lock is not None
    # Spaces and the order of keys are no change.
    assert compare(lock, hash_items(b'{"x":1,  "id":"a"}')).is_empty


@pytest.mark.parametrize(
    ("difference", "version"),
    [
        (Difference(("n",), (), ()), "1.3.0"),
        (Difference(("n",), ("c",), ()), "2.0.0"),
        (Difference((), (), ("r",)), "2.0.0"),
    ],
)
def test_versions(difference: Difference, version: str) -> None:
    assert next_version("1.2.3", difference) == version
