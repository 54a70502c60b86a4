"""`evenkeel eval grow` shows its progress and caches embeddings."""

from pathlib import Path

import numpy as np
import pytest

from evenkeel.cli import find_commands, main
from evenkeel.embedding import load_encoder
from evenkeel_evals.commands import grow as grow_command
from evenkeel_evals.commands.grow import kept_encoder


def test_a_stage_is_said_at_its_end_and_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grow_command, "SAID_EVERY_S", 3600.0)
    tell = grow_command._Teller()
    for done in range(1, 2_001):
        tell("comparing words", done, 2_000)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "comparing words: 2,000 of 2,000\n")
    monkeypatch.setattr(grow_command, "SAID_EVERY_S", 0.0)
    tell("comparing meaning", 0, 416)
    assert capsys.readouterr().err == "comparing meaning: 0 of 416\n"


def test_a_second_search_embeds_only_what_is_new(tmp_path: Path) -> None:
    asked: list[tuple[str, int, int]] = []

    def encode(*texts: str) -> None:
        encode_all = kept_encoder(tmp_path, lambda *said: asked.append(said))
        rows = encode_all(list(texts))
        assert np.abs(rows - load_encoder().encode_all(texts)).max() < 1e-5

    encode("Where is my parcel?", "Do you ship to Norway?")
    encode("Do you ship to Norway?", "Where is my parcel?")
    encode("Do you ship to Norway?", "What about Sweden?")
    assert [total for _, done, total in asked if done == 0] == [2, 1]


@pytest.mark.parametrize("limit", ["0", "-5", "100001"])
def test_a_limit_out_of_bounds_is_refused(
    tmp_path: Path, limit: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert find_commands()
    assert main(["eval", "grow", str(tmp_path), "--limit", limit]) == 2
    assert f"--limit is {limit}, expected 1 to 100,000" in capsys.readouterr().err
