"""Candidates for a golden dataset: proposed from production failures, accepted by people."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel.synced_text import replace_text
from evenkeel_evals.dataset.dataset import Dataset
from evenkeel_evals.production.duplicates import EncodeAll, KnownQuestions, fingerprint
from evenkeel_evals.scorers.base import make_scorer
from evenkeel_evals.scorers.rules import scrub

# Scorers whose reference is not text.
JSON_REFERENCES = ("json", "refusal")
# Called with the stage, the amount done and the total.
Report = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class ProductionFailure:
    """One bad production answer.

    Attributes:
        trace_id: Its trace id.
        messages: The request: role and content of each turn, without system messages.
        answer: The answer.
        reasons: Which scorers or people found it bad, and why.
        corrected: A person's corrected answer.
    """

    trace_id: str
    messages: tuple[tuple[str, str], ...]
    answer: str
    reasons: tuple[str, ...]
    corrected: str | None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A failure that may become an item; texts are scrubbed."""

    id: str
    trace_id: str
    messages: tuple[tuple[str, str], ...]
    answer: str
    reasons: tuple[str, ...]
    corrected: str | None

    @property
    def question(self) -> str:
        """Return the text of all user turns."""
        return "\n".join(text for role, text in self.messages if role == "user")


@dataclass(frozen=True, slots=True)
class Proposal:
    """The result of a search for candidates.

    Attributes:
        fresh: New candidates.
        duplicates: Skipped traces, with the question each duplicates.
        ids: Id of each trace's question; questions with the same text have the same.
    """

    fresh: tuple[Candidate, ...]
    duplicates: tuple[tuple[str, str], ...]
    ids: Mapping[str, str]

    def references(self, reviewed: Mapping[str, str]) -> dict[str, str]:
        """Return the reviewed answers by question; of several, the first.

        Args:
            reviewed: The right answer by trace, newest first.
        """
        found: dict[str, str] = {}
        for trace_id, answer in reviewed.items():
            if trace_id in self.ids:
                found.setdefault(self.ids[trace_id], answer)
        return found


class CandidateFile:
    """`<dataset>.candidates.json`: pending and rejected candidates.

    Args:
        items_path: The dataset's .jsonl file; the candidates file is in the same folder.

    Raises:
        ConfigurationError: If it exists but is damaged.
    """

    def __init__(self, items_path: Path) -> None:
        self._items_path = items_path
        self.path = items_path.with_suffix(".candidates.json")
        record: dict[str, Any] = {"waiting": [], "rejected": []}
        if self.path.exists():
            try:
                record = json.loads(self.path.read_text(encoding="utf-8"))
            except (OSError, ValueError, RecursionError) as error:
                raise ConfigurationError(f"{self.path} is damaged: {error}") from error
        try:
            self.waiting = [_read(entry) for entry in record["waiting"]]
            self.rejected: list[dict[str, str]] = list(record["rejected"])
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigurationError(f"{self.path} is damaged: {error!r}") from error

    def propose(
        self,
        failures: Sequence[ProductionFailure],
        dataset: Dataset,
        encode_all: EncodeAll | None,
        report: Report = lambda stage, done, total: None,
    ) -> Proposal:
        """Add the failures that duplicate no known question as pending candidates.

        Args:
            failures: The production failures.
            dataset: The dataset.
            encode_all: Embeds texts; None disables comparison by meaning.
            report: Called with the stage, the amount done and the total.
        """
        known = KnownQuestions(encode_all)
        for item in dataset.items:
            known.add(item.id, "\n".join(m.content for m in item.messages if m.role == "user"))
        for candidate in self.waiting:
            known.add(candidate.id, candidate.question)
        for entry in self.rejected:
            known.add(entry["id"], entry["question"])
        found = []
        for failure in failures:
            found.append(_scrubbed(failure))
            report("comparing words", len(found), len(failures))
        # Questions that match by text need no embedding; nor does the dataset if all of them do.
        open_ones = [c.question for c in found if known.find_written(c.question) is None]
        if open_ones:
            known.prepare(open_ones)
        fresh: list[Candidate] = []
        duplicates: list[tuple[str, str]] = []
        for candidate in found:
            like = known.find(candidate.question)
            if like is not None:
                duplicates.append((candidate.trace_id, f"{like.how} as {like.other_id}"))
                continue
            known.add(candidate.id, candidate.question)
            fresh.append(candidate)
        self.waiting += fresh
        self._write()
        ids = {candidate.trace_id: candidate.id for candidate in found}
        return Proposal(tuple(fresh), tuple(duplicates), ids)

    def accept(self, candidate_id: str, row: Mapping[str, Any]) -> dict[str, Any]:
        """Add a candidate to the dataset and return the item; the dataset must be locked again.

        Args:
            candidate_id: Id of the candidate.
            row: Reference, scorer and tags, given by a person.

        Raises:
            ConfigurationError: If there is no such candidate, or the scorer rejects the reference.
        """
        candidate = self._find(candidate_id)
        make_scorer(row["scorer"], row["reference"])
        item = {
            "id": candidate.id,
            "messages": [{"role": role, "content": text} for role, text in candidate.messages],
            **row,
            "cluster_id": candidate.id,
        }
        text = self._items_path.read_text(encoding="utf-8")
        separator = "" if not text or text.endswith("\n") else "\n"
        line = json.dumps(item, ensure_ascii=False)
        replace_text(self._items_path, f"{text}{separator}{line}\n", "replace")
        self.waiting.remove(candidate)
        self._write()
        return item

    def reject(self, candidate_id: str, reason: str) -> None:
        """Reject a candidate; nothing like it is proposed again.

        Raises:
            ConfigurationError: If there is no such candidate.
        """
        candidate = self._find(candidate_id)
        entry = {"id": candidate.id, "question": candidate.question, "reason": reason}
        self.rejected.append(entry)
        self.waiting.remove(candidate)
        self._write()

    def _find(self, candidate_id: str) -> Candidate:
        for candidate in self.waiting:
            if candidate.id == candidate_id:
                return candidate
        waiting = ", ".join(c.id for c in self.waiting[:5]) or "none"
        raise ConfigurationError(f"no pending candidate {candidate_id!r}; pending: {waiting}")

    def _write(self) -> None:
        record = {"waiting": [asdict(c) for c in self.waiting], "rejected": self.rejected}
        replace_text(self.path, json.dumps(record, indent=1, ensure_ascii=False) + "\n", "replace")


def _read(entry: Mapping[str, Any]) -> Candidate:
    turns = tuple((str(role), str(text)) for role, text in entry["messages"])
    return Candidate(**{**entry, "messages": turns, "reasons": tuple(entry["reasons"])})


def _scrubbed(failure: ProductionFailure) -> Candidate:
    messages = tuple((role, scrub(text)) for role, text in failure.messages)
    question = "\n".join(text for role, text in messages if role == "user")
    return Candidate(
        id=f"grown-{fingerprint(question)[:10]}",
        trace_id=failure.trace_id,
        messages=messages,
        answer=scrub(failure.answer),
        reasons=tuple(scrub(reason) for reason in failure.reasons),
        corrected=None if failure.corrected is None else scrub(failure.corrected),
    )


def read_turns(stored: str) -> tuple[tuple[str, str], ...]:
    """Return role and text of stored messages, without system messages; empty if unreadable.

    The system message belongs to the prompt under test, not to the item.
    """
    try:
        turns = [
            (str(t["role"]), "".join(str(p["content"]) for p in t["parts"] if "content" in p))
            for t in json.loads(stored)
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ()
    return tuple(turn for turn in turns if turn[0] not in ("system", "developer"))
