"""What the collector's answers mean."""

import pytest

from evenkeel_dashboard.frame.collector_api import CollectorError


@pytest.mark.parametrize(
    ("status", "is_refusal"), [(0, False), (401, True), (403, True), (429, False), (503, False)]
)
def test_only_a_refusal_ends_a_session(status: int, is_refusal: bool) -> None:
    assert CollectorError("no", status).is_refusal is is_refusal
