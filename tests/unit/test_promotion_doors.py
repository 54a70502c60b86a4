"""The same run promotes, or does not, through `evenkeel prompts` and through the operators' API."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evenkeel import spans
from evenkeel.audit import Audit, AuditEntry, write_down
from evenkeel.cli import main
from evenkeel.errors import EvenkeelError
from evenkeel.prompts.registry import Move, PromptRegistry, PromptVersion, digest
from evenkeel_collector.operators.actions import entry_of
from evenkeel_collector.operators.prompts import Promote, Rollback
from evenkeel_collector.operators.prompts import promote as promote_by_api
from evenkeel_collector.operators.prompts import roll_back as roll_back_by_api
from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.commands.prompts import PROMPTS
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.report.manifest import to_manifest
from evenkeel_evals.report.spans import result_spans
from evenkeel_evals.scorers.base import Label, Score, make_scorer
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gates import parse_gates
from tests.unit.evals.finished_run import finish

OLD, NEW, OTHER = "You answer.", "You answer in one word.", "You sing."

NOW_NS = 1_700_000_000 * 10**9
GATES = parse_gates("accuracy>=-5%")


class Case(NamedTuple):
    """What a run was, and what comes of a promotion with it.

    Attributes:
        right: Share of right answers of the candidate; the baseline has all right.
        num_pairs: How many.
        unscored: Answers of the candidate that never came.
        model: The candidate's; the baseline's is "m".
        code: Exit code of the command.
    """

    right: float = 1.0
    num_pairs: int = 200
    unscored: int = 0
    broken: tuple[str, ...] = ()
    model: str = "m"
    baseline: str = OLD
    candidate: str = NEW
    code: int = 0


CASES = {
    "it passed": Case(),
    "it regressed": Case(right=0.5, code=1),
    "an item always fails now": Case(broken=("i3",), code=1),
    "too few pairs": Case(num_pairs=5, code=3),
    "too many answers are missing": Case(num_pairs=400, unscored=40, code=3),
    "another candidate": Case(candidate=OTHER, code=2),
    "another model": Case(model="larger", code=2),
    "another baseline": Case(baseline=OTHER, code=2),
}


@pytest.mark.parametrize("name", CASES)
def test_both_doors_give_the_same_answer(
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("time.time_ns", lambda: NOW_NS)
    case, run = CASES[name], outcome_of(CASES[name])
    folders = [make_registry(tmp_path / door) for door in ("command", "api")]
    report = tmp_path / "report"
    report.mkdir()
    (report / "run.json").write_text(json.dumps(run.to_record()))
    (report / "manifest.json").write_text(json.dumps(to_manifest(run)))
    data = tmp_path / "collector"
    data.mkdir()
    flags = ("--prompts-dir", str(folders[0]), "--by", "ann", "--data-dir", str(data))
    assert main(["prompts", "promote", "support", "--report", str(report), *flags], [PROMPTS]) == (
        case.code
    )
    said = capsys.readouterr().err
    order = Promote(by="ann", prompt="support", version=digest(NEW), run_id="r1")
    api = PromptRegistry(folders[1])
    line = entry_of("promote", order, "", NOW_NS)
    done, code = None, 0
    try:
        done = write_down(
            tmp_path / "api.db",
            line,
            lambda: promote_by_api(api, order, NOW_NS, lambda _: stored(run)),
        )
    except EvenkeelError as error:
        code = error.exit_code
        assert str(error).split(":")[0] in said, "the same words"
    assert code == case.code
    assert (done is not None) == (case.code == 0)
    command = PromptRegistry(folders[0])
    assert command.labels("support") == api.labels("support")
    assert [(m.reason, m.run_id) for m in command.history("support")] == [
        (m.reason, m.run_id) for m in api.history("support")
    ]
    assert lines(data / "audit.db") == lines(tmp_path / "api.db")
    if case.code == 0:
        back = Rollback(by="ann", prompt="support", reason="complaints")
        roll_back_by_api(api, back, NOW_NS)
        assert main(["prompts", "rollback", "support", "--reason", "complaints", *flags],
                    [PROMPTS]) == 0  # fmt: skip
        assert command.history("support")[-1].reason == api.history("support")[-1].reason
        details = {**back.model_dump(exclude={"by"})}
        assert {k: lines(data / "audit.db")[0].details[k] for k in details} == details


def lines(path: Path) -> list[AuditEntry]:
    audit = Audit(path)
    try:
        return audit.newest(9)
    finally:
        audit.close()


def make_registry(folder: Path) -> Path:
    folder.mkdir()
    (folder / "support.toml").write_text(f'system = "{NEW}"\n')
    registry = PromptRegistry(folder)
    registry.keep(PromptVersion("support", digest(OLD), OLD))
    registry.move("support", Move(1, "production", digest(OLD), "the first", None))
    return folder


def stored(run: Outcome) -> Mapping[str, Any]:
    """Return the row of `prompt_run`, made of the spans that the run sends."""
    gates = [
        dict(span.attributes or {})
        for span in result_spans(run)
        if span.name == spans.SPAN_EVALUATION_RUN
    ]
    return {
        "num_gates": len(gates),
        "run_verdicts": list({gate[spans.EVAL_RUN_VERDICT] for gate in gates}),
        "headlines": list({gate[spans.EVAL_RUN_HEADLINE] for gate in gates}),
        "baseline_texts": list({gate[spans.EVAL_BASELINE_TEXT] for gate in gates}),
        "candidate_texts": list({gate[spans.EVAL_CANDIDATE_TEXT] for gate in gates}),
        "other_changes": list({gate[spans.EVAL_OTHER_CHANGES] for gate in gates} - {""}),
    }


def outcome_of(case: Case) -> Outcome:
    pairs = [pair_of(i, case) for i in range(case.num_pairs)]
    sides = {
        letter: Side(letter, f"http://{letter}", model, "support", "as people call it", system, {})
        for letter, model, system in (
            ("A", "m", case.baseline),
            ("B", case.model, case.candidate),
        )
    }
    return finish(pairs, GATES, allows_inconclusive=True, broken_items=case.broken, sides=sides)


def pair_of(index: int, case: Case) -> AnsweredPair:
    item = Item(
        f"i{index}", (Message("user", "?"),), "x", make_scorer("exact", "x"), (), f"{index}"
    )
    is_right = index >= (1 - case.right) * case.num_pairs
    b = right(is_right) if index >= case.unscored else missing()
    return AnsweredPair(index, item, "A", right(True), b)


def right(is_right: bool) -> Answer:
    label = Label.RIGHT if is_right else Label.WRONG
    reply = Reply(0, 10, text="x", ttft_s=0.1, e2e_s=1.0, output_tokens=3)
    return Answer(reply, Score(float(is_right), label), "a" * 32, "b" * 16)


def missing() -> Answer:
    return Answer(Reply(0, 10, error="HTTP 500"), Score.unscored("HTTP 500"), "a" * 32, "b" * 16)
