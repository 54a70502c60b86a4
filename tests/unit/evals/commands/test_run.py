"""What `evenkeel eval run` stores of a run, and when."""

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from evenkeel.secret_text import SecretAddress
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.ask.recorded_run import Beginning, RecordedRun
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.commands.run import _print_plan, _publish
from evenkeel_evals.compare.comparison import Comparison
from evenkeel_evals.report import spans as result_spans
from evenkeel_evals.verdict.gates import parse_gates, with_errors
from evenkeel_evals.verdict.plan import plan_gates
from tests.unit.evals.compare.test_comparison import make_comparison


def publish(
    comparison: Comparison,
    make_pair: Any,
    folder: Path,
    report: Path | None,
    *,
    is_fresh: bool = False,
) -> int:
    """Answer every pair, without engine seconds, and publish the outcome."""
    with Journal(folder / "journal.jsonl") as journal:
        recorded = RecordedRun(journal if report is not None else None)
        recorded.begin(Beginning("r", 1, comparison.identity(), {"A": "m", "B": "m"}, {}))
        asked = set()
        for pair in comparison.planned:
            for letter in pair.order:
                answer = replace(make_pair(0).a, trace_id=f"{pair.index}{letter}")
                recorded.record_answer(pair, letter, answer)
                asked.add(answer.trace_id)
        recorded.record_server_times({}, asked)
        judgement = comparison.judge_if_complete(recorded)
        assert judgement is not None
        outcome = comparison.conclude(recorded, judgement)
        args = Namespace(report=report, json=True, fresh=is_fresh)
        return _publish(outcome, recorded, comparison, args, Console())


@pytest.mark.parametrize("is_kept", [True, False])
def test_results_wait_for_their_cost_only_if_the_same_command_continues_the_run(  # type: ignore[no-untyped-def]
    make_pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *,
    is_kept: bool,
) -> None:
    sent: list[str] = []
    monkeypatch.setattr(result_spans, "send", lambda outcome, _: sent.append(outcome.run_id))
    comparison = replace(
        make_comparison(make_pair, 20),
        gates=with_errors(parse_gates("cost<=+5%")),
        settings=EvalSettings(store_url=SecretAddress("http://h:1")),
    )
    report = tmp_path / "report" if is_kept else None
    assert publish(comparison, make_pair, tmp_path, report) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["stored"] is not is_kept
    assert sent == ([] if is_kept else ["r"])
    assert ("repeat this command later" in err) is is_kept


@pytest.mark.parametrize(
    ("is_kept", "is_fresh", "how"),
    [(True, False, ""), (True, True, " without --fresh"), (False, False, None)],
)
def test_results_without_a_collector_can_be_stored_later_if_the_run_is_kept(  # type: ignore[no-untyped-def]
    make_pair,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    is_kept: bool,
    is_fresh: bool,
    how: str | None,
) -> None:
    comparison = replace(
        make_comparison(make_pair, 20),
        settings=EvalSettings(otlp_endpoint=SecretAddress("http://127.0.0.1:1")),
    )
    report = tmp_path / "report" if is_kept else None
    publish(comparison, make_pair, tmp_path, report, is_fresh=is_fresh)
    err = capsys.readouterr().err
    assert "results were not stored: no collector is answering at http://127.0.0.1:1" in err
    assert (f"repeat this command later{how}: it asks nothing again" in err) is is_kept


@pytest.mark.parametrize("is_anytime", [True, False])
def test_a_plan_says_which_way_of_judging_it_is_for(
    capsys: pytest.CaptureFixture[str], *, is_anytime: bool
) -> None:
    plan = plan_gates(parse_gates("accuracy>=-3%"), 100)
    _print_plan(plan, 100, Console(width=120), is_anytime=is_anytime)
    printed = capsys.readouterr().out
    assert "what 100 pairs can detect:" in printed
    assert ("judging after every pair takes more" in printed) is is_anytime
