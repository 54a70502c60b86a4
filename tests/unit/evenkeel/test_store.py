"""What the reader's side says before it asks a store anything."""

import pytest

from evenkeel.doctor.command import CheckStatus, check_store
from evenkeel.errors import ConfigurationError, StoreLoginError
from evenkeel.store import QUERIES, Store, check_url, read_query
from tests.fixtures.refusing_store import refusing_store


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("junk", id="a word, which a driver reads as its default address"),
        pytest.param("127.0.0.1:8123", id="no scheme"),
        pytest.param("clickhouse://127.0.0.1:9000", id="a protocol that is not HTTP"),
        pytest.param("http://:8123", id="no host"),
        pytest.param("http://127.0.0.1:108123", id="a port beyond the last"),
        pytest.param("http://127.0.0.1:port", id="a port that is no number"),
        pytest.param("http://[::1", id="half an IPv6 address"),
    ],
)
def test_what_is_not_an_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected one such as http://127\.0\.0\.1:8123"):
        check_url(url)
    with pytest.raises(ConfigurationError):
        Store(url)


def test_a_store_that_wants_a_login_is_not_called_absent() -> None:
    asked = b"Code: 516. DB::Exception: token required: send TOKEN. (AUTHENTICATION_FAILED)"
    with refusing_store(asked, 403, "516") as port:
        url = f"http://127.0.0.1:{port}"
        with pytest.raises(StoreLoginError) as refused:
            Store(url)
        (found,) = check_store("127.0.0.1", port - 8123)
    assert str(refused.value) == (
        f"the store at {url} asks for a login: token required: send TOKEN; put user and "
        "password into its address (a collector's token is the password, with any user)"
    )
    assert found.outcome is CheckStatus.OK
    assert found.seen == f"{url} answers, and asks for a login"


def test_a_refused_address_keeps_its_password_to_itself() -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_url("ftp://user:secret@clickhouse:8123")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://127.0.0.1:8123", id="a local store"),
        pytest.param("https://user:secret@clickhouse.example/evenkeel", id="a server with a user"),
        pytest.param("http://[::1]:8123", id="IPv6"),
    ],
)
def test_an_address_is_taken(url: str) -> None:
    check_url(url)


def test_a_query_that_is_no_file_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"^there is no query at .*/queries/none\.sql$"):
        read_query(QUERIES / "none.sql")
