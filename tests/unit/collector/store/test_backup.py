"""What a backup and its restoring refuse."""

from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_collector.store.backup import back_up, restore
from evenkeel_collector.store.data_folder import ID_FILE


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "store").mkdir(parents=True)
    (folder / ID_FILE).write_text("id")
    return folder


@pytest.mark.parametrize("name", ["a.tar", "store/a.tar", "../link/a.tar", "../data/a.tar"])
def test_a_backup_is_not_written_into_the_folder_that_it_copies(data_dir: Path, name: str) -> None:
    (data_dir.parent / "link").symlink_to(data_dir)
    with pytest.raises(ConfigurationError, match="inside"):
        back_up(data_dir, data_dir / name)
    assert not list(data_dir.rglob("a.tar*"))


def test_a_file_is_no_folder_to_restore_into(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.tar"
    back_up(data_dir, target)
    file = tmp_path / "file"
    file.write_text("kept")
    with pytest.raises(ConfigurationError, match="not a folder"):
        restore(target, file)
    assert file.read_text() == "kept"


def test_an_empty_folder_is_filled_and_not_replaced(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a volume, which cannot be removed, in a folder that cannot be written."""
    (data_dir / "store" / "a").write_text("kept")
    target = tmp_path / "backup.tar"
    back_up(data_dir, target)
    volume = tmp_path / "parent" / "volume"
    # Some file systems put a folder into each volume.
    (volume / "lost+found").mkdir(parents=True)
    changed_ns, number = volume.parent.stat().st_mtime_ns, volume.stat().st_ino
    restore(target, volume)
    assert (volume / "store" / "a").read_text() == "kept"
    assert {path.name for path in volume.iterdir()} == {"store", "tmp", "lost+found", ID_FILE}
    assert (volume.parent.stat().st_mtime_ns, volume.stat().st_ino) == (changed_ns, number)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    restore(target, Path())
    assert (here / "store" / "a").read_text() == "kept"


def test_a_damaged_backup_leaves_an_empty_folder_empty(data_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.tar"
    back_up(data_dir, target)
    target.write_bytes(target.read_bytes().replace(b"id", b"di", 1))
    volume = tmp_path / "volume"
    volume.mkdir()
    with pytest.raises(ConfigurationError):
        restore(target, volume)
    assert list(volume.iterdir()) == []


def test_a_backup_leaves_out_what_the_file_system_keeps_in_a_volume(
    data_dir: Path, tmp_path: Path
) -> None:
    (data_dir / "lost+found").mkdir()
    target, again = tmp_path / "backup.tar", tmp_path / "again"
    back_up(data_dir, target)
    restore(target, again)
    assert {path.name for path in again.iterdir()} == {"store", "tmp", ID_FILE}


def test_a_backup_that_is_not_there_is_named_once(tmp_path: Path) -> None:
    missing = tmp_path / "backup.tar"
    with pytest.raises(ConfigurationError) as caught:
        restore(missing, tmp_path / "again")
    assert str(caught.value) == f"{missing} cannot be restored: No such file or directory"
