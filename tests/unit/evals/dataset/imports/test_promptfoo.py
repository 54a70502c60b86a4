"""promptfoo configurations keep their meaning, or are reported with their line."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenkeel.cli import main
from evenkeel.errors import ConfigurationError
from evenkeel_evals.dataset.dataset import load_dataset
from evenkeel_evals.dataset.imports.files import Imported, import_file
from evenkeel_evals.scorers.base import Context, Label, make_scorer


def read(config: Any, folder: Path) -> Imported:
    text = config if isinstance(config, str) else yaml.safe_dump(config, sort_keys=False)
    (folder / "p.yaml").write_text(text, encoding="utf-8")
    return import_file("promptfoo", folder / "p.yaml")


def one(assertions: Any, folder: Path, **more: Any) -> Imported:
    test = {"vars": {"x": "Paris"}, "assert": assertions, **more}
    return read({"prompts": ["Ask {{x}}"], "tests": [test]}, folder)


def is_right(imported: Imported, answer: str, context: Context | None = None) -> bool | None:
    row = imported.rows[0]
    scorer = make_scorer(row["scorer"], row["reference"])
    label = scorer.score(answer, context or Context()).label
    return None if label is Label.UNSCORED else label is Label.RIGHT


@pytest.mark.parametrize(
    ("assertion", "right", "wrong"),
    [
        ({"type": "contains", "value": "{{x}}"}, "in Paris.", "in paris"),
        ({"type": "icontains", "value": "{{x}}"}, "in PARIS", "in Rome"),
        ({"type": "not-contains", "value": "Rome"}, "in rome", "in Rome"),
        ({"type": "contains", "value": 30}, "130 days", "3 0"),
        ({"type": "contains-any", "value": ["a b", "{{x}}"]}, "Paris", "A B"),
        ({"type": "contains-all", "value": 'one, "two, three"'}, "two, three one", "one two three"),
        ({"type": "icontains-any", "value": "ONE,TWO"}, "two", "three"),
        ({"type": "not-contains-any", "value": ["a", "b"]}, "c", "abc"),
        ({"type": "equals", "value": "{{x}}"}, "Paris", " Paris"),
        ({"type": "equals", "value": True}, "true", "True"),
        ({"type": "equals", "value": {"a": 1}}, '{"a": 1}', '```json\n{"a": 1}\n```'),
        ({"type": "starts-with", "value": "{{x}}"}, "Paris it is", "So Paris"),
        ({"type": "regex", "value": r"^(?<a>\d)-\d$"}, "1-2", "1-23"),
        ({"type": "is-json"}, "[1]", "so: [1]"),
        ({"type": "is-json", "value": "type: object\nrequired: [a]"}, '{"a": 1}', "{}"),
        (
            {"type": "contains-json", "value": {"required": ["a"]}},
            'see {"b": {"a": 1}} {"a": 2}',
            "{}",
        ),
        ({"type": "not-is-json"}, "no", "{}"),
        (
            {
                "type": "assert-set",
                "assert": [{"type": "contains", "value": "a"}, {"type": "contains", "value": "b"}],
            },
            "ab",
            "a",
        ),
        ({"$ref": "#/assertionTemplates/short"}, "ok", "no"),
    ],
)
def test_assertions_mean_the_same(assertion: Any, right: str, wrong: str, tmp_path: Path) -> None:
    config = {
        "prompts": ["Ask {{x}}"],
        "assertionTemplates": {"short": {"type": "equals", "value": "ok"}},
        "tests": [{"vars": {"x": "Paris"}, "assert": [assertion]}],
    }
    found = read(config, tmp_path)
    assert (is_right(found, right), is_right(found, wrong)) == (True, False)


def test_all_assertions_must_hold(tmp_path: Path) -> None:
    found = one(
        [
            {"type": "contains", "value": "a"},
            {"type": "latency", "threshold": 1500},
            {"type": "cost", "threshold": 0.01},
            {"type": "equals", "value": "x", "weight": 0},
        ],
        tmp_path,
    )
    assert is_right(found, "a", Context(e2e_s=1.5, cost=0.01)) is True
    assert is_right(found, "a", Context(e2e_s=1.6, cost=0.01)) is False
    assert is_right(found, "b") is False
    assert is_right(found, "a", Context(e2e_s=1.0)) is None
    assert any("weight 0" in note for note in found.notes)


@pytest.mark.parametrize(
    ("assertion", "why"),
    [
        ({"type": "javascript", "value": "true"}, "'javascript' has no counterpart"),
        ({"type": "contains", "value": "a", "transform": "x"}, "has 'transform'"),
        ({"type": "llm-rubric", "value": "x", "threshold": 0.8}, "with a threshold"),
        ({"type": "llm-rubric", "value": "x", "rubricPrompt": "y"}, "has 'rubricPrompt'"),
        ({"type": "assert-set", "assert": [], "threshold": 0.5}, "assert-set with a threshold"),
        ({"type": "contains", "value": ""}, "empty text"),
        ({"type": "contains", "value": "{{y}}"}, "no value for the variable 'y'"),
        ({"type": "contains", "value": "{{x | upper}}"}, "more than fill in variables"),
        ({"type": "regex", "value": "("}, "not a regular expression"),
        ({"type": "contains", "value": "file://../secret.txt"}, "outside the configuration"),
        ({"type": "python", "value": "file:///etc/passwd.py"}, "outside the configuration"),
        (
            {"type": "is-json", "value": {"$ref": "http://127.0.0.1:9/x"}},
            "refers to something outside",
        ),
        ({"$ref": "#/assertionTemplates/none"}, "which does not exist"),
        ({"type": "latency"}, "no threshold"),
        ("contains: x", "is not an object"),
    ],
)
def test_what_cannot_be_kept_is_named(assertion: Any, why: str, tmp_path: Path) -> None:
    good: dict[str, Any] = {"vars": {"x": "a"}, "assert": [{"type": "equals", "value": "b"}]}
    bad = {"vars": {"x": "a"}, "assert": [good["assert"][0], assertion]}
    found = read({"prompts": ["{{x}}"], "tests": [good, bad]}, tmp_path)
    assert len(found.rows) == 1 and len(found.problems) == 1
    assert found.problems[0].startswith("p.yaml:10: ") and why in found.problems[0]


def test_a_list_of_texts_is_a_test_for_each_combination(tmp_path: Path) -> None:
    config = {
        "prompts": ["{{greeting}}, {{name}} {{n}}"],
        "defaultTest": {
            "vars": {"greeting": ["Hi", "Bye"], "n": 1},
            "assert": [{"type": "contains", "value": "{{greeting}}"}],
        },
        "tests": [
            {
                "description": "both",
                "vars": {"name": ["Ann", "Bob"]},
                "assert": [{"type": "contains", "value": "{{name}}"}],
            },
            {"description": "both", "vars": {"name": "Cy", "greeting": "{{name}}!"}},
        ],
    }
    found = read(config, tmp_path)
    assert [row["messages"][0]["content"] for row in found.rows] == [
        "Hi, Ann 1",
        "Hi, Bob 1",
        "Bye, Ann 1",
        "Bye, Bob 1",
        "Cy!, Cy 1",
    ]
    assert [row["id"] for row in found.rows] == ["both-1", "both-2", "both-3", "both-4", "both"]
    assert len({row.get("cluster_id") for row in found.rows[:4]}) == 1
    assert is_right(found, "Hi Ann") is True and is_right(found, "Hi Bob") is False
    config["tests"] = [{"vars": {"name": [str(i) for i in range(600)]}}] * 2
    with pytest.raises(ConfigurationError, match="more than 1000 combinations"):
        read(config, tmp_path)


def test_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "prompts.txt").write_text("Translate {{text}}\n---\nOther {{text}}\n")
    (tmp_path / "in" / "long.txt").write_text("Bonjour\n")
    (tmp_path / "in" / "t1.yaml").write_text(
        "- vars: {text: file://in/long.txt}\n  assert: [{type: contains, value: '{{text}}'}]\n"
    )
    (tmp_path / "in" / "t2.csv").write_text(
        "text,__expected1,__expected2,__description\n"
        "Hi,contains-any: Salut,latency(200):,second\n"
        "Ho,Hey there,not-contains:x,\n"
        "Ha,fn: true,,\n"
        "Hu,word-count: 3,,\n"
    )
    (tmp_path / "in" / "t3.jsonl").write_text(
        json.dumps({"vars": {"text": "x"}, "assert": [{"type": "equals", "value": "y"}]})
    )
    config = {
        "prompts": "file://in/prompts.txt",
        "tests": ["file://in/t1.yaml", "in/t2.csv", "file://in/*.jsonl", "file://none.csv"],
        "scenarios": [{}],
    }
    found = read(config, tmp_path)
    assert [row["messages"][0]["content"] for row in found.rows] == [
        "Translate Bonjour",
        "Translate Hi",
        "Translate Ho",
        "Translate x",
    ]
    assert found.rows[1]["id"] == "second"
    assert found.rows[1]["scorer"]["of"] == [
        {"scorer": {"name": "substring", "any": True}, "reference": ["Salut"]},
        {"scorer": "latency", "reference": 0.2},
    ]
    assert found.rows[2]["scorer"]["of"][0] == {"scorer": "equals", "reference": "Hey there"}
    assert [problem.partition(": ")[2][:30] for problem in found.problems] == [
        "1 of its 2 prompts are left ou",
        "its scenarios are skipped: onl",
        "tests 'file://none.csv': file ",
        "assertion 'javascript' has no ",
        "assertion 'word-count' has no ",
    ]


def test_prompts_of_messages(tmp_path: Path) -> None:
    turns = [{"role": "system", "content": "Be {{how}}."}, {"role": "user", "content": "{{q}}"}]
    (tmp_path / "chat.json").write_text(json.dumps(turns))
    config = {
        "prompts": ["file://chat.json"],
        "tests": [{"vars": {"how": 'so "kind"', "q": "Hi"}, "assert": [{"type": "is-json"}]}],
    }
    assert read(config, tmp_path).rows[0]["messages"] == [
        {"role": "system", "content": 'Be so "kind".'},
        {"role": "user", "content": "Hi"},
    ]


def test_python_is_copied_beside_the_dataset(tmp_path: Path) -> None:
    (tmp_path / "checks").mkdir()
    (tmp_path / "checks" / "own.py").write_text("def short(output, context): return True\n")
    config = {
        "prompts": ["{{x}}"],
        "tests": [
            {
                "vars": {"x": "a"},
                "assert": [
                    {"type": "python", "value": "file://checks/own.py:short"},
                    {"type": "not-python", "value": "len(output) > {{x}}0"},
                ],
            }
        ],
    }
    (tmp_path / "p.yaml").write_text(yaml.safe_dump(config))
    folder = tmp_path / "into"
    assert (
        main(["eval", "import", "promptfoo", str(tmp_path / "p.yaml"), "--into", str(folder)]) == 0
    )
    assert (folder / "checks" / "own.py").is_file()
    inline = next(folder.glob("inline-*.py")).read_text()
    assert "def get_assert(output, context):\n    return len(output) > a0\n" in inline
    checks = load_dataset(folder).items[0].scorer.checks
    assert next(check.what for check in checks) == "checks/own.py:short"


def test_aliases_that_stand_for_too_much(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    with pytest.raises(ConfigurationError, match="expands to more than"):
        read("\n".join([*lines, "prompts: [x]", "tests: [{vars: {x: *a8}}]"]), tmp_path)


def test_yaml_is_that_of_javascript(tmp_path: Path) -> None:
    text = """
prompts: ["{{a}} {{b}} {{c}} {{d}} {{e}} {{f}}|"]
tests:
  - vars: {a: Yes, b: 12:30, c: 010, d: true, e: 1.50, f: null}
    assert: [{type: equals, value: Off}]
"""
    found = read(text, tmp_path)
    assert found.rows[0]["messages"][0]["content"] == "Yes 12:30 10 true 1.5 |"
    assert is_right(found, "Off") is True
