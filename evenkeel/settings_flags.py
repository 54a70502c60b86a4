"""Adds the flags of a command, derived from the settings it reads."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from evenkeel.settings import Setting, Settings, find_settings

_MEBIBYTE = 1 << 20


def add_flags(
    parser: argparse.ArgumentParser, cls: type[Settings], names: Collection[str] | None = None
) -> None:
    """Add a flag per setting; values stay text, so that all sources are validated alike.

    Args:
        parser: The parser to add them to.
        cls: The settings class.
        names: Only these settings; None means all.
    """
    group = parser.add_argument_group(f"settings, [{cls.section}] in evenkeel.toml")
    for setting in find_settings(cls):
        if setting.is_handed_down or (names is not None and setting.name not in names):
            continue
        options: dict[str, Any] = {"dest": _dest(cls, setting.name), "help": _help(setting)}
        if setting.type is bool:
            options["action"] = argparse.BooleanOptionalAction
        else:
            options["metavar"] = _metavar(setting)
            options["action"] = "append" if setting.is_list else "store"
        group.add_argument(*setting.flags, default=None, **options)


def read_flags(cls: type[Settings], args: argparse.Namespace) -> dict[str, Any]:
    """Return the flags given on the command line with their values, as `load` takes them."""
    return {name: getattr(args, _dest(cls, name), None) for name in cls.model_fields}


def show_default(setting: Setting) -> str:
    """Return the default as a person would write it."""
    value = setting.default
    if value is None or value in ("", ()):
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if setting.name.endswith("_bytes") and value >= _MEBIBYTE and value % _MEBIBYTE == 0:
        return f"{value // _MEBIBYTE} MiB"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _dest(cls: type[Settings], name: str) -> str:
    return f"{cls.flag_prefix}{name}".replace("-", "_")


def _help(setting: Setting) -> str:
    secret = "; @FILE reads it from a file" if setting.is_secret else ""
    default = show_default(setting)
    shown = "" if default in ("none", "false") else f" (default {default})"
    return f"{setting.description}{secret}{shown}".replace("%", "%%")


def _metavar(setting: Setting) -> str:
    kinds = [kind for kind in (setting.type, *get_args(setting.type)) if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, Enum):
            return "{" + ",".join(str(member.value) for member in kind) + "}"
    if setting.is_address or setting.name.endswith(("_url", "url", "endpoint")):
        return "URL"
    if int in kinds or float in kinds:
        return "N"
    return "PATH" if Path in kinds else "TEXT"
