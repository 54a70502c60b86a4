"""What a user may set about redaction: `[redaction]` in evenkeel.toml, `EVENKEEL_REDACTION_*`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, SecretStr

from collector.redaction import Redactor
from collector.redaction_rules import load_rules
from evenkeel.settings import Settings


def _split(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return tuple(part.strip() for part in value.split(",") if part.strip())


class RedactionSettings(Settings):
    """Rules, key and exceptions of redaction.

    Attributes:
        rules_file: TOML laid over the built-in rules.
        hash_key: Key of the tokens that `hash` writes, at least 16 bytes; without it they mask.
        content_tenants: Tenants whose prompts and answers are stored; `*` for all. Comma-separated
            in the environment.
    """

    section: ClassVar[str] = "redaction"

    rules_file: Path | None = None
    hash_key: SecretStr | None = None
    content_tenants: Annotated[tuple[str, ...], BeforeValidator(_split)] = ()

    def build(self) -> Redactor:
        """Return the redactor that these settings describe.

        Raises:
            ConfigurationError: If the rules or the key are wrong.
        """
        return Redactor(load_rules(self.rules_file), self.hash_key, self.content_tenants)
