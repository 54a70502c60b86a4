"""`evenkeel slo burned`: what is refused before requests are read."""

from pathlib import Path
from typing import Any

import pytest

from evenkeel import store
from evenkeel.cli import main

CHAT = """
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat}
spec:
  service: chat
  indicator: {metric: availability%s}
  timeWindow: [{duration: 30d, isRolling: true}]
  objectives: [{target: 0.99}]
"""


class EmptyStore:
    """A store without requests."""

    def __init__(self, url: str) -> None:
        """Connect to nothing."""

    def rows(self, *_: Any) -> list[dict[str, Any]]:
        return []

    def close(self) -> None:
        """Close nothing."""


@pytest.mark.parametrize(
    ("group", "said"),
    [("", "has no SLO 'chatt'; did you mean 'chat'?"), (", groupBy: [tenant]", "SLO 'chatt'")],
)
def test_an_unknown_name_is_answered_with_those_that_are_known(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    group: str,
    said: str,
) -> None:
    monkeypatch.setattr(store, "Store", EmptyStore)
    path = tmp_path / "slos.yaml"
    path.write_text(CHAT % group)
    assert main(["slo", "burned", "--slo", str(path), "--name", "chatt"]) == 2
    assert capsys.readouterr().err.rstrip("\n").endswith(said)
