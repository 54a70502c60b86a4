"""Both sides are asked first, and their answers scored afterwards."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from evenkeel_evals.ask.client import Call, Reply
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.ask.recorded_run import Beginning, RecordedRun
from evenkeel_evals.ask.run import CacheMode, RunOptions, ask_all
from evenkeel_evals.ask.schedule import PlannedPair
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.scorers.base import Context, Score, Scorer
from tests.unit.evals.conftest import MakePair

BEGINNING = Beginning("r1", 5, {}, {"A": "m", "B": "m"}, {"A": None, "B": None})
OPTIONS = RunOptions("r1", concurrency=2, seed=0, cache=CacheMode.SHARED, warmup=2)
SIDE = Side("a", "http://h", "m", "p", "1", None, {})
NUM_PAIRS = 4


class CountingClient:
    """Answers at once, and counts."""

    def __init__(self) -> None:
        self.num_answers = 0

    async def ask(self, call: Call) -> Reply:
        self.num_answers += 1
        return Reply(0, 1, text="x")


async def run(path: Path, planned: list[PlannedPair], client: Any) -> None:
    with Journal(path) as journal:
        recorded = RecordedRun(journal)
        recorded.begin(BEGINNING)
        await ask_all(client, (SIDE, SIDE), planned, OPTIONS, recorded, lambda *_: None)


async def test_answers_are_scored_once_and_after_the_calls(
    tmp_path: Path, make_pair: MakePair
) -> None:
    """Scoring takes time in which no answer is read, and would be part of its latency."""
    client, seen = CountingClient(), []

    def judge(answer: str, context: Context) -> Score:
        seen.append(client.num_answers)
        return Score.of(answer == "x")

    item = replace(make_pair(0).item, scorer=Scorer("counted", judge))
    planned = [PlannedPair(index, item, "A") for index in range(NUM_PAIRS)]
    await run(tmp_path / "journal.jsonl", planned, client)
    assert seen == [2 * (OPTIONS.warmup + NUM_PAIRS)] * 2 * NUM_PAIRS
    with Journal(tmp_path / "journal.jsonl") as journal:
        pairs = RecordedRun(journal).pairs(planned)
    assert [(pair.a.is_right, pair.b.is_right) for pair in pairs] == [(True, True)] * NUM_PAIRS
    assert len(seen) == 2 * NUM_PAIRS


async def test_answers_that_a_killed_run_did_not_score_are_scored(
    tmp_path: Path, make_pair: MakePair
) -> None:
    path = tmp_path / "journal.jsonl"
    planned = [PlannedPair(0, make_pair(0).item, "A")]
    await run(path, planned, CountingClient())
    lines = path.read_text().splitlines(keepends=True)
    kept = [line for line in lines if '"score"' not in line]
    assert len(kept) == len(lines) - 2
    path.write_text("".join(kept))
    with Journal(path) as journal:
        (pair,) = RecordedRun(journal).pairs(planned)
    assert (pair.a.is_right, pair.b.is_right) == (True, True)


async def test_a_journal_of_the_first_format_has_its_scores_beside_the_answers(
    tmp_path: Path, make_pair: MakePair
) -> None:
    path = tmp_path / "journal.jsonl"
    planned = [PlannedPair(0, make_pair(0).item, "A")]
    await run(path, planned, CountingClient())
    wrong = {"value": 0.0, "label": "wrong", "reason": "then"}
    with Journal(path) as journal:
        records = journal.records
    path.unlink()
    with Journal(path) as journal:
        for record in records:
            then: Any = {"run": {"format": 1}, "answer": {"score": wrong}}.get(record["kind"], {})
            if record["kind"] != "score":
                journal.append({**record, **then})
    with Journal(path) as journal:
        (pair,) = RecordedRun(journal).pairs(planned)
    assert (pair.a.score.reason, pair.b.is_right) == ("then", False)
