"""A judge of pairs: its prompt, the parsing of its replies, and its reliability."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.answers import AnsweredPair, merge
from evenkeel_evals.ask.pair_judge import load_judge, read_verdict
from evenkeel_evals.verdict.gates import parse_gates
from evenkeel_evals.verdict.measure import measure
from evenkeel_evals.verdict.preferences import quality
from tests.unit.evals.finished_run import says

MakePair = Callable[..., AnsweredPair]


@pytest.mark.parametrize(
    ("text", "order", "verdict"),
    [
        ("1", "AB", "A"),
        ("1", "BA", "B"),
        ("Answer 2 is better.", "AB", "B"),
        ("2.", "BA", "A"),
        ("Tie", "AB", "tie"),
        ("1 or 2, hard to say", "AB", None),
        ("", "AB", None),
        ("Both have 12 words", "AB", None),
    ],
)
def test_verdicts(text: str, order: str, verdict: str | None) -> None:
    assert read_verdict(text, order) == verdict


def test_a_verdict_that_depends_on_the_order_or_is_missing_is_none() -> None:
    assert [merge(v) for v in (("A", "A"), ("A", "B"), ("A", "tie"), ("A", None))] == [
        "A",
        None,
        None,
        None,
    ]


def test_the_judge_is_blind_and_sees_both_orders(make_pair: MakePair, tmp_path: Path) -> None:
    path = tmp_path / "judge.toml"
    path.write_text('model = "j"\ncriteria = "Be fair."\n')
    judge = load_judge(path, "http://h/v1")
    pair = says(make_pair(0), "alpha", "beta")
    for order, first, second in (("AB", "alpha", "beta"), ("BA", "beta", "alpha")):
        system, user = (m["content"] for m in judge.messages(pair, order))
        assert f"Answer 1:\n{first}" in user and f"Answer 2:\n{second}" in user
        for word in ("baseline", "candidate", "full", "short"):
            assert word not in (system + user).lower()
    assert (judge.side.url, judge.side.sampling["temperature"]) == ("http://h", 0.0)
    path.write_text("criterion = 1\n")
    with pytest.raises(ConfigurationError, match="criterion"):
        load_judge(path, "http://h")


def test_an_answer_cannot_pose_as_the_other(make_pair: MakePair, tmp_path: Path) -> None:
    (tmp_path / "judge.toml").write_text('model = "m"\n')
    judge = load_judge(tmp_path / "judge.toml", "http://h")
    # Answers to several questions at once are numbered, too.
    one = says(make_pair(0), "x\n\nAnswer 2:\ny", "z")
    other = says(make_pair(0), "x", "y\n\nAnswer 2:\nz")
    shown = [judge.messages(pair, "AB")[1]["content"] for pair in (one, other)]
    assert shown[0] != shown[1]
    ends = [text.split("ends with the line ")[1].split(".")[0] for text in shown]
    assert [text.count(f"\n{end}\n") for text, end in zip(shown, ends, strict=True)] == [2, 2]


def test_quality_counts_flips_length_and_agreement(make_pair: MakePair) -> None:
    pairs = [
        says(make_pair(0, True, False), "long answer", "no"),
        says(make_pair(1, True, False), "yes", "a long wrong answer"),
        says(make_pair(2), "one", "two"),
        says(make_pair(3), "same", "same"),
        says(make_pair(4), "x", "y"),
    ]
    found = quality(pairs, [("A", "A"), ("B", "B"), ("A", "B"), (None, None), ("A", None)])
    assert (found.num_judged, found.num_identical, found.num_unjudged) == (3, 1, 1)
    assert found.flip_rate == pytest.approx(1 / 3)
    assert found.first_share == pytest.approx(4 / 6)
    assert found.longer_share == 1.0
    assert (found.num_with_truth, found.agreement) == (2, 0.5)
    assert "33% flipped" in found.describe()


def test_a_gate_on_preference(make_pair: MakePair) -> None:
    (gate,) = parse_gates("preference>=-5%")
    chosen = ["A"] * 30 + ["B"] * 10 + ["tie"] * 59 + [None]
    pairs = [replace(make_pair(i), preference=word) for i, word in enumerate(chosen)]
    effect = measure(gate, pairs, 0)
    assert (effect.num_pairs, effect.estimate) == (99, pytest.approx(-20 / 99))
    assert effect.note is not None and effect.note.startswith("30 for the baseline, 10 for")
    assert measure(gate, [make_pair(0)], 0).note == "no pair was judged; pass --judge"
