"""Imports promptfoo configurations: the first prompt with each test and variable combination."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.dataset.imports.conversations import to_messages
from evenkeel_evals.dataset.imports.entries import (
    ImportEntry,
    ImportSource,
    Made,
    Row,
    UnfitError,
    as_object,
    read_utf8,
)
from evenkeel_evals.dataset.imports.plain import csv_entries
from evenkeel_evals.dataset.imports.promptfoo_assertions import KINDS, Test, to_scorer
from evenkeel_evals.dataset.imports.promptfoo_text import (
    FILE,
    Folder,
    combine,
    fill,
    fill_all,
    resolve,
)
from evenkeel_evals.dataset.imports.yaml_text import lines_of_elements, load_yaml

_BETWEEN_PROMPTS = re.compile(r"^---[ \t]*$", re.MULTILINE)
# Keys that do not affect which answers are right; `provider` belongs to the sides.
_HARMLESS = {
    "vars",
    "assert",
    "description",
    "metadata",
    "options",
    "provider",
    "providers",
    "type",
}
_HARMLESS_OPTIONS = {"prefix", "suffix", "provider", "disableVarExpansion"}
_CSV_ASSERTION = re.compile(r"(not-)?([a-z][a-z:-]*)(?:\((\d+(?:\.\d+)?)\))?(?::(.*))?", re.DOTALL)
_CSV_THRESHOLD = 0.75


@dataclass(frozen=True, slots=True)
class _Config:
    prompt: Any
    default: Mapping[str, Any]
    templates: Mapping[str, Any]
    folder: Folder


def from_promptfoo(path: Path) -> ImportSource:
    """Read a configuration, YAML or JSON, and the files it refers to.

    Raises:
        ConfigurationError: If it has no readable prompt or no readable tests.
    """
    document, tree = load_yaml(read_utf8(path), path)
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path} is not a promptfoo configuration")
    folder = Folder(path.parent)
    problems: list[str] = []
    try:
        prompt = _first_prompt(document.get("prompts"), folder, problems)
        default = document.get("defaultTest") or {}
        if isinstance(default, str):
            default = folder.load(default)
        config = _Config(
            prompt, as_object(default), document.get("assertionTemplates") or {}, folder
        )
    except UnfitError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if document.get("scenarios"):
        problems.append("its scenarios are skipped: only tests are imported")
    if not document.get("tests"):
        raise ConfigurationError(f"{path} has no prompts and tests to import")
    entries = list(
        _tests(document["tests"], lines_of_elements(tree, "tests"), path, folder, problems)
    )
    return ImportSource(
        entries,
        lambda test: _rows(as_object(test), config),
        [f"{path.name}: {problem}" for problem in problems],
        has_names=True,
    )


def _first_prompt(prompts: Any, folder: Folder, problems: list[str]) -> Any:
    """Return the first prompt: a text, or messages."""
    listed = prompts if isinstance(prompts, list) else [prompts]
    if not listed or listed[0] is None:
        raise UnfitError("has no prompts and tests to import")
    found: list[Any] = []
    for entry in listed:
        prompt = entry.get("raw", entry.get("id")) if isinstance(entry, dict) else entry
        if not isinstance(prompt, str):
            raise UnfitError("a prompt is not text")
        if not prompt.startswith(FILE):
            found.append(prompt)
        elif prompt.endswith((".txt", ".md", ".j2")):
            texts = _BETWEEN_PROMPTS.split(str(folder.load(prompt)))
            found += [text.strip() for text in texts if text.strip()]
        elif prompt.endswith((".json", ".yaml", ".yml")):
            found.append(folder.load(prompt))
        elif not found:
            raise UnfitError(f"the first prompt, {prompt!r:.80}, is not text")
        else:
            found.append(None)
    if len(found) > 1:
        problems.append(
            f"{len(found) - 1} of its {len(found)} prompts are left out: a dataset has one "
            "question per item; put the others into sides"
        )
    return _as_messages(found[0])


def _as_messages(prompt: Any) -> Any:
    """Return messages if a text holds them as JSON."""
    if isinstance(prompt, str) and prompt.lstrip().startswith("["):
        try:
            parsed = json.loads(prompt)
        except (ValueError, RecursionError):
            return prompt
        return parsed if isinstance(parsed, list) else prompt
    return prompt


def _tests(
    tests: Any, lines: list[int], path: Path, folder: Folder, problems: list[str]
) -> Iterator[ImportEntry]:
    """Yield every test, including those in files named in place of tests."""
    listed = tests if isinstance(tests, list) else [tests]
    places = lines if len(lines) == len(listed) else list(range(1, len(listed) + 1))
    for line, test in zip(places, listed, strict=True):
        if not isinstance(test, str):
            yield ImportEntry(path.name, line, test)
            continue
        try:
            for found in _matching(test, folder):
                yield from _tests_of_file(found)
        except UnfitError as error:
            problems.append(f"tests {test!r:.80}: {error}")
        except ConfigurationError as error:
            problems.append(str(error).replace(f"{folder.path}/", ""))


def _matching(reference: str, folder: Folder) -> list[Path]:
    name = reference.removeprefix(FILE)
    if "*" not in name:
        return [folder.find(name)]
    if name.startswith("/"):
        raise UnfitError(f"file {name!r:.80} is outside the configuration's folder")
    found = sorted(folder.path.glob(name))
    if not found:
        raise UnfitError("no file matches")
    return [folder.find(str(path.relative_to(folder.path))) for path in found]


def _tests_of_file(path: Path) -> Iterator[ImportEntry]:
    suffix = path.suffix.lower()
    if suffix == ".csv":
        for entry in csv_entries(path):
            yield ImportEntry(entry.file, entry.line, _test_of_cells(entry.value))
    elif suffix == ".jsonl":
        for line, text in enumerate(read_utf8(path).split("\n"), start=1):
            if text.strip():
                yield ImportEntry(path.name, line, text)
    elif suffix in (".yaml", ".yml", ".json"):
        document, tree = load_yaml(read_utf8(path), path)
        listed = document if isinstance(document, list) else [document]
        lines = lines_of_elements(tree) or list(range(1, len(listed) + 1))
        for line, test in zip(lines, listed, strict=True):
            yield ImportEntry(path.name, line, test)
    else:
        raise UnfitError("is neither CSV, JSON, JSON lines nor YAML")


def _test_of_cells(cells: Mapping[str, str]) -> dict[str, Any]:
    """Return the test in a row: columns are variables, except those that begin with __."""
    test: dict[str, Any] = {"vars": {}, "assert": [], "options": {}}
    for name, cell in cells.items():
        if name.startswith("__expected"):
            if cell.strip():
                test["assert"].append(_assertion_of_cell(cell))
        elif name in ("__prefix", "__suffix"):
            test["options"][name[2:]] = cell
        elif name in ("__description", "__threshold"):
            test[name[2:]] = cell
        elif not name.startswith("__"):
            test["vars"][name] = cell
    return test


def _assertion_of_cell(cell: str) -> dict[str, Any]:
    """Return the assertion in a cell such as `contains: paris`; a bare text means equality."""
    for prefix, kind in (
        ("fn:", "javascript"),
        ("eval:", "javascript"),
        ("javascript:", "javascript"),
        ("grade:", "llm-rubric"),
        ("python:", "python"),
    ):
        if cell.startswith(prefix):
            return {"type": kind, "value": cell.removeprefix(prefix).strip()}
    match = _CSV_ASSERTION.fullmatch(cell)
    if match is None or match[2] not in KINDS:
        return {"type": "equals", "value": cell}
    value = None if match[4] is None else match[4].strip()
    assertion: dict[str, Any] = {"type": f"{match[1] or ''}{match[2]}", "value": value}
    if match[2] in ("latency", "cost", "similar"):
        default = 0.8 if match[2] == "similar" else _CSV_THRESHOLD
        assertion["threshold"] = float(match[3]) if match[3] else default
    return assertion


def _rows(test: Mapping[str, Any], config: _Config) -> Made:
    """Return a row per combination of the test's variables."""
    options = {**_mapping(config.default, "options"), **_mapping(test, "options")}
    _refuse_more({**config.default, **test}, options)
    variables = {**_mapping(config.default, "vars"), **_mapping(test, "vars")}
    asserts = [*_list(config.default), *_list(test)]
    asserts = [_of_template(assertion, config) for assertion in asserts]
    combinations = [variables] if options.get("disableVarExpansion") else list(combine(variables))
    rows: list[Row] = []
    notes: list[str] = []
    files: dict[str, bytes] = {}
    for chosen in combinations:
        known = resolve(chosen, config.folder)
        messages = _ask(config.prompt, known, options)
        about = Test(known, messages[-1]["content"], config.folder)
        scorer, reference = to_scorer(asserts, about)
        row: Row = {"messages": messages, "reference": reference, "scorer": scorer, "tags": []}
        row["id"] = test.get("description")
        rows.append(row)
        notes += about.notes
        files |= about.files
    return Made(rows, list(dict.fromkeys(notes)), files)


def _ask(prompt: Any, variables: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
    if isinstance(prompt, str):
        around = [str(options.get(key) or "") for key in ("prefix", "suffix")]
        filled = fill(f"{around[0]}{prompt}{around[1]}", variables)
        return to_messages(_as_messages(filled))
    if options.get("prefix") or options.get("suffix"):
        raise UnfitError("adds text around a prompt that is a list of messages")
    return to_messages(fill_all(prompt, variables))


def _refuse_more(test: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    more = sorted(str(k) for k in set(test) - _HARMLESS if test[k] not in (None, [], {}))
    more += sorted(f"options.{k}" for k in set(options) - _HARMLESS_OPTIONS)
    if more:
        raise UnfitError(f"has {', '.join(more)[:80]}, which has no counterpart")


def _mapping(test: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    found = test.get(key) or {}
    if not isinstance(found, dict):
        raise UnfitError(f"its {key} are not given inline")
    return found


def _list(test: Mapping[str, Any]) -> list[Any]:
    found = test.get("assert") or []
    if not isinstance(found, list):
        raise UnfitError("its assertions are not a list")
    return found


def _of_template(assertion: Any, config: _Config) -> Any:
    """Return the assertion that a reference into `assertionTemplates` points to."""
    reference = assertion.get("$ref") if isinstance(assertion, dict) else None
    if reference is None:
        return assertion
    name = str(reference).rpartition("/")[2]
    if name not in config.templates:
        raise UnfitError(f"refers to the assertion {name!r:.60}, which does not exist")
    return config.templates[name]
