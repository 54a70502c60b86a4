"""Implements `evenkeel eval grow`."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evenkeel.embedding import hash_model, is_installed, load_encoder
from evenkeel.errors import ConfigurationError
from evenkeel.extras import how_to_install
from evenkeel.settings import load
from evenkeel.settings_flags import read_flags
from evenkeel.spans import REVIEW_ACCEPTED
from evenkeel.store import DEFAULT_URL, QUERIES, Store
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.dataset.dataset import find_items_file, load_dataset
from evenkeel_evals.dataset.imports.plain import split_tags
from evenkeel_evals.production.candidates import (
    JSON_REFERENCES,
    Candidate,
    CandidateFile,
    ProductionFailure,
    Proposal,
    Report,
    read_turns,
)
from evenkeel_evals.production.duplicates import EncodeAll
from evenkeel_evals.production.embedding_cache import EmbeddingCache

_HERE = Path(__file__).parent
NS_PER_S = 1_000_000_000
# Bad answers are found some time after they were given.
LOOKBACK_NS = 7 * 24 * 3600 * NS_PER_S
# Traces whose content is read per query: answers may be long.
READ_AT_ONCE = 200
MAX_FAILURES = 100_000
SAID_EVERY_S = 1.0


def run(args: argparse.Namespace) -> int:
    """Propose, accept or reject candidates for a dataset.

    Raises:
        ConfigurationError: If the dataset, a candidate or a reference is wrong.
        StoreError: If the store does not answer.
    """
    if not 1 <= args.limit <= MAX_FAILURES:
        raise ConfigurationError(f"--limit is {args.limit}, expected 1 to {MAX_FAILURES:,}")
    file = CandidateFile(find_items_file(args.dataset))
    if args.accept is not None:
        return _accept(args, file)
    if args.reject is not None:
        file.reject(args.reject, args.reason or "")
        print(f"{args.reject} is rejected; nothing like it will be proposed again")
        return 0
    if args.list:
        return _show(args, file.waiting, {})
    return _propose(args, file)


def _accept(args: argparse.Namespace, file: CandidateFile) -> int:
    if args.reference is None:
        raise ConfigurationError("--accept needs --reference: the right answer")
    item = file.accept(args.accept, _row(args, args.reference))
    if args.json:
        print(json.dumps(item, ensure_ascii=False))
        return 0
    print(
        f"{item['id']} was added to {args.dataset}; next: "
        f"evenkeel eval lock {args.dataset} --note '…'"
    )
    return 0


def _row(args: argparse.Namespace, text: str) -> dict[str, Any]:
    reference: Any = text
    if args.scorer in JSON_REFERENCES:
        try:
            reference = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ConfigurationError(
                f"--reference must be JSON for scorer {args.scorer}: {error}"
            ) from error
    return {"reference": reference, "scorer": args.scorer, "tags": split_tags(args.tags)}


def _propose(args: argparse.Namespace, file: CandidateFile) -> int:
    settings = load(EvalSettings, read_flags(EvalSettings, args)).settings
    url = settings.store_address(DEFAULT_URL)
    since_ns = time.time_ns() - int(args.since * NS_PER_S)
    tell = _Teller()
    store = Store(url)
    try:
        failures, num_unreadable, accepted = _read_failures(store, since_ns, args.limit, tell)
    finally:
        store.close()
    encode_all = kept_encoder(settings.cache_dir.expanduser(), tell) if is_installed() else None
    proposal = file.propose(failures, load_dataset(args.dataset), encode_all, tell)
    notes: dict[str, Any] = {
        "num_failures": len(failures) + num_unreadable,
        "num_without_content": num_unreadable,
        "duplicates": [{"trace_id": t, "like": like} for t, like in proposal.duplicates],
        "compares_meaning": encode_all is not None,
    }
    if args.reviewed:
        notes["accepted"] = _accept_reviewed(args, file, proposal, accepted)
    fresh = [candidate for candidate in proposal.fresh if candidate in file.waiting]
    return _show(args, fresh, notes)


def _accept_reviewed(
    args: argparse.Namespace, file: CandidateFile, proposal: Proposal, accepted: Mapping[str, str]
) -> list[str]:
    """Add the candidates accepted on the dashboard as items, with the references given there.

    Whoever reviews one of several answers to the same question has reviewed the question.
    """
    made = []
    references = proposal.references(accepted)
    for candidate in tuple(file.waiting):
        # Of a candidate proposed earlier, the content may be gone.
        reference = references.get(candidate.id, accepted.get(candidate.trace_id))
        if reference is not None:
            row = _row(args, reference)
            made.append(str(file.accept(candidate.id, row)["id"]))
    return made


class _Teller:
    """Prints the progress of a stage to standard error, every second and at its end."""

    def __init__(self) -> None:
        self._said_s = time.monotonic()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now_s = time.monotonic()
        if done < total and now_s - self._said_s < SAID_EVERY_S:
            return
        self._said_s = now_s
        print(f"{stage}: {done:,} of {total:,}", file=sys.stderr, flush=True)


def kept_encoder(folder: Path, tell: Report) -> EncodeAll:
    """Return the embedding function; it loads the model at the first uncached text."""

    def compute(texts: Sequence[str]) -> Any:
        tell("comparing meaning", 0, len(texts))
        return load_encoder().encode_all(
            texts, lambda done: tell("comparing meaning", done, len(texts))
        )

    return EmbeddingCache(folder, hash_model(), compute).encode_all


def _read_failures(
    store: Store, since_ns: int, limit: int, tell: Report
) -> tuple[list[ProductionFailure], int, dict[str, str]]:
    """Return failures with content, the number without, and accepted references by trace.

    The references are in the order of the reviews, newest first.
    """
    asked = {"since_ns": since_ns, "limit": limit + 1}
    newest = store.rows(_HERE / "failed_answers.sql", asked)
    if len(newest) > limit:
        print(
            f"evenkeel: there are more than {limit:,} failures; using the newest "
            "(raise --limit for more)",
            file=sys.stderr,
        )
    rows = {str(r["trace_id"]): r for r in newest[:limit]}
    bounds = {"from_ns": since_ns - LOOKBACK_NS, "to_ns": time.time_ns()}
    trace_ids = sorted(rows)
    found: dict[str, ProductionFailure] = {}
    for start in range(0, len(trace_ids), READ_AT_ONCE):
        part = trace_ids[start : start + READ_AT_ONCE]
        for content in store.rows(QUERIES / "request_contents.sql", {**bounds, "trace_ids": part}):
            failure = _read_failure(rows, content)
            if failure is not None:
                found.setdefault(failure.trace_id, failure)
        tell("reading failures", start + len(part), len(trace_ids))
    accepted = {
        trace_id: str(row["corrected"])
        for trace_id, row in rows.items()
        if row["review"] == REVIEW_ACCEPTED and row["corrected"] is not None
    }
    return [found[t] for t in sorted(found)], len(rows) - len(found), accepted


def _read_failure(
    rows: Mapping[str, Mapping[str, Any]], content: Mapping[str, Any]
) -> ProductionFailure | None:
    """Return a failure with its question and answer; None if either is missing."""
    trace_id = str(content["trace_id"])
    turns = read_turns(str(content["input_messages"]))
    answers = read_turns(str(content["output_messages"]))
    if not answers or not any(role == "user" and text.strip() for role, text in turns):
        return None
    row = rows[trace_id]
    reasons = tuple(sorted(str(reason) for reason in row["reasons"]))
    corrected = None if row["corrected"] is None else str(row["corrected"])
    return ProductionFailure(trace_id, turns, answers[0][1], reasons, corrected)


def _show(
    args: argparse.Namespace,
    candidates: tuple[Candidate, ...] | list[Candidate],
    notes: dict[str, Any],
) -> int:
    if args.json:
        records = [
            {"id": c.id, "trace_id": c.trace_id, "question": c.question, "answer": c.answer,
             "reasons": list(c.reasons), "corrected": c.corrected}
            for c in candidates
        ]  # fmt: skip
        print(json.dumps({"candidates": records, **notes}, ensure_ascii=False))
        return 0
    for c in candidates:
        print(f"{c.id} (trace {c.trace_id}): {'; '.join(c.reasons)}")
        print(f"  asked     {c.question!r}\n  answered  {c.answer!r}")
        if c.corrected is not None:
            print(f"  should be {c.corrected!r}")
    if notes:
        print(
            f"{len(candidates)} new of {notes['num_failures']} failures; "
            f"{len(notes['duplicates'])} are duplicates, "
            f"{notes['num_without_content']} have no stored content"
        )
        for item_id in notes.get("accepted", ()):
            print(f"{item_id} was accepted on the dashboard and added to {args.dataset}")
        if not notes["compares_meaning"]:
            print(f"meanings were not compared: {how_to_install('embeddings')}")
    print(f"{args.dataset}: accept with --accept ID --reference TEXT, reject with --reject ID")
    return 0
