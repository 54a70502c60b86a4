"""What the collector says of a ClickHouse server that answers, and cannot be used."""

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_collector.store.storage import open_server
from tests.fixtures.refusing_store import refusing_store


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            b"Code: 516. DB::Exception: u: Authentication failed. (AUTHENTICATION_FAILED)",
            "refuses the login: u: Authentication failed; correct user and password",
        ),
        (b"Code: 243. DB::Exception: No space. (NOT_ENOUGH_SPACE)", "cannot be used: .*No space"),
    ],
)
def test_a_server_that_answers_is_not_called_absent(text: bytes, reason: str) -> None:
    with refusing_store(text, 500, "1") as port:
        with pytest.raises(ConfigurationError, match=reason) as refused:
            open_server(f"http://u:hunter2@127.0.0.1:{port}")
    assert "hunter2" not in str(refused.value)
    assert "running" not in str(refused.value)
