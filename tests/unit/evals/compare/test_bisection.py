"""Finding the change that moved a metric."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel_evals.compare.bisect_file import load_changes
from evenkeel_evals.compare.bisection import Ending, bisect
from evenkeel_evals.stats.verdict_names import Verdict


@given(st.integers(1, 40), st.data())
def test_the_change_is_found_in_few_comparisons(count: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(1, count))

    def compare(before: int, after: int) -> tuple[Verdict, str]:
        is_worse = before < culprit <= after
        return (Verdict.REGRESSED if is_worse else Verdict.NO_WORSE), "…"

    found = bisect(count, compare)
    assert (found.ending, found.change) == (Ending.FOUND, culprit)
    assert len(found.steps) <= math.ceil(math.log2(count)) + 2


def test_nothing_moved() -> None:
    found = bisect(9, lambda a, b: (Verdict.BETTER, "better"))
    assert (found.ending, found.change, len(found.steps)) == (Ending.UNMOVED, None, 1)


def test_changes_that_only_add_up_are_not_blamed_alone() -> None:
    # Each change costs 2%, the gate tolerates 5%: it fails at the third, but at none alone.
    found = bisect(4, lambda a, b: (Verdict.REGRESSED if b - a >= 3 else Verdict.NO_WORSE, ""))
    assert (found.ending, found.change) == (Ending.INTERACTION, 3)


def test_what_cannot_be_told_names_what_is_left() -> None:
    def compare(before: int, after: int) -> tuple[Verdict, str]:
        return (Verdict.REGRESSED if after == 8 else Verdict.INCONCLUSIVE), "too few"

    with pytest.raises(CannotMeasureError, match=r"the change is one of 1 to 8.*too few"):
        bisect(8, compare)


def test_a_change_is_no_interaction_only_because_too_little_is_known_of_it_alone() -> None:
    def compare(before: int, after: int) -> tuple[Verdict, str]:
        if before:
            return Verdict.INCONCLUSIVE, "too few"
        return (Verdict.REGRESSED if after >= 3 else Verdict.NO_WORSE), "…"

    with pytest.raises(CannotMeasureError, match=r"fails since change 3, .* alone; too few"):
        bisect(4, compare)


BASE = """
[serve]
model = "demo"
flags = ["--max-num-seqs", "8"]
[prompt]
name = "support"
version = "1"
system = "Be brief."
[sampling]
max_tokens = 64
"""


def write(folder: Path, changes: str) -> Path:
    (folder / "good.toml").write_text(BASE)
    path = folder / "changes.toml"
    path.write_text(f'base = "good.toml"\n{changes}')
    return path


def test_each_change_keeps_those_before_it(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '[[change]]\nname = "no speculation"\nflags = ["--speculate", "none"]\n'
        '[[change]]\nname = "kind"\nsystem = "Be kind."\n'
        '[[change]]\nname = "long"\nsampling = {max_tokens = 256}\n',
    )
    base, changes = load_changes(path, "http://h", tmp_path)
    assert base.serve is not None and base.serve.flags == ("--max-num-seqs", "8")
    last = changes[-1].side
    assert last.serve is not None
    assert last.serve.flags == ("--max-num-seqs", "8", "--speculate", "none")
    assert (last.system, last.sampling["max_tokens"], last.name) == ("Be kind.", 256, "long")
    assert changes[0].side.system == "Be brief."


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        pytest.param("", "change", id="no change"),
        pytest.param('[[change]]\nname = "x"\n', "changes nothing", id="changes nothing"),
        pytest.param('[[change]]\nname = "x"\ncolour = 1\n', "colour", id="unknown key"),
        pytest.param(
            '[[change]]\nname = "x"\nsystem = "a"\n[[change]]\nname = "x"\nsystem = "b"\n',
            "two changes",
            id="one name twice",
        ),
        pytest.param('[[change]]\nname = "x"\nprompt = "nope"\n', "nope", id="unknown prompt"),
        pytest.param(
            '[[change]]\nname = "x"\nsampling = {colour = 3}\n', "colour", id="unknown sampling"
        ),
    ],
)
def test_mistakes_are_named(tmp_path: Path, changes: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        load_changes(write(tmp_path, changes), "http://h", tmp_path)
