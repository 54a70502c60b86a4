"""Settings of `evenkeel dashboard`; the app process reads them from the environment."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr

from evenkeel.secret_text import SecretAddress
from evenkeel.settings import Host, Settings, with_flag
from evenkeel.store import DEFAULT_URL

DEFAULT_COLLECTOR_URL = "http://127.0.0.1:4318"


class SignIn(StrEnum):
    """How people sign in.

    Attributes:
        NONE: No sign-in: anyone who reaches the port has the access of the dashboard's own token.
        TOKEN: With one of the collector's tokens.
        OIDC: With an identity provider; a file maps each person to a token.
    """

    NONE = "none"
    TOKEN = "token"
    OIDC = "oidc"


class DashboardSettings(Settings):
    """Where the dashboard listens, what it reads, and who may see it."""

    section: ClassVar[str] = "dashboard"

    host: Host = Field(default="127.0.0.1", description="address to listen on")
    port: int = Field(default=8501, ge=1, le=65_535, description="the pages")
    query_url: SecretAddress = Field(
        default=SecretAddress(DEFAULT_URL),
        description="the store to read over ClickHouse HTTP, http://user:password@host:port if "
        "it requires a login",
        json_schema_extra=with_flag("--store-url"),
    )
    collector_url: str = Field(
        default=DEFAULT_COLLECTOR_URL,
        description="the collector's API: alerts, silences, corrections, reports",
    )
    slos: Path | None = Field(default=None, description="the SLO file, for budgets and drafts")
    trace_url: str = Field(
        default="",
        description="a trace viewer's address, such as http://tempo:3000/trace/{trace_id}; "
        "requests link to it",
    )
    sign_in: SignIn = Field(
        default=SignIn.NONE, description="how people sign in (docs/guide/dashboard.md)"
    )
    token: SecretStr | None = Field(
        default=None, description="token for reading the store when sign-in is off"
    )
    users: Path | None = Field(
        default=None, description="with oidc: TOML file that maps each e-mail address to a token"
    )
    oidc_secrets: Path | None = Field(
        default=None, description="with oidc: the provider's settings for Streamlit's st.login"
    )

    @property
    def shown_url(self) -> str:
        """The store's address without the password, for display."""
        return str(self.query_url)
