"""Turns recorded traffic, from a file or the store, into a bounded, seeded sample of items."""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.secret_text import hide_password, read_secret
from evenkeel.store import Store
from evenkeel_evals.dataset.dataset import Dataset, load_dataset
from evenkeel_evals.production.candidates import read_turns
from evenkeel_evals.production.recorded_traffic import NAME, keep_traffic, read_traffic

# Number of newest requests to sample from, and the largest sample.
MOST_READ = 10_000
DEFAULT_SAMPLE = 300
MAX_LINES = 1_000_000
MAX_LINE_BYTES = 4 * 1024 * 1024


def load_traffic(
    source: str, since_s: float, limit: int | None, seed: int, kept: Path | None
) -> Dataset:
    """Return recorded requests as a dataset.

    Args:
        source: A JSON Lines file, or the URL of a store (`@FILE` reads the URL from a file).
        since_s: How far back to read from the store, in seconds.
        limit: Sample size; DEFAULT_SAMPLE if None.
        seed: Seed for the sample: the same seed and traffic give the same requests.
        kept: Folder to save the items in; items already there are reused, so that a resumed run
            asks the same ones. None saves nothing.

    Raises:
        ConfigurationError: If the file cannot be read, or the limit is out of bounds.
        CannotMeasureError: If there are no requests.
        StoreError: If the store does not answer.
    """
    size = DEFAULT_SAMPLE if limit is None else limit
    if not 1 <= size <= MOST_READ:
        raise ConfigurationError(f"--limit is {size}, expected 1 to {MOST_READ:,} with --traffic")
    if kept is not None and kept.is_dir():
        return load_dataset(kept)
    address = read_secret(source)
    if address.startswith(("http://", "https://")):
        store = Store(address)
        try:
            rows: Iterable[dict[str, Any]] = read_traffic(store, since_s, MOST_READ)
        finally:
            store.close()
    else:
        rows = _read_file(Path(source))
    drawn = _draw(rows, size, seed)
    if not drawn:
        raise CannotMeasureError(
            f"{hide_password(address)} has no request with a question and an answer"
        )
    if kept is not None:
        return keep_traffic(kept, drawn)
    with TemporaryDirectory() as folder:
        return keep_traffic(Path(folder) / NAME, drawn)


def _draw(rows: Iterable[dict[str, Any]], size: int, seed: int) -> list[dict[str, Any]]:
    """Return a sample that depends only on the seed and the ids, not on the order of the rows."""

    def rank(row: Mapping[str, Any]) -> str:
        return hashlib.sha256(f"{seed} {row['id']}".encode("utf-8", "replace")).hexdigest()

    seen: set[str] = set()
    drawn: list[tuple[str, str, dict[str, Any]]] = []
    for row in rows:
        name = str(row["id"])
        if name not in seen:
            seen.add(name)
            drawn.append((rank(row), name, row))
        if len(drawn) > 2 * size + 1000:
            drawn = heapq.nsmallest(size, drawn, key=lambda entry: entry[:2])
    return [row for _, _, row in heapq.nsmallest(size, drawn, key=lambda entry: entry[:2])]


def _read_file(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the requests of a file; an error names the invalid line.

    A line is an item, as saved by a run, or a request as exported by the store, with
    `input_messages`, `output_messages` and optional `trace_id` and `tenant`.
    """
    try:
        with path.open("rb") as file:
            for number in range(1, MAX_LINES + 1):
                line = file.readline(MAX_LINE_BYTES + 1)
                if not line and number == 1:
                    raise ConfigurationError(f"{path} is empty")
                if not line:
                    return
                if len(line) > MAX_LINE_BYTES:
                    raise ConfigurationError(
                        f"{path}:{number} is longer than {MAX_LINE_BYTES:,} bytes"
                    )
                if line.strip():
                    row = _read_line(line, f"{path}:{number}")
                    if row is not None:
                        yield row
            raise ConfigurationError(f"{path} has more than {MAX_LINES:,} lines")
    except OSError as error:
        raise ConfigurationError(f"--traffic {path} cannot be read: {error.strerror}") from error


def _read_line(line: bytes, where: str) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{where} is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ConfigurationError(f"{where} is a JSON {type(row).__name__}, expected an object")
    if "messages" in row and "id" in row:
        return row
    if "input_messages" not in row:
        raise ConfigurationError(
            f"{where} is not a recorded request: it has neither id and messages nor input_messages"
        )
    turns = read_turns(_as_text(row["input_messages"]))
    answers = read_turns(_as_text(row.get("output_messages", "")))
    if not turns or not answers:
        # Its content was not recorded, or it was not answered.
        return None
    asked = [{"role": role, "content": text} for role, text in turns]
    digest = hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]
    tenant = row.get("tenant")
    return {
        "id": str(row.get("trace_id") or hashlib.sha256(line).hexdigest()[:16]),
        "messages": asked,
        "reference": answers[0][1],
        "scorer": "normalised",
        "tags": [tenant] if isinstance(tenant, str) and tenant else [],
        "cluster_id": digest,
    }


def _as_text(messages: Any) -> str:
    """Return stored messages as JSON text: an export may have parsed the JSON."""
    return messages if isinstance(messages, str) else json.dumps(messages)
