"""Recorded traffic as the items of a run: from a file or the store, a bounded and seeded sample."""

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

# The newest requests that a sample is drawn from, and the most that can be asked.
MOST_READ = 10_000
DEFAULT_SAMPLE = 300
MAX_LINES = 1_000_000
MAX_LINE_BYTES = 4 * 1024 * 1024


def load_traffic(
    source: str, since_s: float, limit: int | None, seed: int, kept: Path | None
) -> Dataset:
    """Return recorded requests as a dataset.

    Args:
        source: A file of JSON lines, or the URL of a store (`@FILE` reads it from a file).
        since_s: From the store: how far back.
        limit: How many are drawn at random; DEFAULT_SAMPLE where None.
        seed: Of the draw: the same seed draws the same requests of the same traffic.
        kept: Where the items are kept; what is there already is asked again, so that a run goes on
            with what it began with. None keeps nothing.

    Raises:
        ConfigurationError: If the file cannot be read, or the limit is out of bounds.
        CannotMeasureError: If there is nothing in it.
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
    """Return a sample that depends on the seed and the ids alone, not on the order of the rows."""

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
    """Give the requests of a file; a line that is none is named.

    A line is an item, as a kept run has it, or a request as the store exports it: with
    `input_messages`, `output_messages`, and perhaps `trace_id` and `tenant`.
    """
    try:
        with path.open("rb") as file:
            for number in range(1, MAX_LINES + 1):
                line = file.readline(MAX_LINE_BYTES + 1)
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
        # Its content was not recorded, or it was never answered.
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
    """Return stored messages as text: an export may have taken the JSON apart."""
    return messages if isinstance(messages, str) else json.dumps(messages)
