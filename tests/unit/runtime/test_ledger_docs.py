"""docs/ledger.md names every cause and every setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.cause import Cause
from runtime.step_settings import StepSettings

PAGE = (Path(__file__).parents[3] / "docs" / "ledger.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("cause", list(Cause))
def test_every_cause_is_defined(cause: Cause) -> None:
    assert any(line.startswith("|") and f"`{cause}`" in line for line in PAGE.splitlines())


@pytest.mark.parametrize("name", list(StepSettings.model_fields))
def test_every_setting_is_explained(name: str) -> None:
    assert f"| `{name}` |" in PAGE
