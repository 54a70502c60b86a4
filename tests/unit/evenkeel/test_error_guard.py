import logging
from concurrent.futures import ThreadPoolExecutor

import pytest

from evenkeel.error_guard import ErrorGuard
from evenkeel.errors import StoreError

logger = logging.getLogger(__name__)


@pytest.fixture
def guard() -> ErrorGuard:
    return ErrorGuard(logger.warning, "it goes on: %s", expected=StoreError)


def test_the_first_of_a_row_is_logged_and_all_are_counted(
    guard: ErrorGuard, caplog: pytest.LogCaptureFixture
) -> None:
    assert not guard.clear()
    guard.record(StoreError("gone"))
    guard.record(StoreError("still gone"))
    assert guard.clear()
    assert not guard.clear()
    guard.record(StoreError("gone again"))
    assert caplog.messages == ["it goes on: gone", "it goes on: gone again"]
    assert guard.num_errors == 3


def test_only_a_defect_of_ours_has_a_traceback_and_the_place_is_the_callers(
    guard: ErrorGuard, caplog: pytest.LogCaptureFixture
) -> None:
    guard.record(StoreError("gone"))
    guard.clear()
    guard.record(ZeroDivisionError())
    assert [bool(r.exc_info) for r in caplog.records] == [False, True]
    assert {r.filename for r in caplog.records} == {"test_error_guard.py"}
    assert {r.levelno for r in caplog.records} == {logging.WARNING}


def test_errors_of_many_threads_are_counted_and_one_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counted: list[None] = []
    guard = ErrorGuard(logger.error, "%r", count=lambda: counted.append(None))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(guard.record, [ValueError("x")] * 2000))
    assert (guard.num_errors, len(counted), len(caplog.records)) == (2000, 2000, 1)
