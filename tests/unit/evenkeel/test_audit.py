"""What the audit says of an action, whatever becomes of it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evenkeel.audit import Audit, AuditEntry, write_down
from evenkeel.errors import ConfigurationError, UnusableFileError
from tests.fixtures.file_limit import files_of_at_most

NOW_NS = 1_800_000_000 * 10**9


@pytest.fixture
def path(tmp_path: Path) -> Path:
    Audit(tmp_path / "audit.db").close()
    return tmp_path / "audit.db"


def entry(**details: Any) -> AuditEntry:
    return AuditEntry(NOW_NS, "ann", "", "silence", details)


def recorded(path: Path) -> list[dict[str, Any]]:
    audit = Audit(path)
    try:
        return [dict(each.details) for each in audit.newest(10)]
    finally:
        audit.close()


def failing(error: BaseException) -> Callable[[], dict[str, Any]]:
    def do() -> dict[str, Any]:
        raise error

    return do


def test_an_action_is_recorded_with_its_result(path: Path) -> None:
    assert write_down(path, entry(slo="chat"), lambda: {"id": "1"}) == {"id": "1"}
    assert recorded(path) == [{"slo": "chat", "result": {"id": "1"}}]


def test_a_refused_action_leaves_no_entry(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="no such SLO"):
        write_down(path, entry(), failing(ConfigurationError("no such SLO")))
    assert recorded(path) == []


def test_on_a_full_disk_nothing_is_done_that_is_not_recorded(path: Path) -> None:
    done: list[str] = []

    def do() -> dict[str, Any]:
        done.append("silenced")
        return {}

    with (
        files_of_at_most(64 << 10),
        pytest.raises(UnusableFileError, match="cannot record 'silence' by ann"),
    ):
        write_down(path, entry(comment="x" * 100_000), do)
    assert done == []
    assert recorded(path) == []


def test_an_action_that_was_cut_off_is_recorded_without_a_result(path: Path) -> None:
    def do() -> dict[str, Any]:
        # As a kill leaves it: the caller does not come to clean up.
        assert recorded(path) == [{"slo": "chat"}]
        return {"id": "1"}

    write_down(path, entry(slo="chat"), do)


def test_an_action_is_answered_although_its_result_cannot_be_added(path: Path) -> None:
    def do() -> dict[str, Any]:
        limit.__enter__()
        return {"id": "1" * 200_000}

    limit = files_of_at_most(64 << 10)
    try:
        assert write_down(path, entry(slo="chat"), do)["id"].startswith("1")
    finally:
        limit.__exit__(None, None, None)
    assert recorded(path) == [{"slo": "chat"}]
