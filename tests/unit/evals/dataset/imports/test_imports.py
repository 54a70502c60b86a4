"""Other tools' files become datasets; what has no counterpart is reported with its line."""

import json
from pathlib import Path
from typing import Any

import pytest

from evenkeel.cli import main
from evenkeel.errors import ConfigurationError
from evenkeel_evals.dataset.dataset import load_dataset
from evenkeel_evals.dataset.imports.files import Imported, import_file
from evenkeel_evals.dataset.version import (
    Difference,
    compare,
    hash_items,
    next_version,
    read_lock,
    write_lock,
)
from evenkeel_evals.scorers.base import Label, make_scorer


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
    table = (
        'id,question,expected,tags\nq1,"Open, when?","9 to 5","hours,plain,hours"\nq2,Where?,,\n'
    )
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


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_tables_from_spreadsheets(delimiter: str, tmp_path: Path) -> None:
    table = 'id|question|expected\nq1|"Open; when?"|"9, to 5"\n'.replace("|", delimiter)
    (row,) = read("csv", "t.csv", table, tmp_path).rows
    assert (row["messages"][0]["content"], row["reference"]) == ("Open; when?", "9, to 5")


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
    assert found.problems == ("s.json:3: target 'C' is not one of the choices A",)


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("excel", "", "'excel' is unknown; known: chat, csv, gsm8k"),
        ("jsonl", "\n", "has nothing to import"),
        ("promptfoo", "a: [", "is not YAML"),
        ("promptfoo", "prompts: [file://p.txt]\ntests: []", "p.txt' does not exist"),
        ("promptfoo", "prompts: [x]", "no prompts and tests"),
        ("promptfoo", "a: &a [1]\nb: *c", "is not YAML"),
        ("langfuse", "[]", "has nothing"),
        ("csv", "a\n" + '"' * 3, "has nothing"),
        ("inspect", "[1", "is not JSON"),
        ("inspect", "[" * 100_000, "is not JSON"),
    ],
)
def test_what_cannot_be_imported(kind: str, text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=message):
        read(kind, "f", text, tmp_path)


def test_openai_match_is_startswith(tmp_path: Path) -> None:
    line = json.dumps({"input": "Capital?", "ideal": ["Paris", "The capital is Paris"]})
    found = read("openai", "s.jsonl", f"{line}\n" * 3, tmp_path)
    answers = ["Paris, of course", "It is Paris", "paris"]
    assert scores(found, answers) == [Label.RIGHT, Label.WRONG, Label.WRONG]


@pytest.mark.parametrize(
    ("entry", "letter"),
    [
        ({"question": "Which?", "choices": ["a", "b", "c", "d"], "answer": 2}, "C"),
        ({"ctx": "He", "endings": ["ran", "sat"], "label": "1"}, "B"),
        (
            {
                "question": "?",
                "choices": {"text": ["x", "y"], "label": ["1", "2"]},
                "answerKey": "2",
            },
            "B",
        ),
        ({"question": "?", "choices": {"A": "x", "B": "y"}, "answer": "A"}, "A"),
        ({"question": "?", "choices": ["red", "blue"], "answer": "blue"}, "B"),
        ({"row": {"question": "?", "choices": ["red", "blue"], "answer": 0}}, "A"),
    ],
)
def test_choices_with_an_integer_a_label_or_a_text(
    entry: dict[str, Any], letter: str, tmp_path: Path
) -> None:
    found = read("huggingface", "m.jsonl", json.dumps(entry), tmp_path)
    scorer = make_scorer(found.rows[0]["scorer"], found.rows[0]["reference"])
    for answer in (
        letter,
        f"({letter}) so",
        f"**{letter}**",
        f"Answer: {letter}",
        f"the answer is {letter}.",
    ):
        assert scorer.score(answer).label is Label.RIGHT, answer
    other = "A" if letter != "A" else "B"
    for answer in (other, f"{other}, not {letter}", "A good choice", ""):
        assert scorer.score(answer).label is Label.WRONG, answer


@pytest.mark.parametrize("letter", ["A", "B", "I"])
def test_every_letter_is_chosen_by_the_same_words(letter: str, tmp_path: Path) -> None:
    line = {"question": "?", "choices": list("abcdefghi"), "answer": letter}
    (row,) = read("jsonl", "m.jsonl", json.dumps(line), tmp_path).rows
    scorer = make_scorer(row["scorer"], row["reference"])
    right = ("{}", "{}.", "{} is correct.", "The answer is {} because it is.", "{} because it is")
    wrong = ("{}n apple", "It is {}", "C, not {}", "Answers: {}")
    assert all(scorer.score(said.format(letter)).label is Label.RIGHT for said in right)
    assert all(scorer.score(said.format(letter)).label is Label.WRONG for said in wrong)


@pytest.mark.parametrize("answer", ["A good choice is C.", "I think it is C.", "Answer: I say C"])
def test_a_word_is_no_letter(answer: str, tmp_path: Path) -> None:
    for letter in "AI":
        line = {"question": "?", "choices": list("abcdefghi"), "answer": letter}
        (row,) = read("jsonl", "m.jsonl", json.dumps(line), tmp_path).rows
        assert make_scorer("regex", row["reference"]).score(answer).label is Label.WRONG


def test_choices_counted_from_one_are_noticed(tmp_path: Path) -> None:
    lines = [{"question": f"q{i}", "choices": ["w", "x", "y", "z"], "answer": i} for i in (1, 4, 2)]
    found = read("jsonl", "m.jsonl", "\n".join(map(json.dumps, lines)), tmp_path)
    assert scores(found, ["A", "D", "B"]) == [Label.RIGHT] * 3
    assert found.notes[0].startswith("m.jsonl:1 and 2 more: answers are counted from 1")
    lines[0]["answer"] = 0
    found = read("jsonl", "m.jsonl", "\n".join(map(json.dumps, lines)), tmp_path)
    assert found.problems == ("m.jsonl:2: answer 4 is not one of the choices 0 to 3",)


@pytest.mark.parametrize(
    ("kind", "entry", "question", "reference"),
    [
        ("jsonl", {"instruction": "Add.", "input": "2, 2", "output": "4"}, "Add.\n\n2, 2", "4"),
        (
            "jsonl",
            {"context": "C.", "question": "Q?", "answers": {"text": ["a", "a", "b"]}},
            "C.\n\nQ?",
            ["a", "b"],
        ),
        ("jsonl", {"question": "Q?", "answer": 4.5}, "Q?", 4.5),
        (
            "chat",
            {
                "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "Q?"}]},
                    {"role": "assistant", "content": "A."},
                ]
            },
            "Q?",
            "A.",
        ),
        (
            "jsonl",
            {"conversations": [{"from": "human", "value": "Q?"}, {"from": "gpt", "value": "A."}]},
            "Q?",
            "A.",
        ),
        (
            "langfuse",
            {"id": "x", "input": {"question": "Q?"}, "expectedOutput": {"answer": "A."}},
            "Q?",
            "A.",
        ),
        (
            "langfuse",
            {
                "input": {"messages": [{"role": "user", "content": "Q?"}]},
                "expected_output": {"role": "assistant", "content": "A."},
            },
            "Q?",
            "A.",
        ),
        ("langfuse", {"input": "Q?", "expectedOutput": {"a": 1, "b": 2}}, "Q?", {"a": 1, "b": 2}),
    ],
)
def test_shapes(
    kind: str, entry: dict[str, Any], question: str, reference: object, tmp_path: Path
) -> None:
    found = read(kind, "s.jsonl", json.dumps(entry), tmp_path)
    row = found.rows[0]
    assert (row["messages"][-1]["content"], row["reference"]) == (question, reference)


def test_headers_of_tables_as_people_write_them(tmp_path: Path) -> None:
    table = "ID,Question, Expected Output ,Tags\nq1,Open?,Yes,hours\n"
    (row,) = read("csv", "t.csv", table, tmp_path).rows
    found = (row["id"], row["messages"][0]["content"], row["reference"], row["tags"])
    assert found == ("q1", "Open?", "Yes", ["hours"])
    # A name that is written as expected comes first.
    (row,) = read("csv", "t.csv", "Question,question,answer\nold,new,Yes\n", tmp_path).rows
    assert row["messages"][0]["content"] == "new"
    # It does so among all names of an answer, and in rows in which it is empty.
    table = "question,answer,Target\nOpen?,Yes,hours\nClosed?,,hours\n"
    (row,) = read("csv", "t.csv", table, tmp_path).rows
    assert row["reference"] == "Yes"
    (row,) = read("csv", "t.csv", "Prompt,Expected-Output\nOpen?,Yes\n", tmp_path).rows
    assert (row["messages"][0]["content"], row["reference"]) == ("Open?", "Yes")


def test_a_table_without_a_question_says_what_it_has(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r", ctx, only 'Frage', 'A'"):
        read("csv", "t.csv", "Frage,A\nOffen?,Ja\n", tmp_path)


def test_langfuse_tables(tmp_path: Path) -> None:
    table = (
        "id,input,expectedOutput,metadata,status\n"
        'a,"{""question"": ""Open?""}","""yes""",{},ACTIVE\n'
        "b,Old?,no,,ARCHIVED\n"
        'c,"{""x"": 1, ""y"": 2}",no,,ACTIVE\n'
        "d,Asked?,,,ACTIVE\n"
    )
    found = read("langfuse", "l.csv", table, tmp_path)
    assert [(r["id"], r["messages"][0]["content"], r["reference"]) for r in found.rows] == [
        ("a", "Open?", "yes")
    ]
    assert [p.partition(": ")[2][:24] for p in found.problems] == [
        "is archived",
        "its input has none of me",
        "has none of expectedOutp",
    ]
    answer = json.dumps({"data": [{"id": "z", "input": "Q", "expectedOutput": "A"}], "meta": {}})
    assert read("langfuse", "api.json", answer, tmp_path).rows[0]["id"] == "z"


def test_what_a_conversation_cannot_hold_is_named(tmp_path: Path) -> None:
    entries: list[dict[str, Any]] = [
        {"messages": [{"role": "user", "content": "Q"}]},
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        {
            "messages": [
                {"role": "user", "content": "Q"},
                {"role": "assistant", "content": None, "tool_calls": [{}]},
            ]
        },
        {"messages": [{"role": "narrator", "content": "Q"}]},
        {"messages": [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "A"}]},
    ]
    found = read("chat", "c.jsonl", "\n".join(map(json.dumps, entries)), tmp_path)
    assert len(found.rows) == 1
    assert [p.partition(": ")[2][:26] for p in found.problems] == [
        "its messages do not end wi",
        "its question is neither a ",
        "its question has tool call",
        "role 'narrator' is not one",
    ]


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
    assert "differs from the lock of 1.0.0; added: new; changed: q2; removed: q8" in problems[1]
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


def test_an_import_says_how_answers_will_be_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "faq.jsonl"
    entries = [("How do I pay?", "By card."), ("How many?", 7), ("Where?", "Here")]
    source.write_text("".join(json.dumps(dict(question=q, answer=a)) + "\n" for q, a in entries))
    assert main(["eval", "import", "jsonl", str(source), "--into", str(tmp_path / "faq")]) == 0
    assert "scored by normalised (2), numeric (1)\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--into", "source.csv"], "--into source.csv is a file; use a new folder"),
        (["--into", "source.csv/new"], "source.csv/new cannot be written: Not a directory"),
        (["--into", "x" * 300], "cannot be read: File name too long"),
        (["--into", "new", "--limit", "0"], "--limit: '0' is not a whole number of 1 or more"),
        (["--into", "new", "--limit", "-1"], "--limit: '-1' is not a whole number of 1 or more"),
    ],
)
def test_a_wrong_flag_is_one_line_and_leaves_no_folder(
    flags: list[str],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("source.csv").write_text("question,answer\nAsk?,1\nAgain?,2\n")
    assert main(["eval", "import", "csv", "source.csv", *flags]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert problem in line
    assert [path.name for path in tmp_path.iterdir()] == ["source.csv"]


@pytest.mark.parametrize(
    "verb",
    [
        "run d --baseline a --candidate b --warmup -1",
        "run d --baseline a --candidate b --limit 0",
        "run d --baseline a --candidate b --repeats 0",
        "plan d --limit 0",
        "calibrate d --side a --runs 0",
        "calibrate d --side a --resamples 19",
        "bisect d --gate accuracy>=-1% --limit 0",
        "bisect d --gate accuracy>=-1% --repeats 1.5",
    ],
)
def test_every_count_has_a_lower_limit(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", *verb.split()]) == 2
    assert "is not a whole number of" in capsys.readouterr().err


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
    # Spacing and key order are not changes.
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
