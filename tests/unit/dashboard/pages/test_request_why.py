"""How a request's ledger was split, in words."""

import pytest

from evenkeel.spans import LEDGER_ERROR_RATIO, LEDGER_SHARED_BY
from evenkeel_dashboard.pages.request.why import sharing


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({LEDGER_SHARED_BY: "tokens"}, "split by tokens"),
        ({LEDGER_SHARED_BY: "cost_model", LEDGER_ERROR_RATIO: "0.124"}, "12.4% off on average"),
        ({LEDGER_SHARED_BY: "cost_model", LEDGER_ERROR_RATIO: "nan"}, None),
        ({LEDGER_SHARED_BY: "strange"}, None),
        ({}, None),
    ],
)
def test_what_steps_were_shared_out_by_is_said(
    attributes: dict[str, str], expected: str | None
) -> None:
    words = sharing(attributes)
    assert words is None if expected is None else expected in (words or "")
