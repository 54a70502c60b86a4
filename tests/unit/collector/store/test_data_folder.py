"""The collector keeps its name; a damaged one is replaced, and does not stop it."""

from pathlib import Path

import pytest

from evenkeel_collector.store.data_folder import ID_FILE, hold


def test_a_collector_keeps_its_name(tmp_path: Path) -> None:
    names = []
    for _ in range(2):
        folder = hold(tmp_path)
        names.append(folder.node)
        folder.release()
    assert names[0] == names[1]
    assert len(names[0]) == 12


@pytest.mark.parametrize("damaged", [b"", bytes(13), b"\xff\xfe\n", b"../../x\n", b"a b\n"])
def test_a_damaged_name_is_replaced_and_said(
    tmp_path: Path, damaged: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ID_FILE).write_bytes(damaged)
    folder = hold(tmp_path)
    folder.release()
    assert (tmp_path / ID_FILE).read_text() == f"{folder.node}\n"
    assert folder.node.isalnum()
    assert "node name file is damaged" in caplog.text
