"""Implements `evenkeel eval import` and `evenkeel eval lock`."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from evenkeel.errors import ConfigurationError, first_line
from evenkeel_evals.dataset.dataset import find_items_file, load_dataset
from evenkeel_evals.dataset.imports.files import import_file
from evenkeel_evals.dataset.version import (
    FIRST_VERSION,
    Lock,
    compare,
    hash_items,
    next_version,
    read_lock,
    refresh_card,
    write_lock,
)


def run_import(args: argparse.Namespace) -> int:
    """Convert another tool's file to a dataset folder, and list the entries that do not fit.

    Raises:
        ConfigurationError: If the source cannot be read, nothing in it fits, or the folder is not
            empty.
    """
    folder: Path = args.into
    try:
        is_empty = not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be read: {error.strerror}") from error
    if not is_empty:
        what = "is not empty" if folder.is_dir() else "is a file"
        raise ConfigurationError(f"--into {folder} {what}; use a new folder")
    imported = import_file(args.kind, args.source)
    for problem in imported.problems:
        print(f"evenkeel: {problem}", file=sys.stderr)
    for note in imported.notes:
        print(f"evenkeel: note: {note}", file=sys.stderr)
    rows = imported.rows if args.limit is None else imported.rows[: args.limit]
    try:
        lines = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows]
    except UnicodeEncodeError as error:
        raise ConfigurationError(
            f"a text contains half of a surrogate pair: {error.reason}"
        ) from error
    try:
        folder.mkdir(parents=True, exist_ok=True)
        items_path = folder / f"{folder.resolve().name}.jsonl"
        items_path.write_bytes(b"".join(lines))
        for name, content in imported.files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be written: {first_line(error, folder=folder)}"
        ) from error
    difference = compare(Lock("", {}), hash_items(items_path.read_bytes()))
    note = f"Imported from {args.source.name} ({args.kind})."
    write_lock(items_path, FIRST_VERSION, difference, note)
    dataset = load_dataset(folder)
    scorers = Counter(
        row["scorer"] if isinstance(row["scorer"], str) else row["scorer"]["name"] for row in rows
    )
    record = {
        "dataset": f"{dataset.name}@{dataset.version}",
        "content_hash": dataset.content_hash,
        "num_items": len(dataset.items),
        "num_left_out": len(imported.problems),
        "scorers": dict(scorers),
        "problems": list(imported.problems),
        "notes": list(imported.notes),
    }
    if args.json:
        print(json.dumps(record))
    else:
        left = f", {len(imported.problems)} skipped" if imported.problems else ""
        items = "1 item" if len(dataset.items) == 1 else f"{len(dataset.items)} items"
        print(f"{folder}: {items}{left}, version {dataset.version}")
        print("scored by " + ", ".join(f"{name} ({n})" for name, n in scorers.most_common()))
    return 0


def run_lock(args: argparse.Namespace) -> int:
    """Lock a dataset in its current state: new version, changelog, hash of every item.

    With --check, write nothing and return 1 if something changed since the lock.

    Raises:
        ConfigurationError: If the folder is not a dataset, or the note is missing.
    """
    items_path = find_items_file(args.dataset)
    items = hash_items(items_path.read_bytes())
    lock = read_lock(items_path)
    difference = compare(lock or Lock("", {}), items)
    if args.check:
        if lock is None:
            raise ConfigurationError(f"{args.dataset} has no lock; create one: evenkeel eval lock")
        print(f"{items_path.stem}@{lock.version}: {difference.describe()}")
        return 0 if difference.is_empty else 1
    if lock is not None and difference.is_empty:
        is_rewritten = refresh_card(items_path)
        what = "the same items, written in another way" if is_rewritten else "nothing changed"
        print(f"{items_path.stem}@{lock.version}: {what}")
        return 0
    if not args.note:
        raise ConfigurationError("describe the change in one sentence: --note 'corrected prices'")
    version = load_dataset(args.dataset).version
    if lock is not None:
        version = next_version(lock.version, difference)
    write_lock(items_path, version, difference, args.note)
    print(f"{items_path.stem}@{version}: {difference.describe()}")
    return 0
