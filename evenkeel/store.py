"""Reads the store through clickhouse-connect; works with a server and the embedded store alike.

A query is a `.sql` file in the folder of the module that runs it, or in `QUERIES` if several parts
run it; callers pass its path. Parameters are ClickHouse server-side ones (`{name:Type}`), never
interpolated into the text.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import clickhouse_connect
from clickhouse_connect.driver.exceptions import ClickHouseError

from evenkeel.errors import ConfigurationError, StoreError, StoreLoginError, first_line
from evenkeel.http_address import check_http_address
from evenkeel.secret_text import hide_password

if TYPE_CHECKING:
    import pandas as pd

DATABASE = "evenkeel"
# The kernel's own queries, and those shared by several parts.
QUERIES = Path(__file__).parent / "queries"
# Its errors reach the caller as ours: they need not be logged as well.
for _library in ("clickhouse_connect", "urllib3.connectionpool"):
    logging.getLogger(_library).setLevel(logging.CRITICAL)

_LOGIN_REFUSED = re.compile(
    r"DB::Exception: (.*?)\.? \((?:AUTHENTICATION_FAILED|ACCESS_DENIED|REQUIRED_PASSWORD)\)", re.S
)
DEFAULT_URL = "http://127.0.0.1:8123"
COLLECTOR_URL = "http://127.0.0.1:4318"


@cache
def read_query(query: Path) -> str:
    """Return the SQL of a query, given its file.

    Raises:
        ConfigurationError: If there is no such file.
    """
    if not query.is_file():
        raise ConfigurationError(f"there is no query at {query}")
    return query.read_text(encoding="utf-8")


def check_url(url: str, part: str = "store", example: str = DEFAULT_URL) -> None:
    """Check that the URL of a part is an HTTP address; the driver would use its default for others.

    Raises:
        ConfigurationError: If it is not.
    """
    check_http_address(f"the {part}'s address", url, example)


class Store:
    """A read-only connection to the store.

    Args:
        url: The ClickHouse HTTP address, such as http://127.0.0.1:8123.
        timeout_s: How long one query may take.
        token: Token for the query port; None uses the one in the address.

    Raises:
        ConfigurationError: If `url` is not an HTTP address.
        StoreError: If nothing answers at `url`, or what answers asks for another login.
    """

    def __init__(
        self, url: str = DEFAULT_URL, timeout_s: float = 30.0, token: str | None = None
    ) -> None:
        check_url(url)
        self.shown_url = hide_password(url)
        try:
            # Without sessions, one client is safe to share between threads.
            self._client = clickhouse_connect.get_client(
                dsn=url,
                **({} if token is None else {"username": "token", "password": token}),
                # The client does not read it from the address.
                secure=url.startswith("https:"),
                database=DATABASE,
                autogenerate_session_id=False,
                connect_timeout=5,
                send_receive_timeout=timeout_s,
            )
        except (ClickHouseError, OSError) as error:
            refusal = read_login_refusal(error)
            if refusal is not None:
                raise StoreLoginError(
                    f"the store at {self.shown_url} asks for a login: {refusal}; put user and "
                    "password into its address (a collector's token is the password, with any user)"
                ) from error
            raise StoreError(
                f"no store answers at {self.shown_url}: {read_reason(error)}; "
                "is `evenkeel collect` running?"
            ) from error

    def rows(
        self, query: Path, parameters: Mapping[str, Any] | None = None
    ) -> list[dict[str, Any]]:
        """Run a query and return its rows as dictionaries.

        Raises:
            StoreError: If the store is gone or refuses the query.
        """
        try:
            result = self._client.query(read_query(query), parameters=dict(parameters or {}))
        except (ClickHouseError, OSError) as error:
            raise self._refusal(query, error) from error
        return list(result.named_results())

    def frame(self, query: Path, parameters: Mapping[str, Any] | None = None) -> pd.DataFrame:
        """Run a query and return a pandas DataFrame.

        Raises:
            StoreError: If the store is gone or refuses the query.
        """
        try:
            return self._client.query_df(read_query(query), parameters=dict(parameters or {}))
        except (ClickHouseError, OSError) as error:
            raise self._refusal(query, error) from error

    def free_frame(self, sql: str, max_rows: int, timeout_s: float) -> pd.DataFrame:
        """Run a user's own read-only SQL and return up to `max_rows` rows.

        Raises:
            StoreError: If the store is gone or refuses the query, or it takes too long.
        """
        settings: dict[str, float] = {"limit": max_rows, "max_execution_time": timeout_s}
        readonly = self._client.server_settings.get("readonly")
        if readonly is not None and not readonly.readonly:
            # A ClickHouse server, unlike the collector's query port, lets some accounts write.
            settings["readonly"] = 2
        try:
            return self._client.query_df(sql, settings=settings).head(max_rows)
        except (ClickHouseError, OSError) as error:
            raise StoreError(f"the query was refused: {read_reason(error)}") from error

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _refusal(self, query: Path, error: BaseException) -> StoreError:
        return StoreError(f"query {query.name!r} failed at {self.shown_url}: {read_reason(error)}")


def read_login_refusal(error: BaseException) -> str | None:
    """Return why a server that answers does not accept the login; None if it is another error."""
    refused = _LOGIN_REFUSED.search(str(error))
    return None if refused is None else " ".join(refused[1].split())[:200]


def read_reason(error: BaseException) -> str:
    """Return the operating system's message if there is one, else the first line."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.strerror:
            return seen.strerror
        reason = getattr(seen, "reason", None)
        seen = reason if isinstance(reason, BaseException) else seen.__cause__ or seen.__context__
    return first_line(error)
