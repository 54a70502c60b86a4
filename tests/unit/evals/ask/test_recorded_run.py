"""The state of a run after an interruption."""

from dataclasses import replace
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.journal import Journal, open_journal
from evenkeel_evals.ask.recorded_run import Beginning, RecordedRun
from evenkeel_evals.ask.schedule import PlannedPair
from evenkeel_evals.report.files import write_files
from tests.unit.evals.conftest import MakePair
from tests.unit.evals.finished_run import finish

IDENTITY = {"seed": 0, "gates": ["accuracy>=-1%"]}
BEGINNING = Beginning("r1", 5, IDENTITY, {"A": "m", "B": "m"}, {"A": "0.32", "B": None})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def test_a_pair_asked_before_and_after_a_cut_is_split(path: Path, make_pair) -> None:  # type: ignore[no-untyped-def]
    source = [make_pair(0), make_pair(1, True, False)]
    planned = [PlannedPair(p.index, p.item, "A") for p in source]
    with Journal(path) as journal:
        run = RecordedRun(journal)
        run.begin(BEGINNING)
        for letter, answer in (("A", source[0].a), ("B", source[0].b)):
            run.record_call(planned[0], letter)
            run.record_answer(planned[0], letter, answer)
        run.record_call(planned[1], "A")
        run.record_answer(planned[1], "A", source[1].a)
        run.record_call(planned[1], "B")
    with Journal(path) as journal:
        run = RecordedRun(journal)
        assert (run.num_answers, run.num_asked_again) == (3, 0)
        assert run.answer(planned[1], "B") is None
        run.begin(BEGINNING)
        assert (run.num_interruptions, run.num_asked_again) == (1, 1)
        run.record_call(planned[1], "B")
        run.record_answer(planned[1], "B", source[1].b)
        first = run.pairs(planned)
    assert [p.is_split for p in first] == [False, True]
    assert (first[0].a, first[0].b) == (source[0].a, source[0].b)
    with Journal(path) as journal:
        assert RecordedRun(journal).pairs(planned) == first


def test_a_pair_whose_second_half_waited_for_its_server_is_split(make_pair) -> None:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    run = RecordedRun(None)
    run.begin(BEGINNING)
    source = [make_pair(0), make_pair(1)]
    planned = [PlannedPair(0, source[0].item, "A"), PlannedPair(1, source[1].item, "B")]
    for pair, given in zip(planned, source, strict=True):
        waited = replace(given.b, reply=replace(given.b.reply, num_retries=2))
        run.record_answer(pair, "A", given.a)
        run.record_answer(pair, "B", waited)
    # If B went first, both halves ran against the restarted server.
    assert [p.is_split for p in run.pairs(planned)] == [True, False]


def test_split_pairs_count_for_accuracy_only(make_pair) -> None:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    from evenkeel_evals.verdict.gates import parse_gates
    from evenkeel_evals.verdict.measure import measure

    pairs = [make_pair(i) for i in range(20)]
    pairs[3] = replace(pairs[3], is_split=True)
    accuracy, shift = parse_gates("accuracy>=-1%, shift_ttft<=+3%")
    assert measure(accuracy, pairs, 0).num_pairs == 20
    assert measure(shift, pairs, 0).num_pairs == 19


def test_another_run_is_refused_and_the_difference_named(path: Path) -> None:
    with Journal(path) as journal:
        run = RecordedRun(journal)
        run.check_is_same(IDENTITY)
        run.begin(BEGINNING)
        run.check_is_same(IDENTITY)
        with pytest.raises(ConfigurationError, match="run r1, which differs in gates"):
            run.check_is_same({**IDENTITY, "gates": ["accuracy>=-2%"]})


def test_other_models_are_refused(path: Path) -> None:
    with Journal(path) as journal:
        run = RecordedRun(journal)
        run.begin(BEGINNING)
        other = Beginning("r1", 5, IDENTITY, {"A": "m", "B": "new"}, {})
        with pytest.raises(ConfigurationError, match="the servers now serve"):
            run.begin(other)


def test_a_server_that_was_upgraded_meanwhile_does_not_continue_a_run(path: Path) -> None:
    with Journal(path) as journal:
        RecordedRun(journal).begin(BEGINNING)
    with Journal(path) as journal:
        recorded = RecordedRun(journal)
        recorded.begin(replace(BEGINNING, engines={"A": None, "B": "0.33"}))
        recorded.begin(replace(BEGINNING, engines={"A": "0.32", "B": "0.33"}))
        with pytest.raises(ConfigurationError, match=r"of side A is now version 0\.33, .* 0\.32"):
            recorded.begin(replace(BEGINNING, engines={"A": "0.33", "B": "0.33"}))


def test_fresh_puts_the_journal_aside(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "report"
    for is_fresh in (False, True):
        journal = open_journal(folder, is_fresh=is_fresh)
        assert journal is not None
        with journal:
            assert journal.records == []
            journal.append({"kind": "warm"})
    assert len(list(folder.glob("journal-*.jsonl"))) == 1


def test_fresh_puts_the_reports_aside(tmp_path: Path, make_pair: MakePair) -> None:
    """They are another run's: `prompts promote` or a pull request must not take them for new."""
    write_files(finish([make_pair(i) for i in range(20)]), tmp_path, "http://d")
    (tmp_path / "notes.md").write_text("mine")
    names = {path.name for path in tmp_path.iterdir()}
    for is_fresh in (False, True):
        journal = open_journal(tmp_path, is_fresh=is_fresh)
        assert journal is not None
        with journal:
            journal.append({"kind": "warm"})
    left = {path.name for path in tmp_path.iterdir()} & names
    assert left == {"notes.md"}
    assert len(list(tmp_path.iterdir())) == len(names) + 2


def test_fresh_leaves_a_journal_in_use_alone(tmp_path: Path) -> None:
    journal = open_journal(tmp_path, is_fresh=False)
    assert journal is not None
    with journal:
        with pytest.raises(ConfigurationError, match="in use by another run"):
            open_journal(tmp_path, is_fresh=True)
        assert [path.name for path in tmp_path.iterdir()] == ["journal.jsonl"]


def test_fresh_puts_a_damaged_journal_aside(tmp_path: Path) -> None:
    (tmp_path / "journal.jsonl").write_text("damaged\n{}\n")
    journal = open_journal(tmp_path, is_fresh=True)
    assert journal is not None
    with journal:
        assert journal.records == []


def test_an_unwritable_folder_is_known_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="cannot be written"):
        open_journal(tmp_path / "file", is_fresh=False)
