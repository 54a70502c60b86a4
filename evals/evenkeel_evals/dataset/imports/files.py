"""Converts another tool's file to rows of a golden dataset; lists what does not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel_evals.dataset.dataset import check_row
from evenkeel_evals.dataset.imports.chat import from_chat
from evenkeel_evals.dataset.imports.entries import ImportSource, Made, Row, UnfitError
from evenkeel_evals.dataset.imports.inspect_samples import from_inspect
from evenkeel_evals.dataset.imports.langfuse import from_langfuse
from evenkeel_evals.dataset.imports.openai_samples import from_gsm8k, from_openai
from evenkeel_evals.dataset.imports.plain import from_csv, from_jsonl
from evenkeel_evals.dataset.imports.promptfoo import from_promptfoo

MAX_ROWS = 200_000
READERS: Mapping[str, Callable[[Path], ImportSource]] = {
    "chat": from_chat,
    "csv": from_csv,
    "gsm8k": from_gsm8k,
    "huggingface": from_jsonl,
    "inspect": from_inspect,
    "jsonl": from_jsonl,
    "langfuse": from_langfuse,
    "openai": from_openai,
    "promptfoo": from_promptfoo,
}


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.

    Attributes:
        rows: Rows of the dataset, in source order.
        problems: One message, with its position, per thing that has no counterpart here.
        notes: One message, with the first position, per way in which rows are judged differently.
        files: Contents of files to write next to the dataset, by name.
    """

    rows: tuple[Row, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


def import_file(kind: str, path: Path) -> Imported:
    """Read another tool's file.

    Args:
        kind: One of READERS.
        path: The file.

    Raises:
        ConfigurationError: If the kind is unknown, the file cannot be read, or nothing in it fits.
    """
    if kind not in READERS:
        raise ConfigurationError(f"kind {kind!r} is unknown; known: {', '.join(READERS)}")
    source = READERS[kind](path)
    rows: dict[str, Row] = {}
    problems = list(source.problems)
    places: dict[str, list[str]] = {}
    files: dict[str, bytes] = {}
    for entry in source.entries:
        try:
            made = source.convert(entry.value)
            named = _named(made, f"{Path(entry.file).stem}-{entry.line}", rows, source.has_names)
        except (UnfitError, ConfigurationError) as error:
            problems.append(f"{entry.place}: {error}")
            continue
        if len(rows) + len(named) > MAX_ROWS:
            raise ConfigurationError(f"{path} has more than {MAX_ROWS:,} items; split it")
        rows |= named
        files |= made.files
        for note in made.notes:
            places.setdefault(note, []).append(entry.place)
    if not rows:
        first = f"; first problem: {problems[0]}" if problems else ""
        raise ConfigurationError(f"{path} has nothing to import{first}")
    notes = [
        f"{found[0]}{f' and {len(found) - 1} more' if len(found) > 1 else ''}: {note}"
        for note, found in places.items()
    ]
    return Imported(tuple(rows.values()), tuple(problems), tuple(notes), files)


def _named(made: Made, default: str, known: Mapping[str, Row], has_names: bool) -> dict[str, Row]:
    """Return an entry's rows by id; the rows of one entry are variants of one question.

    Raises:
        UnfitError: If an id is already used.
        ConfigurationError: If a row is not a valid item, for example because of its scorer.
    """
    named: dict[str, Row] = {}
    for number, row in enumerate(made.rows, start=1):
        given = row.get("id")
        base = str(default if given is None or given == "" else given)
        name = f"{base}-{number}" if len(made.rows) > 1 else base
        if name in known and has_names:
            name = f"{name} ({default}-{number})" if len(made.rows) > 1 else f"{name} ({default})"
        if name in known or name in named:
            raise UnfitError(f"id {name!r:.80} is already used")
        named[name] = {**row, "id": name}
        if len(made.rows) > 1:
            named[name].setdefault("cluster_id", f"{base} ({default})")
        check_row(named[name])
    return named
