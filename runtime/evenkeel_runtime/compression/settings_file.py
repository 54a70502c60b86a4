"""The prompt compression file; docs/guide/compression.md explains each key."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from evenkeel.toml_file import read_toml_file


class CompressionPolicy(BaseModel):
    """A parsed compression file.

    Attributes:
        routes: Routes (header `x-evenkeel-route`) whose prompts are shortened; empty for all.
        min_tokens: Shorter histories are left unchanged; only turns that may be shortened count.
        keep_turns: Number of latest messages to keep verbatim, the newest included.
        keep_ratio: Maximum fraction to keep of the history's sentences that may be dropped.
        min_saved_ratio: Minimum fraction of the history's tokens to save; below it, all is sent.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    routes: tuple[str, ...] = ()
    min_tokens: int = Field(default=512, ge=1)
    keep_turns: int = Field(default=3, ge=1)
    keep_ratio: float = Field(default=0.3, ge=0, le=1)
    min_saved_ratio: float = Field(default=0.1, ge=0, lt=1)

    def covers(self, route: str | None) -> bool:
        """Whether prompts of a route are shortened."""
        return not self.routes or route in self.routes


def read_compression(path: Path) -> CompressionPolicy:
    """Return the policy in a TOML file.

    Raises:
        ConfigurationError: If the file cannot be read, or a key or value is invalid.
    """
    return read_toml_file(path, CompressionPolicy)
