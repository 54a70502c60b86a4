"""An import of any file ends with rows or with a one-line error."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.cli import main
from evenkeel.errors import ConfigurationError
from evenkeel_evals.compare.answer_files import read_answers
from evenkeel_evals.dataset.dataset import load_dataset
from evenkeel_evals.dataset.imports.files import READERS, import_file
from evenkeel_evals.dataset.imports.plain import (
    CHOICE_KEYS,
    QUESTION_KEYS,
    REFERENCE_KEYS,
    RIGHT_KEYS,
)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 30)
    | st.floats()
    | st.sampled_from(["", "A", "text {{x}}", "file://p.txt", "user", "contains", "\ud800"])
    | st.text(max_size=4)
)
NAMES = (
    "role content text from id tags context row expectedOutput status vars assert type value "
    "threshold options description epoch scores sandbox scorer name"
)
KEYS = st.sampled_from([*QUESTION_KEYS, *REFERENCE_KEYS, *CHOICE_KEYS, *RIGHT_KEYS, *NAMES.split()])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
ENTRIES = st.dictionaries(KEYS, VALUES, max_size=6)


def imported(kind: str, path: Path) -> None:
    try:
        import_file(kind, path)
    except ConfigurationError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("kind", sorted(set(READERS) - {"promptfoo", "csv"}))
@given(entries=st.lists(ENTRIES, min_size=1, max_size=3))
def test_any_entries(tmp_path_factory: Any, kind: str, entries: list[Any]) -> None:
    path = tmp_path_factory.mktemp("any") / "x.json"
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    imported(kind, path)
    path.write_text(json.dumps(entries))
    imported(kind, path)


@given(
    scorers=VALUES,
    samples=st.lists(
        st.fixed_dictionaries(
            {"input": st.just("Q") | VALUES, "target": st.just("A") | VALUES},
            optional={"choices": VALUES, "output": VALUES, "error": VALUES, "scores": VALUES},
        )
    ),
)
def test_any_log(tmp_path_factory: Any, scorers: Any, samples: list[Any]) -> None:
    path = tmp_path_factory.mktemp("any") / "x.json"
    listed = [{"name": "match", "options": scorers}]
    for header in ({"scorers": scorers}, {"scorers": listed}, {}):
        path.write_text(json.dumps({"eval": header, "samples": samples}))
        imported("inspect", path)
        with suppress(ConfigurationError):
            read_answers(path)


ASSERTIONS = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                [
                    "contains",
                    "equals",
                    "is-json",
                    "regex",
                    "cost",
                    "similar",
                    "python",
                    "contains-any",
                    "llm-rubric",
                    "assert-set",
                ]
            )
        },
        optional={"value": VALUES, "threshold": VALUES, "assert": VALUES, "weight": VALUES},
    )
)
TESTS = st.lists(
    VALUES
    | st.fixed_dictionaries(
        {"vars": st.dictionaries(st.just("x"), VALUES) | VALUES, "assert": ASSERTIONS | VALUES},
        optional={"options": VALUES, "description": VALUES},
    )
)


@given(
    prompts=VALUES | st.just(["ask {{x}}"]), tests=TESTS | VALUES, default=VALUES, templates=VALUES
)
def test_any_configuration(
    tmp_path_factory: Any, prompts: Any, tests: Any, default: Any, templates: Any
) -> None:
    path = tmp_path_factory.mktemp("any") / "x.json"
    whole = {
        "prompts": prompts,
        "tests": tests,
        "defaultTest": default,
        "assertionTemplates": templates,
    }
    path.write_text(json.dumps(whole))
    imported("promptfoo", path)


def test_what_is_imported_can_be_loaded(tmp_path: Path) -> None:
    lines = [
        {"question": "Q", "answer": "A", "tags": [1]},
        {"question": "Q", "answer": "A", "tags": ["x"]},
        {"question": "half \ud800", "answer": "A"},
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, lines)))
    folder = tmp_path / "into"
    flags = ["eval", "import", "jsonl", str(tmp_path / "x.jsonl"), "--into", str(folder)]
    assert main(flags) == 0
    dataset = load_dataset(folder)
    assert (len(dataset.items), dataset.problems) == (1, ())


@pytest.mark.parametrize("name", ["\ud800", "a\0b", "x" * 5000, "../x", "none.json"])
def test_a_file_that_cannot_be_is_a_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / "x.json"
    test = {"vars": {"x": "1"}, "assert": [{"type": "equals", "value": f"file://{name}"}]}
    path.write_text(json.dumps({"prompts": ["ask {{x}}"], "tests": [test]}))
    with pytest.raises(ConfigurationError, match="file "):
        import_file("promptfoo", path)
