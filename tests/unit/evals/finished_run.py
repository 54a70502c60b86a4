"""A finished run over given pairs, for the tests of what it decides and of its reports."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evenkeel_evals.ask.answers import AnsweredPair
from evenkeel_evals.ask.run import CacheMode
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.dataset.dataset import Dataset
from evenkeel_evals.verdict.decision import decide
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gate_verdicts import judge
from evenkeel_evals.verdict.gates import Gate, parse_gates
from evenkeel_evals.verdict.plan import plan_gates
from evenkeel_evals.verdict.preferences import JudgeQuality

GATES = parse_gates("accuracy>=-1%, shift_ttft<=+3%")
SIDE = Side("full", "http://h", "m", "support", "1", "Be kind.", {"temperature": 0.0})
SIDES = {"A": SIDE, "B": replace(SIDE, name="short", prompt_version="2", system="Be brief.")}


def finish(
    pairs: Sequence[AnsweredPair],
    gates: Sequence[Gate] = GATES,
    *,
    allows_inconclusive: bool = False,
    max_unmeasured_ratio: float = 0.05,
    judge_quality: JudgeQuality | None = None,
    broken_items: Sequence[str] = (),
    sides: Mapping[str, Side] = SIDES,
) -> Outcome:
    judgement = judge(gates, pairs, 0)
    return Outcome(
        run_id="r1",
        start_ns=1,
        seconds=2.0,
        dataset=Dataset("sums", "1.0.0", "sha256:00", tuple(p.item for p in pairs), ()),
        sides=sides,
        seed=0,
        concurrency=4,
        cache=CacheMode.ISOLATED,
        plan=plan_gates(gates, len(pairs)),
        decision=decide(
            judgement, max_unmeasured_ratio, allows_inconclusive, judge_quality, broken_items
        ),
        engines={"A": "0.32.0", "B": None},
    )


def says(pair: AnsweredPair, a: str, b: str) -> AnsweredPair:
    """Return a pair with other answers."""
    return replace(
        pair,
        a=replace(pair.a, reply=replace(pair.a.reply, text=a)),
        b=replace(pair.b, reply=replace(pair.b.reply, text=b)),
    )
