"""A run as recorded in its journal: calls made, answers received, and work left to do."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.answers import (
    NOT_SCORED,
    Answer,
    AnsweredPair,
    Repeats,
    ServerTimes,
    are_identical,
    merge,
)
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.ask.judge_reply import JudgeReply
from evenkeel_evals.ask.schedule import PlannedPair
from evenkeel_evals.ask.scoring import score_checked
from evenkeel_evals.ask.sentinel import SentinelAnswer
from evenkeel_evals.scorers.base import Label, LateCheck, Score

# Format 1 had each answer's score beside it.
FORMAT = 2
_READABLE = (1, 2)


@dataclass(frozen=True, slots=True)
class Beginning:
    """The facts that are fixed once a run makes its first call.

    Attributes:
        run_id: Id of the run.
        start_ns: Wall-clock time of the start.
        identity: Everything that determines which calls are made and how they are judged.
        models: Model of each side, by "A" and "B".
        engines: Version that each side's server reports; None if it reports none.
    """

    run_id: str
    start_ns: int
    identity: Mapping[str, Any]
    models: Mapping[str, str]
    engines: Mapping[str, str | None]


class RecordedRun:
    """A run that can be killed at any point and resumed.

    A call is recorded before it is made, and its answer when it arrives, so an answered call is
    never repeated. Answers are scored once all are there, because scoring would delay the reading
    of others whose latency is measured. A call in flight when the process died has no answer and is
    repeated; such calls are counted, and a pair split by the interruption is not used for latency,
    since its halves did not run under the same conditions.

    Args:
        journal: Where the run is stored; None keeps it in memory only.
    """

    def __init__(self, journal: Journal | None) -> None:
        self.beginning: Beginning | None = None
        self.is_warm = False
        self.is_sent = False
        self.server_times: dict[str, ServerTimes] | None = None
        # Traces that the store was asked for, found or not.
        self.times_asked: set[str] = set()
        self._journal = journal
        self._answers: dict[tuple[int, str], Answer] = {}
        self._item_of: dict[int, str] = {}
        self._session_of: dict[tuple[int, str], int] = {}
        self._verdicts: dict[tuple[int, str], str | None] = {}
        self._unreadable: dict[tuple[int, str], str] = {}
        # Scores of answers by the late checks done so far.
        self._scores: dict[tuple[int, str], Score] = {}
        # The result of each look; filled in by the caller that judges it.
        self._repeats: dict[int, Repeats] = {}
        self._sentinel_answers: dict[int, SentinelAnswer] = {}
        self._in_flight: set[tuple[int, str]] = set()
        self._num_sessions = 0
        self.num_asked_again = 0
        for record in journal.records if journal is not None else ():
            self._take(record)

    @property
    def num_interruptions(self) -> int:
        """Return how often the run was interrupted before it had asked everything."""
        return max(0, self._num_sessions - 1)

    @property
    def num_answers(self) -> int:
        """Return the answers recorded so far."""
        return len(self._answers)

    def seconds(self) -> float:
        """Return the time from the start to the last answer, interruptions included."""
        ends = [answer.reply.end_ns for answer in self._answers.values()]
        assert self.beginning is not None
        return (max(ends) - self.beginning.start_ns) / 1e9 if ends else 0.0

    def check_is_same(self, identity: Mapping[str, Any]) -> None:
        """Check that the journal belongs to the requested run.

        Raises:
            ConfigurationError: If it belongs to another run; the message names the difference.
        """
        if self.beginning is None:
            return
        theirs = self.beginning.identity
        differing = sorted(k for k in {*identity, *theirs} if identity.get(k) != theirs.get(k))
        if differing:
            raise ConfigurationError(
                f"the --report folder holds run {self.beginning.run_id}, which differs in "
                f"{', '.join(differing)}; use another folder, or --fresh to move it aside"
            )

    def begin(self, beginning: Beginning) -> None:
        """Start or resume the run, before it makes calls.

        Raises:
            ConfigurationError: If the servers have other models or versions than at its beginning.
        """
        if self.beginning is None:
            self._write({"kind": "run", "format": FORMAT, **asdict(beginning)})
        elif dict(self.beginning.models) != dict(beginning.models):
            raise ConfigurationError(
                f"the servers now serve {dict(beginning.models)}, but the run began with "
                f"{dict(self.beginning.models)}; start over with --fresh"
            )
        self._check_engines(beginning.engines)
        self._write({"kind": "session", "time_ns": time.time_ns()})

    def _check_engines(self, engines: Mapping[str, str | None]) -> None:
        assert self.beginning is not None
        for letter, known in self.beginning.engines.items():
            now = engines.get(letter)
            # A server may report none for a moment.
            if None not in (now, known) and now != known:
                raise ConfigurationError(
                    f"the server of side {letter} is now version {now}, but the run began with "
                    f"{known}; start over with --fresh"
                )

    @property
    def sentinel_answers(self) -> list[SentinelAnswer]:
        """Return the drift sentinel's readings."""
        return list(self._sentinel_answers.values())

    def has_sentinel_answer(self, number: int) -> bool:
        """Return whether this sentinel call was made."""
        return number in self._sentinel_answers

    def record_sentinel_answer(self, answer: SentinelAnswer) -> None:
        """Record a sentinel reading."""
        self._write({"kind": "sentinel", **asdict(answer)})

    def record_warm_up(self) -> None:
        """Record that the warm-up is done, so that it is not repeated."""
        self._write({"kind": "warm"})

    def record_sent(self) -> None:
        """Record that the results are in the store."""
        self._write({"kind": "sent"})

    def record_server_times(self, times: Mapping[str, ServerTimes], asked: Set[str]) -> None:
        """Add the store's times of the traces it was asked for.

        This process asks for none of them again. A later one asks for those that were not there.
        """
        if times:
            self._write({"kind": "server", "times": {key: asdict(t) for key, t in times.items()}})
        self.server_times = self.server_times or {}
        self.times_asked.update(asked)

    def answer(self, pair: PlannedPair, letter: str) -> Answer | None:
        """Return the answer if it is recorded."""
        return self._answers.get((pair.index, letter))

    def answers_of(self, letter: str) -> dict[str, list[Answer]]:
        """Return one side's answers by item, each item's repeats in the order asked."""
        found: dict[str, list[Answer]] = {}
        for index, side in sorted(self._answers):
            if side == letter:
                found.setdefault(self._item_of[index], []).append(self._answers[index, side])
        return found

    def record_call(self, pair: PlannedPair, letter: str) -> None:
        """Record that a call is about to be made."""
        self._write({"kind": "call", "pair": pair.index, "side": letter, "item": pair.item.id})

    def record_answer(self, pair: PlannedPair, letter: str, answer: Answer) -> None:
        """Record an answer."""
        self._write(
            {
                "kind": "answer",
                "pair": pair.index,
                "side": letter,
                "item": pair.item.id,
                "reply": asdict(answer.reply),
                "trace_id": answer.trace_id,
                "span_id": answer.span_id,
            }
        )

    async def score(self, planned: Sequence[PlannedPair]) -> None:
        """Score the answers to these pairs that have no score yet, and record the scores.

        Scores that late checks decide are computed when the checks are done.
        """
        for pair in planned:
            for letter in pair.order:
                answer = self._answers[pair.index, letter]
                if answer.score is NOT_SCORED and not pair.item.scorer.checks:
                    score = asdict(score_checked(pair.item, answer))
                    self._write(
                        {"kind": "score", "pair": pair.index, "side": letter, "score": score}
                    )
        await self.sync()

    def record_check(self, pair: PlannedPair, letter: str, check: LateCheck, score: Score) -> None:
        """Record late check results for a recorded answer."""
        self._write(
            {
                "kind": "check",
                "pair": pair.index,
                "side": letter,
                "item": pair.item.id,
                "what": check.kind,
                "check": check.digest,
                "score": asdict(score),
            }
        )

    def has_verdict(self, index: int, order: str) -> bool:
        """Return whether the judge was asked about a pair in this order, successfully or not."""
        return (index, order) in self._verdicts

    def verdicts(self, index: int) -> tuple[str | None, str | None]:
        """Return the judge's verdicts on a pair, with A first and with B first."""
        return self._verdicts.get((index, "AB")), self._verdicts.get((index, "BA"))

    def unreadable(self, index: int) -> list[str]:
        """Return the judge's unreadable replies on a pair, shortened."""
        return [said for (pair, _), said in self._unreadable.items() if pair == index]

    def record_verdict(self, index: int, order: str, spoken: JudgeReply) -> None:
        """Record the judge's reply."""
        self._write({"kind": "verdict", "pair": index, "order": order, **asdict(spoken)})

    def repeats(self, index: int) -> Repeats:
        """Return the results of a lost pair's repeats."""
        return self._repeats.get(index, Repeats())

    def record_repeat(self, index: int, letter: str, is_right: bool | None) -> None:
        """Record one side's result of repeating a lost pair."""
        self._write({"kind": "repeat", "pair": index, "side": letter, "right": is_right})

    async def sync(self) -> None:
        """Wait until everything recorded survives a power loss."""
        if self._journal is not None:
            await self._journal.sync()

    def pairs(
        self, planned: Sequence[PlannedPair], *, is_judged: bool = False
    ) -> list[AnsweredPair]:
        """Return the pairs that have both answers, in the order asked.

        Args:
            planned: The planned pairs.
            is_judged: Whether there is a judge, so that pairs have preferences.
        """
        found = []
        for pair in planned:
            a, b = (pair.index, "A"), (pair.index, "B")
            if a in self._answers and b in self._answers:
                # One half waited for its server after the other was answered.
                second = self._answers[b if pair.first == "A" else a]
                is_split = (
                    self._session_of[a] != self._session_of[b] or second.reply.num_retries > 0
                )
                answers = self._scored(pair, "A"), self._scored(pair, "B")
                whole = AnsweredPair(pair.index, pair.item, pair.first, *answers, is_split)
                known = "tie" if are_identical(whole) else merge(self.verdicts(pair.index))
                found.append(replace(whole, preference=known) if is_judged else whole)
        return found

    def _scored(self, pair: PlannedPair, letter: str) -> Answer:
        answer = self._answers[pair.index, letter]
        if answer.score is not NOT_SCORED and not pair.item.scorer.checks:
            return answer
        key = (pair.index, letter)
        if key not in self._scores:
            self._scores[key] = score_checked(pair.item, answer)
        return replace(answer, score=self._scores[key])

    def _write(self, record: Mapping[str, Any]) -> None:
        if self._journal is not None:
            self._journal.append(record)
        self._take(record)

    def _take(self, record: Mapping[str, Any]) -> None:
        kind = record["kind"]
        if kind == "run":
            self._take_beginning(record)
        elif kind == "session":
            self._num_sessions += 1
            self.num_asked_again += len(self._in_flight)
            self._in_flight.clear()
        elif kind == "call":
            self._in_flight.add((record["pair"], record["side"]))
        elif kind == "answer":
            key = (record["pair"], record["side"])
            self._in_flight.discard(key)
            self._answers[key] = read_answer(record)
            self._item_of[record["pair"]] = record["item"]
            self._session_of[key] = self._num_sessions
        elif kind == "score":
            key = (record["pair"], record["side"])
            self._answers[key] = replace(self._answers[key], score=read_score(record["score"]))
        elif kind == "check":
            key = (record["pair"], record["side"])
            answer = self._answers[key]
            checks = {**answer.checks, record["check"]: read_score(record["score"])}
            self._answers[key] = replace(answer, checks=checks)
            self._scores.pop(key, None)
        elif kind == "verdict":
            key = (record["pair"], record["order"])
            self._verdicts[key] = record["verdict"]
            if record.get("said") is not None:
                self._unreadable[key] = record["said"]
        elif kind == "repeat":
            known = self.repeats(record["pair"])
            right = (record["right"],)
            self._repeats[record["pair"]] = (
                Repeats(known.a + right, known.b)
                if record["side"] == "A"
                else Repeats(known.a, known.b + right)
            )
        elif kind == "sentinel":
            number = int(record["number"])
            self._sentinel_answers[number] = SentinelAnswer(
                number, record["e2e_s"], record["text_hash"]
            )
        elif kind == "warm":
            self.is_warm = True
        elif kind == "sent":
            self.is_sent = True
        elif kind == "server":
            found = {k: ServerTimes(**t) for k, t in record["times"].items()}
            self.server_times = (self.server_times or {}) | found
            self.times_asked.update(record.get("asked", found))

    def _take_beginning(self, record: Mapping[str, Any]) -> None:
        if record["format"] not in _READABLE:
            raise ConfigurationError(
                f"the journal has format {record['format']}, this version reads {FORMAT}; "
                "start over with --fresh"
            )
        self.beginning = Beginning(
            record["run_id"],
            record["start_ns"],
            record["identity"],
            record["models"],
            record["engines"],
        )


def read_answer(record: Mapping[str, Any]) -> Answer:
    """Return the answer in a journal record."""
    return Answer(
        Reply(**record["reply"]),
        read_score(record["score"]) if "score" in record else NOT_SCORED,
        record["trace_id"],
        record["span_id"],
    )


def read_score(record: Mapping[str, Any]) -> Score:
    """Return the score in a journal record."""
    return Score(record["value"], Label(record["label"]), record["reason"])
