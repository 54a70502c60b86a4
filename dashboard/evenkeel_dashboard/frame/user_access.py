"""Who a user is, and what their pages may show: the users file, their token, their tenant's SLOs.

Rows are restricted by the token: the collector's query port (query/tenant_row_filters.py) leaves
out those of other tenants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from evenkeel.errors import ConfigurationError
from evenkeel.secret_text import read_secret
from evenkeel.settings import read_environment
from evenkeel.slo.model import Slo
from evenkeel.toml_file import read_toml_file


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class User(_Strict):
    """One person: the e-mail verified by the provider, and the variable that holds their token."""

    email: str = Field(min_length=3)
    token_env: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")


class _UserFile(_Strict):
    user: tuple[User, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Identity:
    """A user of the dashboard.

    Attributes:
        name: Their name in the audit log; "" if sign-in is off.
        token: Sent to the collector; None sends none.
        tenant: The tenant whose data they see; None for all.
        may_act: Whether they may silence, acknowledge and so on.
    """

    name: str
    token: str | None
    tenant: str | None = None
    may_act: bool = False


def read_users(path: Path | None) -> Mapping[str, User]:
    """Return the users by e-mail, in lower case.

    Raises:
        ConfigurationError: If the file is missing or invalid.
    """
    if path is None:
        raise ConfigurationError("sign-in with OIDC needs --users FILE: a token per e-mail")
    file = read_toml_file(path, _UserFile, "--users", secrets=frozenset({"user"}))
    return {user.email.lower(): user for user in file.user}


def token_of(email: str, users: Mapping[str, User]) -> str | None:
    """Return a person's token; None if they are not in the file, or its variable is unset.

    Raises:
        ConfigurationError: If the variable names a file that cannot be read.
    """
    user = users.get(email.lower())
    token = read_environment(user.token_env) if user is not None else None
    return read_secret(token) if token is not None else None


def slos_of(slos: Sequence[Slo], tenant: str | None) -> list[Slo]:
    """Return the SLOs that a user may see evaluated: of a tenant's, those of its requests alone.

    Another one, counted from what the tenant may read, would be wrong.
    """
    if tenant is None:
        return list(slos)
    return [slo for slo in slos if slo.indicator.shared_select.get("tenant") == tenant]
