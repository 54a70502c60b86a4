"""The path that a connection asks for, as vLLM's router sees it."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any


def route_path(scope: MutableMapping[str, Any]) -> str:
    """Return the path of an ASGI scope without the prefix that `--root-path` names.

    As Starlette's `get_route_path` has it: a proxy may have removed the prefix or not, and only
    whole segments count, so that `/v` is no prefix of `/v1`.
    """
    path: str = scope["path"]
    root: str = (scope.get("root_path") or "").rstrip("/")
    rest = path.removeprefix(root)
    return rest if rest.startswith("/") else path
