"""Which prompts are shortened; docs/guide/compression.md explains each key of its TOML file."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from evenkeel.toml_file import read_toml_file


class CompressionPolicy(BaseModel):
    """The whole file.

    Attributes:
        routes: Routes (header `x-evenkeel-route`) whose prompts are shortened; empty for all.
        min_tokens: Histories of fewer tokens, in turns that may be shortened, are left alone.
        keep_turns: Last messages that are kept word for word, the newest included.
        keep_ratio: Share kept at most of the history's sentences that need not stay.
        min_saved_ratio: Share of the history's tokens to save at least, else all of it is sent.
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
    """Read the TOML file.

    Raises:
        ConfigurationError: If it cannot be read, or a key or a value in it is wrong.
    """
    return read_toml_file(path, CompressionPolicy)
