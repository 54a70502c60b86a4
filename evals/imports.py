"""Reads questions of other tools into rows of a golden dataset."""

from __future__ import annotations

import csv
import io
import json
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from evals.scorers import make_scorer
from evenkeel.errors import ConfigurationError

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Imported:
    """What was read.

    Attributes:
        rows: Rows of the dataset, in the order of the source.
        problems: One line for each entry that has no counterpart here, with its place.
    """

    rows: tuple[Row, ...]
    problems: tuple[str, ...]


class _Unfit(Exception):
    """An entry that cannot be an item; the message says why."""


def import_file(kind: str, path: Path) -> Imported:
    """Read a file of another tool.

    Args:
        kind: promptfoo, inspect, openai, gsm8k, csv or jsonl.
        path: The file.

    Raises:
        ConfigurationError: If the kind is unknown, the file cannot be read, or nothing in it fits.
    """
    if kind not in _READERS:
        raise ConfigurationError(f"kind {kind!r} is unknown; known: {', '.join(_READERS)}")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8: {error.reason}") from error
    rows: list[Row] = []
    problems: list[str] = []
    seen: set[str] = set()
    source = _READERS[kind](text, path)
    for place, entry in source.entries:
        try:
            row = source.convert(_object(entry))
            make_scorer(row["scorer"], row["reference"])
        except (_Unfit, ConfigurationError) as error:
            problems.append(f"{path.name}:{place}: {error}")
            continue
        row["id"] = str(row.get("id") or f"{path.stem}-{place}")
        if row["id"] in seen:
            problems.append(f"{path.name}:{place}: id {row['id']!r} is there already")
            continue
        seen.add(row["id"])
        rows.append(row)
    if not rows:
        first = f"; first problem: {problems[0]}" if problems else ""
        raise ConfigurationError(f"{path} holds nothing that can be imported{first}")
    return Imported(tuple(rows), tuple(problems))


@dataclass(frozen=True, slots=True)
class _Source:
    """Entries with their places, as text or parsed, and how one becomes a row."""

    entries: Iterable[tuple[int, Any]]
    convert: Callable[[Mapping[str, Any]], Row]


def _lines(text: str) -> list[tuple[int, str]]:
    return [(i, line) for i, line in enumerate(text.split("\n"), start=1) if line.strip()]


def _object(entry: Any) -> Mapping[str, Any]:
    try:
        found = json.loads(entry) if isinstance(entry, str) else entry
    except ValueError as error:
        raise _Unfit(f"not JSON: {error}") from error
    if not isinstance(found, dict):
        raise _Unfit("is no object")
    return found


def _from_jsonl(text: str, _: Path) -> _Source:
    return _Source(_lines(text), _plain)


def _from_csv(text: str, _: Path) -> _Source:
    reader = csv.DictReader(io.StringIO(text))
    rows = (
        (reader.line_num, {k: v for k, v in row.items() if k and v not in (None, "")})
        for row in reader
    )
    return _Source(rows, _plain)


_QUESTION_KEYS = ("messages", "input", "question", "prompt")
_REFERENCE_KEYS = ("reference", "ideal", "target", "answer", "expected", "output")


def _plain(entry: Mapping[str, Any]) -> Row:
    """Return a row from the usual names of columns."""
    question = _first(entry, _QUESTION_KEYS)
    tags = entry.get("tags", [])
    row: Row = {
        "id": entry.get("id"),
        "messages": _messages(question),
        "reference": _first(entry, _REFERENCE_KEYS),
        "scorer": entry.get("scorer", "normalised"),
        "tags": [t.strip() for t in tags.split(",") if t.strip()]
        if isinstance(tags, str)
        else tags,
    }
    if entry.get("cluster_id"):
        row["cluster_id"] = str(entry["cluster_id"])
    return row


def _first(entry: Mapping[str, Any], names: Sequence[str]) -> Any:
    for name in names:
        if name in entry:
            return entry[name]
    raise _Unfit(f"has none of {', '.join(names)}")


def _messages(question: Any) -> list[dict[str, str]]:
    if isinstance(question, str) and not question.strip():
        raise _Unfit("its question is empty")
    if isinstance(question, str):
        return [{"role": "user", "content": question}]
    if isinstance(question, list) and question and all(isinstance(t, dict) for t in question):
        turns = [(turn.get("role"), turn.get("content")) for turn in question]
        if all(isinstance(role, str) and isinstance(text, str) for role, text in turns):
            return [{"role": str(role), "content": str(text)} for role, text in turns]
    raise _Unfit("its question is neither a text nor a list of messages with text")


def _from_openai(text: str, _: Path) -> _Source:
    """Read the samples of OpenAI evals: input and ideal, matched exactly."""
    return _Source(_lines(text), lambda entry: {**_plain(entry), "scorer": "exact"})


def _from_inspect(text: str, path: Path) -> _Source:
    """Read the Samples of inspect, JSON lines or one JSON list."""
    if not text.lstrip().startswith("["):
        return _Source(_lines(text), _inspect_row)
    try:
        return _Source(list(enumerate(json.loads(text), start=1)), _inspect_row)
    except ValueError as error:
        raise ConfigurationError(f"{path} is not JSON: {error}") from error


def _inspect_row(entry: Mapping[str, Any]) -> Row:
    """Return a row: with choices the letter is asked for, else the target must be contained."""
    messages = _messages(_first(entry, ("input",)))
    target, choices = _first(entry, ("target",)), entry.get("choices")
    row = {"id": entry.get("id"), "messages": messages, "tags": []}
    if not choices:
        return {**row, "reference": target, "scorer": "contains"}
    letters = string.ascii_uppercase[: len(choices)]
    if not isinstance(target, str) or len(target) != 1 or target not in letters:
        raise _Unfit(f"target {target!r:.40} is none of the choices {letters}")
    listed = "\n".join(f"{a}) {b}" for a, b in zip(letters, choices, strict=True))
    messages[-1]["content"] += f"\n\n{listed}\n\nAnswer with the letter alone."
    return {**row, "reference": rf"^\W*{target}\b", "scorer": "regex"}


def _from_gsm8k(text: str, _: Path) -> _Source:
    """Read GSM8K: the reference is the number after ####."""
    return _Source(_lines(text), _gsm8k_row)


def _gsm8k_row(entry: Mapping[str, Any]) -> Row:
    found = re.search(r"####\s*(-?[\d,]+(?:\.\d+)?)\s*$", str(entry.get("answer", "")))
    if found is None:
        raise _Unfit("its answer does not end with #### and a number")
    return {
        "messages": _messages(_first(entry, ("question",))),
        "reference": found[1].replace(",", ""),
        "scorer": "numeric",
        "tags": ["arithmetic"],
    }


_VARIABLE = re.compile(r"\{\{\s*([\w.]+)\s*\}\}")
# Only what means the same here; `contains` is without regard to case there too, if icontains.
_ASSERTIONS: Mapping[str, str] = {
    "equals": "exact",
    "contains": "contains",
    "icontains": "contains",
    "contains-all": "contains",
    "icontains-all": "contains",
    "regex": "regex",
    "is-json": "json",
    "bleu": "bleu",
    "similar": "embedding",
    "is-refusal": "refusal",
}
_THRESHOLDS = {"bleu": 0.5, "embedding": 0.75}


def _from_promptfoo(text: str, path: Path) -> _Source:
    """Read the tests of a promptfoo configuration, YAML or JSON, with its first prompt."""
    try:
        config = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{path} is not YAML: {str(error).splitlines()[0]}") from error
    prompts = config.get("prompts") if isinstance(config, dict) else None
    tests = config.get("tests") if isinstance(config, dict) else None
    if not isinstance(prompts, list) or not prompts or not isinstance(tests, list):
        raise ConfigurationError(f"{path} has no prompts and tests of its own to import")
    prompt = prompts[0].get("raw") if isinstance(prompts[0], dict) else prompts[0]
    if not isinstance(prompt, str) or prompt.startswith("file://"):
        raise ConfigurationError(f"{path}: the first prompt is no text of its own")
    entries = zip(_lines_of_tests(text), tests, strict=True)
    return _Source(list(entries), lambda test: _promptfoo_row(prompt, test))


def _lines_of_tests(text: str) -> list[int]:
    """Return the line at which each element of the list `tests` begins."""
    document = yaml.compose(text, Loader=yaml.SafeLoader)
    assert isinstance(document, yaml.MappingNode)
    # As the loader has it: of a key that is repeated the last one counts.
    listed = next(value for key, value in reversed(document.value) if key.value == "tests")
    return [element.start_mark.line + 1 for element in listed.value]


def _promptfoo_row(prompt: str, test: Mapping[str, Any]) -> Row:
    variables = test.get("vars") or {}

    def fill(match: re.Match[str]) -> str:
        if match[1] not in variables:
            raise _Unfit(f"has no value for the variable {match[1]!r}")
        return str(variables[match[1]])

    assertions = test.get("assert") or []
    if not isinstance(assertions, list) or not isinstance(variables, dict):
        raise _Unfit("its vars or assertions are not written out")
    if len(assertions) != 1:
        raise _Unfit(f"has {len(assertions)} assertions, expected one")
    assertion = _object(assertions[0])
    kind = str(assertion.get("type"))
    if kind not in _ASSERTIONS:
        raise _Unfit(f"assertion {kind!r} has no counterpart; known: {', '.join(_ASSERTIONS)}")
    reference, scorer = assertion.get("value"), _ASSERTIONS[kind]
    spec: Any = scorer
    if kind == "is-json":
        reference, spec = None, {"name": "json", "schema": reference or {}}
    elif kind == "is-refusal":
        reference = True
    elif scorer in _THRESHOLDS:
        threshold = assertion.get("threshold", _THRESHOLDS[scorer])
        spec = {"name": scorer, "threshold": threshold}
    return {
        "id": test.get("description"),
        "messages": [{"role": "user", "content": _VARIABLE.sub(fill, prompt)}],
        "reference": reference,
        "scorer": spec,
        "tags": [],
    }


_READERS: Mapping[str, Callable[[str, Path], _Source]] = {
    "csv": _from_csv,
    "gsm8k": _from_gsm8k,
    "inspect": _from_inspect,
    "jsonl": _from_jsonl,
    "openai": _from_openai,
    "promptfoo": _from_promptfoo,
}
