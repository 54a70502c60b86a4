"""Reads the file of `eval bisect`: a good side and the changes made to it, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from evenkeel.errors import ConfigurationError
from evenkeel.toml_file import read_toml_file
from evenkeel_evals.ask.sides import (
    ServeConfig,
    Side,
    base_url,
    load_side,
    read_sampling,
    resolve_prompt,
)


@dataclass(frozen=True, slots=True)
class Change:
    """One change between the good side and the bad one.

    Attributes:
        name: Its name.
        side: The complete side with this change and all earlier ones.
    """

    name: str
    side: Side


class _Change(BaseModel):
    """One change; keys it does not name stay unchanged."""

    model_config = ConfigDict(extra="forbid")
    name: str = Field(min_length=1)
    url: str | None = Field(default=None, pattern="^https?://")
    model: str | None = None
    flags: list[str] | None = None
    prompt: str | None = None
    system: str | None = None
    sampling: dict[str, Any] | None = None


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    base: str
    change: list[_Change] = Field(min_length=1)


def load_changes(path: Path, default_url: str, prompts_dir: Path) -> tuple[Side, list[Change]]:
    """Return the good side and every change in order.

    Args:
        path: TOML: `base`, a side file in the same folder, and `[[change]]` tables.
        default_url: Server for a side that names none.
        prompts_dir: The prompt registry in which `prompt` is looked up.

    Raises:
        ConfigurationError: If a file is missing or wrong, or a change changes nothing.
    """
    file = read_toml_file(path, _File, secrets=frozenset({"url"}))
    base = load_side(path.parent / file.base, default_url, prompts_dir)
    return base, _apply_all(path, base, file.change, prompts_dir)


def _apply_all(
    path: Path, base: Side, changes: Sequence[_Change], prompts_dir: Path
) -> list[Change]:
    found: list[Change] = []
    side = base
    for change in changes:
        changed = replace(_apply(path, side, change, prompts_dir), name=change.name)
        if replace(changed, name="") == replace(side, name=""):
            raise ConfigurationError(f"{path}: change {change.name!r} changes nothing")
        if change.name in {known.name for known in found}:
            raise ConfigurationError(f"{path}: two changes are named {change.name!r}")
        found.append(Change(change.name, changed))
        side = changed
    return found


def _apply(path: Path, side: Side, change: _Change, prompts_dir: Path) -> Side:
    if change.flags is not None:
        if side.serve is None:
            raise ConfigurationError(
                f"{path}: change {change.name!r} has flags, but the base has no [serve]"
            )
        flags = (*side.serve.flags, *change.flags)
        side = replace(side, serve=ServeConfig(side.serve.model, flags))
    if change.url is not None:
        side = replace(side, url=base_url(change.url), serve=None)
    if change.model is not None:
        serve = None if side.serve is None else replace(side.serve, model=change.model)
        side = replace(side, serve=serve, model=change.model if serve is None else side.model)
    if change.prompt is not None:
        found = resolve_prompt(change.prompt, prompts_dir)
        side = replace(
            side, prompt_name=found.name, prompt_version=found.version, system=found.system
        )
    if change.system is not None:
        side = replace(side, system=change.system, prompt_version=change.name)
    if change.sampling is not None:
        wanted = read_sampling(path, {**side.sampling, **change.sampling})
        side = replace(side, sampling=wanted)
    return side
