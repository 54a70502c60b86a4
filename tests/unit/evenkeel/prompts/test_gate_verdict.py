"""What the gates of a run come to."""

import pytest

from evenkeel.prompts.gate_verdict import run_verdict


@pytest.mark.parametrize(
    ("verdicts", "slices", "expected"),
    [
        pytest.param([], [], "", id="no gate, no verdict"),
        pytest.param(["no worse", "better"], ["overall", "overall"], "better", id="one better"),
        pytest.param(["no worse"], ["overall"], "no worse", id="within the margin"),
        pytest.param(
            ["no worse", "inconclusive"], ["overall", "overall"], "inconclusive", id="cannot tell"
        ),
        pytest.param(
            ["no worse", "inconclusive"], ["overall", "long"], "no worse", id="a slice cannot tell"
        ),
        pytest.param(
            ["better", "regressed"], ["overall", "long"], "regressed", id="a slice regressed"
        ),
    ],
)
def test_run_verdict(verdicts: list[str], slices: list[str], expected: str) -> None:
    assert run_verdict(verdicts, slices) == expected
