"""Folders and files that only their owner may open."""

import logging
from pathlib import Path

import pytest

from evenkeel import cli
from evenkeel.private_files import (
    make_private_folder,
    open_private,
    private_umask,
    replace_private,
    tighten,
)
from evenkeel_collector.store.data_folder import ID_FILE, hold
from evenkeel_evals.ask.journal import Journal

pytestmark = pytest.mark.usefixtures("usual_umask")

MARKER = "marker"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def test_a_new_folder_is_closed_and_so_is_an_empty_one(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "a" / "b", MARKER)
    assert mode(tmp_path / "a" / "b") == 0o700
    (tmp_path / "empty").mkdir()
    make_private_folder(tmp_path / "empty", MARKER)
    assert mode(tmp_path / "empty") == 0o700


def test_a_folder_of_an_earlier_version_is_closed_with_all_that_is_in_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("not ours")
    old = tmp_path / "old"
    (old / "log").mkdir(parents=True)
    (old / "log" / "segment").write_text("spans")
    (old / MARKER).write_text("")
    (old / "link").symlink_to(outside)
    with caplog.at_level(logging.WARNING):
        make_private_folder(old, MARKER)
    assert [mode(old), mode(old / "log"), mode(old / "log" / "segment")] == [0o700, 0o700, 0o600]
    assert mode(outside) == 0o644
    assert "removed access for other users" in caplog.text


@pytest.mark.parametrize("rights", [0o755, 0o1777], ids=["things of others in it", "like /tmp"])
def test_a_folder_that_is_not_only_ours_is_left_with_a_warning(
    tmp_path: Path, rights: int, caplog: pytest.LogCaptureFixture
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / (MARKER if rights & 0o1000 else "page.html")).write_text("")
    shared.chmod(rights)
    with caplog.at_level(logging.WARNING):
        make_private_folder(shared, MARKER)
    assert mode(shared) == rights
    assert f"chmod -R go-rwx {shared}" in caplog.text


def test_a_closed_folder_is_not_walked_again(tmp_path: Path) -> None:
    make_private_folder(tmp_path / "data", MARKER)
    (tmp_path / "data" / "note").write_text("of the owner")
    make_private_folder(tmp_path / "data", MARKER)
    assert mode(tmp_path / "data" / "note") == 0o644


def test_executable_files_stay_so_for_their_owner(tmp_path: Path) -> None:
    (tmp_path / "script").write_text("")
    (tmp_path / "script").chmod(0o755)
    tighten(tmp_path)
    assert mode(tmp_path / "script") == 0o700


def test_what_is_made_inside_is_private_and_outside_as_before(tmp_path: Path) -> None:
    with private_umask():
        (tmp_path / "inside").write_text("")
    (tmp_path / "outside").write_text("")
    assert [mode(tmp_path / "inside"), mode(tmp_path / "outside")] == [0o600, 0o644]


def test_a_private_file_needs_no_umask(tmp_path: Path) -> None:
    with open(tmp_path / "file", "wb", opener=open_private):
        assert mode(tmp_path / "file") == 0o600


def test_a_private_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    replace_private(path, b"one")
    replace_private(path, b"two ", memoryview(b"parts"))
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"two parts", 0o600)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    with pytest.raises(OSError, match="Is a directory"):
        replace_private(tmp_path / "new", b"a folder has this name")
    assert [each.name for each in tmp_path.rglob("*")] == ["new", "file"]


def test_the_collectors_folder_is_private_without_a_umask(tmp_path: Path) -> None:
    folder = hold(tmp_path / "data")
    folder.release()
    assert mode(tmp_path / "data") == 0o700
    assert mode(tmp_path / "data" / "collector.lock") == 0o600
    (tmp_path / "data").chmod(0o755)
    (tmp_path / "data" / ID_FILE).chmod(0o644)
    hold(tmp_path / "data").release()
    assert mode(tmp_path / "data" / ID_FILE) == 0o600


def test_the_journal_of_an_earlier_version_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text("")
    with Journal(path):
        assert mode(path) == 0o600


PRIVATE = {"alerts", "collect", "dashboard", "demo", "prices", "serve", "store"}


def test_commands_that_keep_data_keep_it_private() -> None:
    assert {c.name for c in cli.find_commands() if c.keeps_private} == PRIVATE


@pytest.mark.parametrize(("keeps_private", "expected"), [(True, 0o600), (False, 0o644)])
def test_a_private_command_runs_with_its_umask(
    tmp_path: Path, keeps_private: bool, expected: int
) -> None:
    def write(_: object) -> int:
        (tmp_path / "file").write_text("")
        return 0

    command = cli.Command(
        "do", "does it", lambda p: p.set_defaults(run=write), keeps_private=keeps_private
    )
    assert cli.main(["do"], [command]) == 0
    assert mode(tmp_path / "file") == expected


@pytest.mark.parametrize("marker", [None, "logs"])
def test_a_folder_of_others_that_has_a_name_of_ours_in_it_is_left(
    tmp_path: Path, marker: str | None
) -> None:
    (tmp_path / "work" / "logs").mkdir(parents=True)
    page = tmp_path / "work" / "page.html"
    page.write_text("")
    for path in (tmp_path / "work", page):
        path.chmod(0o755)
    make_private_folder(tmp_path / "work", marker)
    assert [mode(tmp_path / "work"), mode(page)] == [0o755, 0o755]
