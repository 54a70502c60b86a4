"""Which errors of the store are the data's fault."""

from typing import Any, cast

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError, OperationalError

from evenkeel_collector.store.check import CheckStore, is_refusal

LENGTH = "std::exception. Code: 1001, type: std::length_error, e.what() = basic_string"
BAD_ALLOC = "std::exception. Code: 1001, type: std::bad_alloc, e.what() = std::bad_alloc"
NO_SPACE = (
    "std::exception. Code: 1001, type: std::__1::__fs::filesystem::filesystem_error, "
    "e.what() = filesystem error: in create_directories: No space left on device"
)
ERRORS = [
    pytest.param(DatabaseError("cannot parse", code=436), True, id="a wrong Protobuf value"),
    pytest.param(DatabaseError("odd", code=395), True, id="a view that throws"),
    pytest.param(DatabaseError(LENGTH, code=1001), True, id="a too long string"),
    pytest.param(DatabaseError(f"cannot parse '{BAD_ALLOC}'", code=6), True, id="quoted data"),
    pytest.param(DatabaseError("quota", code=201), False, id="a quota"),
    pytest.param(DatabaseError("cut off", code=33), True, id="data that ends early"),
    pytest.param(DatabaseError("no memory", code=241), False, id="a memory limit"),
    pytest.param(DatabaseError("no memory", code=173), False, id="no memory"),
    pytest.param(DatabaseError(BAD_ALLOC, code=1001), False, id="no memory for a string"),
    pytest.param(DatabaseError(NO_SPACE, code=1001), False, id="no space for a folder"),
    pytest.param(DatabaseError("no thread", code=439), False, id="no thread"),
    pytest.param(DatabaseError("cancelled", code=394), False, id="a cancelled query"),
    pytest.param(DatabaseError("no Keeper", code=225), False, id="no Keeper"),
    pytest.param(DatabaseError("502 from a proxy"), False, id="an answer without a code"),
    pytest.param(OperationalError("connection refused"), False, id="no answer"),
]


class FailingClient:
    """A client whose inserts fail."""

    def __init__(self, error: DatabaseError) -> None:
        self._error = error

    def raw_insert(self, *args: object, **settings: object) -> None:
        raise self._error


@pytest.mark.parametrize(("error", "is_the_datas"), ERRORS)
def test_only_errors_that_are_the_datas_count_as_refusals(
    error: DatabaseError, is_the_datas: bool
) -> None:
    assert is_refusal(error) is is_the_datas
    check = CheckStore(cast(Any, FailingClient(error)), {})
    if is_the_datas:
        assert check.refusal(b"segment") == str(error)
    else:
        with pytest.raises(DatabaseError) as raised:
            check.refusal(b"segment")
        assert raised.value is error
