"""The settings of `evenkeel dashboard`; the app's own process reads them from the environment."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import ClassVar

from pydantic import Field, SecretStr

from evenkeel.settings import Settings
from evenkeel.store import DEFAULT_URL

DEFAULT_COLLECTOR_URL = "http://127.0.0.1:4318"


class SignIn(StrEnum):
    """How people sign in.

    Attributes:
        NONE: Not at all: who reaches the port sees what the dashboard's own token may.
        TOKEN: With one of the collector's tokens.
        OIDC: With an identity provider; a file says whose token each person reads with.
    """

    NONE = "none"
    TOKEN = "token"
    OIDC = "oidc"


class DashboardSettings(Settings):
    """Where the dashboard listens, what it reads, and who may see it."""

    section: ClassVar[str] = "dashboard"
    host: str = "127.0.0.1"
    port: int = Field(default=8501, ge=1, le=65_535)
    query_url: str = DEFAULT_URL
    collector_url: str = DEFAULT_COLLECTOR_URL
    slos: Path | None = None
    sign_in: SignIn = SignIn.NONE
    token: SecretStr | None = None
    users: Path | None = None
    oidc_secrets: Path | None = None

    @property
    def shown_url(self) -> str:
        """The store's address without a password, for people to read."""
        return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", self.query_url)

    def masked(self, text: str) -> str:
        """Return a text in which the store's address bears no password."""
        return text.replace(self.query_url, self.shown_url)
