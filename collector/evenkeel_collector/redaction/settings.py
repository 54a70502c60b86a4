"""Settings of redaction: `[redaction]` in evenkeel.toml, `EVENKEEL_REDACTION_*`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field, SecretStr

from evenkeel.settings import Listed, Settings

if TYPE_CHECKING:
    from evenkeel_collector.redaction.field_redactor import Redactor


class RedactionSettings(Settings):
    """The rules, key and exceptions of redaction."""

    section: ClassVar[str] = "redaction"
    flag_prefix: ClassVar[str] = "redaction-"

    rules_file: Path | None = Field(
        default=None,
        description="TOML file of rules that override the built-in ones (docs/guide/redaction.md)",
    )
    hash_key: SecretStr | None = Field(
        default=None,
        description="HMAC key for the action `hash`, at least 16 bytes; without it, those rules "
        "mask instead",
    )
    content_tenants: Listed = Field(
        default=(), description="tenants whose prompts and answers are stored; `*` for all"
    )

    def build(self) -> Redactor:
        """Return the redactor for these settings.

        Raises:
            ConfigurationError: If the rules or the key are wrong.
        """
        # Importing the rule engine is slow, and --help does not need it.
        from evenkeel_collector.redaction.field_redactor import Redactor
        from evenkeel_collector.redaction.field_rules import load_rules

        return Redactor(load_rules(self.rules_file), self.hash_key, self.content_tenants)
