"""docs/inside/ledger.md defines every cause."""

from pathlib import Path

import pytest

from evenkeel_runtime.wire.cause import Cause

PAGE = (Path(__file__).parents[4] / "docs" / "inside" / "ledger.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_is_defined(cause: Cause) -> None:
    assert any(line.startswith("|") and f"`{cause}`" in line for line in PAGE.splitlines())
