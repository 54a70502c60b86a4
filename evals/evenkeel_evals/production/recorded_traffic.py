"""Turns production requests into a dataset, with the recorded answers as references."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evenkeel.errors import CannotMeasureError, ConfigurationError, first_line
from evenkeel.private_files import private_umask
from evenkeel.store import Store
from evenkeel_evals.dataset.dataset import Dataset, load_dataset
from evenkeel_evals.production.candidates import read_turns

_HERE = Path(__file__).parent
NS_PER_S = 1_000_000_000
NAME = "traffic"


def read_traffic(store: Store, since_s: float, limit: int) -> list[dict[str, Any]]:
    """Return dataset rows made from the newest requests whose content is stored.

    The reference is the recorded answer, so accuracy means agreement with it. System messages are
    left out, since the side sets its own. Repeats of one question form one cluster.

    Raises:
        CannotMeasureError: If there are none.
        StoreError: If the store does not answer.
    """
    since_ns = time.time_ns() - int(since_s * NS_PER_S)
    rows: dict[str, dict[str, Any]] = {}
    for row in store.rows(_HERE / "recorded_traffic.sql", {"since_ns": since_ns, "limit": limit}):
        turns = read_turns(str(row["input_messages"]))
        answers = read_turns(str(row["output_messages"]))
        if not turns or not answers:
            continue
        question = json.dumps(turns)
        rows[str(row["trace_id"])] = {
            "id": str(row["trace_id"]),
            "messages": [{"role": role, "content": text} for role, text in turns],
            "reference": answers[0][1],
            "scorer": "normalised",
            "tags": [str(row["tenant"])] if row["tenant"] else [],
            "cluster_id": hashlib.sha256(question.encode()).hexdigest()[:16],
        }
    if not rows:
        raise CannotMeasureError(
            f"{store.shown_url} has no request from the last {since_s:g} s with stored content; "
            "serve with --record-content, and name the tenants in content_tenants"
        )
    return list(rows.values())


def keep_traffic(folder: Path, rows: Sequence[dict[str, Any]]) -> Dataset:
    """Write the rows as a dataset and return it, so that a resumed run asks the same items.

    Raises:
        ConfigurationError: If the folder cannot be written.
    """
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    digest = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    try:
        # It contains users' questions.
        with private_umask():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{NAME}.jsonl").write_bytes(text.encode("utf-8", "replace"))
            (folder / f"{NAME}.toml").write_text(f'version = "{digest[:12]}"\n', encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(
            f"{folder} cannot be written: {first_line(error, folder=folder)}"
        ) from error
    return load_dataset(folder)
