"""Ratios, as fractions and as percentages."""

from fractions import Fraction

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.ratios import parse_ratio
from evenkeel.settings import load
from evenkeel_evals.ask.settings import EvalSettings


@pytest.mark.parametrize(
    ("text", "ratio"),
    [("5%", "1/20"), ("0.05", "1/20"), (" 1/20 ", "1/20"), ("99.95%", "0.9995"), ("5e-2", "1/20")],
)
def test_a_ratio_is_exact(text: str, ratio: str) -> None:
    assert parse_ratio(text) == Fraction(ratio)


@pytest.mark.parametrize("text", ["", "%", "five", "5%%", "1/0", "-5%", "1e-999999999", "9" * 99])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a fraction nor a percentage"):
        parse_ratio(text)


@pytest.mark.parametrize(("given", "ratio"), [("5%", 0.05), ("0.05", 0.05), (0.05, 0.05)])
def test_a_setting_may_be_a_percentage(given: object, ratio: float) -> None:
    loaded = load(EvalSettings, {"max_unmeasured_ratio": given}, {})
    assert loaded.settings.max_unmeasured_ratio == ratio


@pytest.mark.parametrize("given", ["x%", "500%"])
def test_a_setting_that_is_no_share_is_refused(given: str) -> None:
    with pytest.raises(ConfigurationError, match="max_unmeasured_ratio from flag"):
        load(EvalSettings, {"max_unmeasured_ratio": given}, {})
