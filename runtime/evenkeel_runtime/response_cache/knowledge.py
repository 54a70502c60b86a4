"""The versions of the sources that answers were made from: an answer is only served for the same.

A request names them in the header `x-evenkeel-knowledge`, a route in the cache's file. They are
part of an entry's identity, so an answer made from `docs@1` is never found for `docs@2`, neither
exactly nor by meaning.
"""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from evenkeel.watched_file import Stamp, file_stamp
from evenkeel_runtime.response_cache.settings_file import CachePolicy, RoutePolicy
from evenkeel_runtime.wire.caller import Caller

logger = logging.getLogger(__name__)

# The version of a file that cannot be read: its route bypasses the cache.
UNKNOWN = ""
_VERSION_CHARS = 16


def find_knowledge(route: RoutePolicy, caller: Caller) -> tuple[str, ...] | None:
    """Return `name@version` of each source of a request, sorted; None if one is not known.

    What the request says of a source takes precedence over its route.
    """
    if caller.knowledge is None:
        return None
    versions = dict(route.knowledge)
    for item in caller.knowledge:
        name, _, version = item.rpartition("@")
        versions[name] = version
    if UNKNOWN in versions.values():
        return None
    return tuple(sorted(f"{name}@{version}" for name, version in versions.items()))


def list_knowledge(policy: CachePolicy) -> set[str]:
    """Return `name@version` of each source of any route."""
    return {
        f"{name}@{version}"
        for route in policy.routes
        for name, version in route.knowledge.items()
        if version != UNKNOWN
    }


def list_unknown(policy: CachePolicy) -> set[str]:
    """Return the names of the sources whose file cannot be read."""
    versions = (item for route in policy.routes for item in route.knowledge.items())
    return {name for name, version in versions if version == UNKNOWN}


class KnowledgeFiles:
    """Replaces each `@PATH` in the routes' knowledge by a version: a hash of the file's content.

    Args:
        folder: What relative paths are relative to.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, tuple[Stamp | None, str]] = {}

    def resolve(self, policy: CachePolicy) -> CachePolicy:
        """Return the policy with the current versions; files are read only if they changed."""
        if not any(route.knowledge for route in policy.routes):
            return policy
        routes = tuple(
            route.model_copy(
                update={"knowledge": {n: self._resolve(v) for n, v in route.knowledge.items()}}
            )
            for route in policy.routes
        )
        return policy.model_copy(update={"routes": routes})

    def _resolve(self, version: str) -> str:
        if not version.startswith("@"):
            return version
        path = self._folder / version[1:]
        # Take the stamp before the content: a change in between is then read again.
        stamp = file_stamp(path)
        known = self._known.get(path)
        if known is not None and stamp is not None and known[0] == stamp:
            return known[1]
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()[:_VERSION_CHARS]
        except OSError as error:
            digest = UNKNOWN
            if known is None or known[1] != UNKNOWN:
                logger.warning("knowledge cannot be read, its routes bypass the cache: %s", error)
        self._known[path] = (stamp, digest)
        return digest
