"""`evenkeel export grafana`: what it writes, and what it refuses."""

import json
from pathlib import Path

import pytest

from evenkeel.cli import main
from evenkeel_collector.boards.catalogue import BOARDS


def export(*flags: str) -> int:
    return main(["export", "grafana", *flags])


def test_it_writes_every_board(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "boards"
    assert export("--out", str(out), "--json") == 0
    files = json.loads(capsys.readouterr().out)["boards"]
    assert files == [str(out / f"{board.uid}.json") for board in BOARDS]
    assert sorted(map(str, out.iterdir())) == sorted(files)


def test_it_replaces_only_boards_and_only_if_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, board = tmp_path / "own.json", tmp_path / "evenkeel-slo.json"
    own.write_text("{}")
    board.write_text("old")
    assert export("--out", str(tmp_path)) == 2
    assert capsys.readouterr().err.count("is not empty: choose another --out") == 1
    assert board.read_text() == "old"
    assert export("--out", str(tmp_path), "--force") == 0
    assert own.read_text() == "{}"
    assert json.loads(board.read_text())["uid"] == "evenkeel-slo"


def test_two_runs_write_the_same(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert export("--out", str(tmp_path / name)) == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_links_lead_to_the_dashboard_that_was_named(tmp_path: Path) -> None:
    assert export("--out", str(tmp_path), "--dashboard-url", "https://e.example.com/keel/") == 0
    text = (tmp_path / "evenkeel-slo.json").read_text()
    assert '"https://e.example.com/keel/slo?from=' in text
    assert "127.0.0.1" not in text


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["--out", "{file}"], "is a file, expected a folder"),
        (["--out", "{file}/boards"], "cannot be"),
        (["--out", "{new}", "--dashboard-url", "evenkeel:8501"], "--dashboard-url is"),
        (["--out", "{new}", "--dashboard-url", "http://x?y"], "--dashboard-url is"),
        (["--out", "{new}", "--dashboard-url", "http://[x"], "--dashboard-url is"),
        (["--out", "{new}", "--dashboard-url", "http://:8501"], "--dashboard-url is"),
        (["--out", "{new}", "--dashboard-url", "http://x:85011"], "--dashboard-url is"),
    ],
)
def test_what_cannot_be_written_is_an_error_of_one_line(
    flags: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, new = tmp_path / "file", tmp_path / "new"
    file.write_text("")
    assert export(*(flag.format(file=file, new=new) for flag in flags)) == 2
    err = capsys.readouterr().err.strip()
    assert expected in err
    assert len(err.splitlines()) == 1
    assert not new.exists()
