"""The journal: records survive, a torn end is cut off, damage is rejected."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.journal import Journal, encode

RECORDS: list[dict[str, Any]] = [
    {"kind": "a", "text": "naïve \u2028 😀 \ud800"}, {"kind": "b", "x": 0.1}, {"n": None},
]  # fmt: skip


def write(path: Path) -> bytes:
    path.unlink(missing_ok=True)
    with Journal(path) as journal:
        for record in RECORDS:
            journal.append(record)
    return path.read_bytes()


def test_what_was_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "j")
    with Journal(tmp_path / "j") as journal:
        assert journal.records == RECORDS
        assert journal.num_torn_bytes == 0


def test_a_cut_anywhere_leaves_the_whole_records_before_it(tmp_path: Path) -> None:
    content = write(tmp_path / "j")
    ends = [sum(len(encode(r)) for r in RECORDS[:i]) for i in range(len(RECORDS) + 1)]
    for cut in range(len(content)):
        (tmp_path / "j").write_bytes(content[:cut])
        with Journal(tmp_path / "j") as journal:
            whole = max(i for i, end in enumerate(ends) if end <= cut)
            assert journal.records == RECORDS[:whole]
            assert journal.num_torn_bytes == cut - ends[whole]
            journal.append(RECORDS[0])
        with Journal(tmp_path / "j") as journal:
            assert journal.records == [*RECORDS[:whole], RECORDS[0]]


def test_damage_before_the_end_is_refused(tmp_path: Path) -> None:
    content = bytearray(write(tmp_path / "j"))
    content[45] ^= 1
    (tmp_path / "j").write_bytes(content)
    with pytest.raises(ConfigurationError, match=r"j:1 is damaged"):
        Journal(tmp_path / "j")


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "j"),
        pytest.raises(ConfigurationError, match="in use by another run"),
    ):
        Journal(tmp_path / "j")


async def test_sync_returns_once_everything_is_on_disk(tmp_path: Path) -> None:
    with Journal(tmp_path / "j") as journal:
        journal.append(RECORDS[0])
        await journal.sync()
        await journal.sync()


@given(st.dictionaries(st.text(), st.floats(allow_nan=False, allow_infinity=False) | st.text()))
def test_a_line_is_one_line(record: dict[str, object]) -> None:
    line = encode(record)
    assert line.count(b"\n") == 1
    assert line.isascii()
