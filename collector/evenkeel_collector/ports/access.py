"""Access control: bearer tokens, each with scopes and optionally a tenant.

Only the SHA-256 of a token is kept. Each check compares against every token in constant time, so
response times do not reveal which token was nearly right.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from evenkeel.errors import ConfigurationError
from evenkeel.toml_file import read_toml_file

DEFAULT_LIMITS = "default"


class AccessScope(StrEnum):
    """What a token allows; `admin` allows everything."""

    INGEST = "ingest"
    QUERY = "query"
    ADMIN = "admin"


class UnauthenticatedError(Exception):
    """The token is missing or unknown."""


class ForbiddenError(Exception):
    """The token lacks the required scope."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Token(_Strict):
    """One token; `tenant` is whose data it sends or reads, None for all tenants."""

    name: str
    sha256: Annotated[str, Field(pattern=r"^[0-9a-fA-F]{64}$")]
    scopes: Annotated[frozenset[AccessScope], Field(min_length=1)]
    tenant: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _check_scopes(self) -> Token:
        if self.tenant is not None and AccessScope.ADMIN in self.scopes:
            raise ValueError("a token with a tenant may ingest and query, not administer")
        return self


class TenantLimits(_Strict):
    """The limits of one tenant; None is no limit.

    Attributes:
        bytes_per_s: Bytes of request bodies, once decompressed.
        requests_per_s: Export requests.
        request_bytes: Of one body, once decompressed.
    """

    bytes_per_s: Annotated[float, Field(gt=0)] | None = None
    requests_per_s: Annotated[float, Field(gt=0)] | None = None
    request_bytes: Annotated[int, Field(gt=0)] | None = None


class AccessFile(_Strict):
    """The access file: tokens and limits; `limits.default` applies to tenants not listed."""

    token: tuple[Token, ...] = ()
    limits: Mapping[str, TenantLimits] = Field(default_factory=dict)


def read_access_file(path: Path | None) -> AccessFile:
    """Return the tokens and limits of a TOML file; without a file, no tokens and no limits.

    Raises:
        ConfigurationError: If the file is unreadable, or has an unknown key or invalid value.
    """
    if path is None:
        return AccessFile()
    file = read_toml_file(path, AccessFile, "--access", secrets=frozenset({"token"}))
    digests = [token.sha256.lower() for token in file.token]
    if len(set(digests)) < len(digests):
        raise ConfigurationError(f"{path} (--access): two tokens are the same")
    return file


class Access:
    """Authorizes requests by token; without tokens everything is allowed, as on a local machine."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens: list[tuple[bytes, Token]] = []
        self.use(tokens)

    def use(self, tokens: Sequence[Token]) -> None:
        """Replace the tokens in force."""
        self._tokens = [(bytes.fromhex(token.sha256), token) for token in tokens]

    @property
    def is_open(self) -> bool:
        """Whether requests need no token."""
        return not self._tokens

    def check(self, secret: str | None, scope: AccessScope) -> str | None:
        """Return the token's tenant, or None if it is valid for all tenants.

        Raises:
            UnauthenticatedError: If the token is missing or unknown.
            ForbiddenError: If it does not allow `scope`.
        """
        if self.is_open:
            return None
        if secret is None:
            raise UnauthenticatedError("token required: send Authorization: Bearer TOKEN")
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        found: Token | None = None
        for known, token in self._tokens:
            if hmac.compare_digest(known, digest):
                found = token
        if found is None:
            raise UnauthenticatedError("unknown token; see the access file (--access)")
        if not found.scopes & {scope, AccessScope.ADMIN}:
            raise ForbiddenError(f"token {found.name!r} does not allow {scope}")
        return found.tenant


def secret_of(headers: Mapping[str, str]) -> str | None:
    """Return a request's token, sent as a bearer token or in ClickHouse's headers."""
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
        except ValueError:
            return None
    return headers.get("x-clickhouse-key")
