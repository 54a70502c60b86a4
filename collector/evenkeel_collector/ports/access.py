"""Who may do what: bearer tokens, each with scopes and perhaps a tenant.

Only the SHA-256 of a token is known here. Every comparison looks at every token, in constant time:
how long an answer takes says nothing about which token was nearly right.
"""

from __future__ import annotations

import base64
import binascii
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
    """No token, or one that nobody gave out."""


class ForbiddenError(Exception):
    """The token does not allow this."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Token(_Strict):
    """One token; `tenant` is whose data it sends or reads, None for those that serve many."""

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
    """What one tenant may send; None is no limit.

    Attributes:
        bytes_per_s: Bytes of request bodies, once decompressed.
        requests_per_s: Export requests.
        request_bytes: Of one body, once decompressed.
    """

    bytes_per_s: Annotated[float, Field(gt=0)] | None = None
    requests_per_s: Annotated[float, Field(gt=0)] | None = None
    request_bytes: Annotated[int, Field(gt=0)] | None = None


class AccessFile(_Strict):
    """The file of tokens and limits; `limits.default` holds for tenants that are not named."""

    token: tuple[Token, ...] = ()
    limits: Mapping[str, TenantLimits] = Field(default_factory=dict)


def read_access_file(path: Path | None) -> AccessFile:
    """Return the tokens and limits of a TOML file; without a file, no tokens and no limits.

    Raises:
        ConfigurationError: If it cannot be read, or says something that does not exist.
    """
    if path is None:
        return AccessFile()
    file = read_toml_file(path, AccessFile, "--access", secrets=frozenset({"token"}))
    digests = [token.sha256.lower() for token in file.token]
    if len(set(digests)) < len(digests):
        raise ConfigurationError(f"{path} (--access): two tokens are the same")
    return file


class Access:
    """Decides by token; without tokens everyone may do everything, as on one's own machine."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._tokens: list[tuple[bytes, Token]] = []
        self.use(tokens)

    def use(self, tokens: Sequence[Token]) -> None:
        """Decide by these tokens from now on, and by no other."""
        self._tokens = [(bytes.fromhex(token.sha256), token) for token in tokens]

    @property
    def is_open(self) -> bool:
        """Whether no token is asked for."""
        return not self._tokens

    def check(self, secret: str | None, scope: AccessScope) -> str | None:
        """Return the tenant that the token proves, None if it is for all of them.

        Raises:
            UnauthenticatedError: If there is no such token.
            ForbiddenError: If it does not allow `scope`.
        """
        if self.is_open:
            return None
        if secret is None:
            raise UnauthenticatedError("a token is needed: send Authorization: Bearer TOKEN")
        digest = hashlib.sha256(secret.encode("utf-8", "surrogateescape")).digest()
        found: Token | None = None
        for known, token in self._tokens:
            if hmac.compare_digest(known, digest):
                found = token
        if found is None:
            raise UnauthenticatedError("this token is not known here")
        if not found.scopes & {scope, AccessScope.ADMIN}:
            raise ForbiddenError(f"token {found.name!r} does not allow {scope}")
        return found.tenant


def secret_of(headers: Mapping[str, str]) -> str | None:
    """Return the token that a request carries: as bearer, or where ClickHouse clients put it."""
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip()
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).decode().partition(":")[2]
        except (binascii.Error, UnicodeDecodeError):
            return None
    return headers.get("x-clickhouse-key")
