"""Imports Inspect samples (JSON Lines or a JSON list) and Inspect logs (.json or .eval)."""

from __future__ import annotations

import json
import string
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError, first_line
from evenkeel_evals.dataset.imports.conversations import ask_for_letter, to_messages
from evenkeel_evals.dataset.imports.entries import (
    MAX_FILE_BYTES,
    ImportEntry,
    ImportSource,
    Made,
    Row,
    UnfitError,
    as_object,
    first_of,
    json_entries,
    parse_json,
    read_utf8,
)

MAX_SAMPLE_BYTES = 64 * 1024 * 1024
MAX_SAMPLES = 200_000
# Scorer for samples without a log: Inspect leaves it to the task; this is the most common one.
INCLUDES: Mapping[str, Any] = {"name": "includes", "options": {}}
_ELSEWHERE = ("sandbox", "files", "setup")


def from_inspect(path: Path) -> ImportSource:
    """Read the questions of samples or of a log; if it has several epochs, of the first.

    Raises:
        ConfigurationError: If it is neither.
    """
    log = read_log(path)
    if log is None:
        entries = json_entries(read_utf8(path), path)
        return ImportSource(entries, lambda value: Made([_row(as_object(value), INCLUDES)]))
    header, samples = log
    scorers = _scorers(header, samples)
    scorer = scorers[0] if scorers else INCLUDES
    problems = [
        f"{path.name}: scorer {s.get('name')!r:.60} is skipped: an item uses the first, "
        f"{scorer.get('name')!r:.60}"
        for s in scorers[1:]
    ]
    firsts = [entry for entry in samples if as_object(entry.value).get("epoch", 1) == 1]
    return ImportSource(firsts, lambda value: Made([_row(as_object(value), scorer)]), problems)


def _scorers(header: Mapping[str, Any], samples: Sequence[ImportEntry]) -> list[Mapping[str, Any]]:
    """Return the scorers of a log; if its header names none, those of its first scores."""
    about = header.get("eval")
    listed = about.get("scorers") if isinstance(about, dict) else None
    named: list[Mapping[str, Any]] = [
        s for s in (listed if isinstance(listed, list) else []) if isinstance(s, dict)
    ]
    scores = next((s for e in samples if (s := as_object(e.value).get("scores"))), None)
    if not named and isinstance(scores, dict):
        return [{"name": name} for name in scores]
    return named


def read_log(path: Path) -> tuple[Mapping[str, Any], Sequence[ImportEntry]] | None:
    """Return a log's header and samples; None if the file is not a log.

    Raises:
        ConfigurationError: If it looks like a log but cannot be read.
    """
    if zipfile.is_zipfile(path):
        return _read_zip(path)
    if path.suffix.lower() != ".json":
        return None
    text = read_utf8(path)
    if not text.lstrip().startswith("{"):
        return None
    found = parse_json(text, path)
    if not isinstance(found, dict) or not isinstance(found.get("eval"), dict):
        return None
    samples = found.get("samples")
    if not isinstance(samples, list):
        raise ConfigurationError(f"{path} is an Inspect log without samples")
    return found, _entries(path, samples)


def _read_zip(path: Path) -> tuple[Mapping[str, Any], Sequence[ImportEntry]]:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            start = "header.json" if "header.json" in names else "_journal/start.json"
            if start not in names:
                raise ConfigurationError(f"{path} is not an Inspect log: it has no header.json")
            header = parse_json(_member(archive, start), path)
            listed = sorted(n for n in names if n.startswith("samples/") and n.endswith(".json"))
            if len(listed) > MAX_SAMPLES:
                raise ConfigurationError(f"{path} has more than {MAX_SAMPLES:,} samples")
            samples, size = [], 0
            for name in listed:
                text = _member(archive, name)
                size += len(text)
                if size > MAX_FILE_BYTES:
                    raise ConfigurationError(
                        f"{path} holds more than {MAX_FILE_BYTES // 2**20} MiB; split it"
                    )
                samples.append(parse_json(text, path))
    except NotImplementedError as error:
        raise ConfigurationError(
            f"{path} is compressed in a format that Python cannot read; write it as JSON: "
            "inspect log convert --to json"
        ) from error
    except (zipfile.BadZipFile, OSError, RuntimeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read: {first_line(error)}") from error
    if not isinstance(header, dict):
        raise ConfigurationError(f"{path} is not an Inspect log: its header is not an object")
    return header, _entries(path, samples)


def _member(archive: zipfile.ZipFile, name: str) -> str:
    # The archive's stated size cannot be trusted, so the read itself is bounded.
    with archive.open(name) as file:
        content = file.read(MAX_SAMPLE_BYTES + 1)
    if len(content) > MAX_SAMPLE_BYTES:
        raise ConfigurationError(f"{name} is larger than {MAX_SAMPLE_BYTES // 2**20} MiB")
    return content.decode("utf-8")


def _entries(path: Path, samples: Sequence[Any]) -> list[ImportEntry]:
    return [
        ImportEntry(path.name, i, value)
        for i, value in enumerate(samples, start=1)
        if isinstance(value, dict)
    ]


def _row(sample: Mapping[str, Any], scorer: Mapping[str, Any]) -> Row:
    for key in _ELSEWHERE:
        if sample.get(key):
            raise UnfitError(f"has {key}, which an item cannot hold")
    messages = to_messages(first_of(sample, ("input",)))
    target, choices = first_of(sample, ("target",)), sample.get("choices")
    row: Row = {"id": sample.get("id"), "tags": []}
    if choices:
        if not isinstance(choices, list):
            raise UnfitError("its choices are not a list")
        return {**row, **ask_for_letter(messages, choices, _letter(target, choices))}
    targets = target if isinstance(target, list) else [target]
    targets = [str(t) if isinstance(t, int | float) else t for t in targets]
    if not targets or not all(isinstance(t, str) and t.strip() for t in targets):
        raise UnfitError(f"target {target!r:.40} is not text")
    spec, reference = _judged(scorer, targets)
    return {**row, "messages": messages, "reference": reference, "scorer": spec}


def _letter(target: Any, choices: Sequence[Any]) -> int:
    if isinstance(target, list) and len(target) == 1:
        target = target[0]
    letters = string.ascii_uppercase[: len(choices)]
    if not isinstance(target, str) or len(target) != 1 or target not in letters:
        raise UnfitError(f"target {target!r:.40} is not one of the choices {letters}")
    return letters.index(target)


def _judged(scorer: Mapping[str, Any], targets: list[str]) -> tuple[Any, Any]:
    """Return the scorer and reference equivalent to an Inspect scorer; any target may match."""
    name = str(scorer.get("name")).rpartition("/")[2]
    options = scorer.get("options") or {}
    if not isinstance(options, dict):
        raise UnfitError(f"scorer {name!r:.60} has options that are not an object")
    cased = {} if options.get("ignore_case", True) is False else {"case_sensitive": False}
    if name == "includes":
        return {"name": "substring", "any": True, **cased}, targets
    if name == "match":
        return _matched(options, cased, targets)
    if name == "exact":
        return "normalised", targets
    raise UnfitError(
        f"scorer {name!r:.60} has no counterpart; known: includes, match, exact, choice"
    )


def _matched(
    options: Mapping[str, Any], cased: Mapping[str, Any], targets: list[str]
) -> tuple[Any, Any]:
    location = options.get("location", "end")
    if options.get("numeric"):
        if location != "end" or len(targets) > 1:
            raise UnfitError("scorer 'match' of numbers has a counterpart only at the end")
        return "numeric", targets[0]
    kinds = {"end": "ends_with", "begin": "starts_with", "exact": "equals"}
    if location == "any":
        marks = string.whitespace + string.punctuation
        return {"name": "substring", "any": True, **cased}, [t.strip(marks) for t in targets]
    if location not in kinds:
        raise UnfitError(f"scorer 'match' at {location!r:.40} has no counterpart")
    return {"name": kinds[location], "strip": True, **cased}, targets


def answers_of(samples: Sequence[ImportEntry]) -> Iterator[tuple[ImportEntry, dict[str, Any]]]:
    """Yield the answers of a log's first epoch, each as a line of an answers file."""
    for entry in samples:
        sample = as_object(entry.value)
        if sample.get("epoch", 1) != 1:
            continue
        output = sample.get("output")
        output = output if isinstance(output, dict) else {}
        error = sample.get("error")
        usage = output.get("usage")
        usage = usage if isinstance(usage, dict) else {}
        yield (
            entry,
            {
                "id": str(sample.get("id")),
                "choices": output.get("choices") or [],
                "e2e_s": output.get("time"),
                "input_tokens": usage.get("input_tokens"),
                "output_tokens": usage.get("output_tokens"),
                "error": json.dumps(error)[:200] if error else output.get("error"),
            },
        )
