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
