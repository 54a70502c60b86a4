"""What `evenkeel eval grow` does."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from evals.candidates import JSON_REFERENCES, Candidate, CandidateFile, Failure, read_turns
from evals.dataset import find_items_file, load_dataset
from evals.likeness import Encode
from evals.settings import EvalSettings
from evenkeel.embedding import PACKAGE, load_encoder
from evenkeel.errors import ConfigurationError
from evenkeel.settings import load
from evenkeel.settings_flags import read_flags
from evenkeel.spans import REVIEW_ACCEPTED
from evenkeel.store import DEFAULT_URL, Store

NS_PER_S = 1_000_000_000
# A bad answer is found some time after it was given.
LOOKBACK_NS = 7 * 24 * 3600 * NS_PER_S


def run(args: argparse.Namespace) -> int:
    """Propose, accept or reject candidates for a dataset.

    Raises:
        ConfigurationError: If the dataset, a candidate or a reference is wrong.
        StoreError: If the store does not answer.
    """
    file = CandidateFile(find_items_file(args.dataset))
    if args.accept is not None:
        return _accept(args, file)
    if args.reject is not None:
        file.reject(args.reject, args.reason or "")
        print(f"{args.reject} is turned down; nothing like it is proposed again")
        return 0
    if args.list:
        return _show(args, file.waiting, {})
    return _propose(args, file)


def _accept(args: argparse.Namespace, file: CandidateFile) -> int:
    if args.reference is None:
        raise ConfigurationError("--accept needs --reference: what the answer should be")
    item = file.accept(args.accept, _row(args, args.reference))
    if args.json:
        print(json.dumps(item, ensure_ascii=False))
        return 0
    print(f"{item['id']} is in {args.dataset}; now: evenkeel eval lock {args.dataset} --note '…'")
    return 0


def _row(args: argparse.Namespace, text: str) -> dict[str, Any]:
    reference: Any = text
    if args.scorer in JSON_REFERENCES:
        try:
            reference = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(
                f"--reference of {args.scorer} is not JSON: {error}"
            ) from error
    tags = [tag.strip() for tag in args.tags.split(",") if tag.strip()]
    return {"reference": reference, "scorer": args.scorer, "tags": tags}


def _propose(args: argparse.Namespace, file: CandidateFile) -> int:
    settings = load(EvalSettings, read_flags(EvalSettings, args)).settings
    url = settings.store_address(DEFAULT_URL)
    since_ns = time.time_ns() - int(args.since * NS_PER_S)
    store = Store(url)
    try:
        failures, num_unreadable, accepted = _read_failures(store, since_ns)
    finally:
        store.close()
    encode: Encode | None = None
    if all(find_spec(name) is not None for name in (PACKAGE, "tokenizers", "safetensors")):
        encode = load_encoder().encode
    proposal = file.propose(failures, load_dataset(args.dataset), encode)
    notes: dict[str, Any] = {
        "num_failures": len(failures) + num_unreadable,
        "num_without_content": num_unreadable,
        "duplicates": [{"trace_id": t, "like": like} for t, like in proposal.duplicates],
        "compares_meaning": encode is not None,
    }
    if args.reviewed:
        notes["accepted"] = _accept_reviewed(args, file, accepted)
    fresh = [candidate for candidate in proposal.fresh if candidate in file.waiting]
    return _show(args, fresh, notes)


def _accept_reviewed(
    args: argparse.Namespace, file: CandidateFile, accepted: Mapping[str, str]
) -> list[str]:
    """Make items of the candidates that a person accepted, with the reference that they gave."""
    made = []
    for candidate in tuple(file.waiting):
        if candidate.trace_id in accepted:
            row = _row(args, accepted[candidate.trace_id])
            made.append(str(file.accept(candidate.id, row)["id"]))
    return made


def _read_failures(store: Store, since_ns: int) -> tuple[list[Failure], int, dict[str, str]]:
    """Return failures with content, how many have none, and accepted references by trace."""
    rows = {str(r["trace_id"]): r for r in store.rows("failed_answers", {"since_ns": since_ns})}
    if not rows:
        return [], 0, {}
    bounds = {"from_ns": since_ns - LOOKBACK_NS, "to_ns": time.time_ns()}
    found: dict[str, Failure] = {}
    for content in store.rows("request_contents", {**bounds, "trace_ids": sorted(rows)}):
        trace_id = str(content["trace_id"])
        turns = read_turns(str(content["input_messages"]))
        answers = read_turns(str(content["output_messages"]))
        is_asked = any(role == "user" and text.strip() for role, text in turns)
        if not is_asked or not answers or trace_id in found:
            continue
        row = rows[trace_id]
        reasons = tuple(sorted(str(reason) for reason in row["reasons"]))
        corrected = None if row["corrected"] is None else str(row["corrected"])
        found[trace_id] = Failure(trace_id, turns, answers[0][1], reasons, corrected)
    accepted = {
        trace_id: str(row["corrected"])
        for trace_id, row in rows.items()
        if row["review"] == REVIEW_ACCEPTED and row["corrected"] is not None
    }
    return [found[t] for t in sorted(found)], len(rows) - len(found), accepted


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
            f"{len(notes['duplicates'])} are there already, "
            f"{notes['num_without_content']} have no stored content"
        )
        for item_id in notes.get("accepted", ()):
            print(f"{item_id} was accepted by a person, and is in {args.dataset}")
        if not notes["compares_meaning"]:
            print("meaning was not compared: pip install 'evenkeel[embeddings]'")
    print(f"{args.dataset}: accept with --accept ID --reference TEXT, turn down with --reject ID")
    return 0
