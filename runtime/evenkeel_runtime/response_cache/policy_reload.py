"""Apply edits of the cache's file, and new versions of what its routes know, without a restart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from evenkeel.watched_file import WatchedFile
from evenkeel_runtime.response_cache.backend import BackendError
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.knowledge import (
    KnowledgeFiles,
    list_knowledge,
    list_unknown,
)
from evenkeel_runtime.response_cache.settings_file import SECRET_KEYS, CachePolicy

logger = logging.getLogger(__name__)

# What the cache is built from at the start.
NEEDS_RESTART = frozenset(
    "backend redis_url redis_prefix redis_timeout_s qdrant_url qdrant_api_key qdrant_collection "
    "qdrant_timeout_s embedding_timeout_s max_bytes labels audit_log".split()
)
_EVERY_S = 1.0
_SEMANTIC = "semantic"


class PolicyFile:
    """Keeps a running cache in line with its file.

    An invalid file changes nothing: it is logged and counted once per version.

    Args:
        file: The cache's file.
        cache: The cache, opened with the file's current policy.
        knowledge: Reads the versions of routes whose knowledge is a file.
    """

    def __init__(
        self, file: WatchedFile[CachePolicy], cache: ResponseCache, knowledge: KnowledgeFiles
    ) -> None:
        self._file = file
        self._cache = cache
        self._knowledge = knowledge
        # `name@version` of each source that answers may have been made from.
        self._sources = list_knowledge(cache.policy)

    async def reload(self) -> None:
        """Apply the file if it has changed, or if the knowledge of a route has."""
        reloaded = self._file.reload()
        policy = await asyncio.to_thread(self._knowledge.resolve, self._file.current)
        if reloaded is not None:
            self._cache.counts.reloads["applied"] += 1
        before = self._cache.policy
        allowed, left_out = _keep_fixed(before, policy, self._cache.has_encoder)
        if reloaded is not None and left_out:
            logger.warning(
                "the cache file is applied, except for what needs a restart: %s",
                ", ".join(left_out),
            )
        if left_out != self._cache.needs_restart:
            self._cache.needs_restart = left_out
            self._cache.audit.write("needs_restart", keys=", ".join(left_out))
        if allowed == before:
            return
        self._record_changes(before, allowed)
        self._cache.configure(allowed)
        self._sources |= list_knowledge(allowed)
        for tag in sorted(self._sources - list_knowledge(allowed)):
            if tag.rpartition("@")[0] in list_unknown(allowed):
                # Perhaps it comes back as it was, and other runtimes may still read it.
                continue
            self._sources.remove(tag)
            # Answers from it can no longer be asked for: they only take up memory.
            with suppress(BackendError):
                await self._cache.deletions.flush("knowledge", tag)

    def record_rejection(self) -> None:
        """Count a version of the file that is invalid."""
        self._cache.counts.reloads["rejected"] += 1
        self._cache.audit.write("file_rejected")

    def _record_changes(self, before: CachePolicy, after: CachePolicy) -> None:
        old, new = _flatten(before), _flatten(after)
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                self._cache.audit.write("file", key=key, before=old.get(key), after=new.get(key))


def _keep_fixed(
    before: CachePolicy, after: CachePolicy, has_encoder: bool
) -> tuple[CachePolicy, tuple[str, ...]]:
    """Return the new policy with the old values of what needs a restart, and which those are."""
    kept = {
        key: getattr(before, key)
        for key in sorted(NEEDS_RESTART)
        if getattr(before, key) != getattr(after, key)
    }
    left_out = tuple(kept)
    if after.needs_embeddings and not has_encoder:
        # Questions have no vectors without it: the routes compare exactly until the restart.
        left_out = (*left_out, _SEMANTIC)
    return after.model_copy(update=kept), left_out


def _flatten(policy: CachePolicy) -> dict[str, Any]:
    """Return each setting by its place in the file, as text; no secrets."""
    top = policy.model_dump(mode="json", exclude={"routes", *SECRET_KEYS})
    found = {key: _show(value) for key, value in top.items()}
    for route in policy.routes:
        for key, value in route.model_dump(mode="json", exclude={"route"}).items():
            found[f"routes.{route.route}.{key}"] = _show(value)
    return found


def _show(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{name}@{version}" for name, version in sorted(value.items()))
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value


async def follow(
    cache: ResponseCache, file: PolicyFile | None, record_error: Callable[[Exception], None]
) -> None:
    """Apply edits of the file, and other runtimes' changes, until cancelled; close the cache.

    Side by side: the kill switch in the file must not wait for a backend that is slow or behind.
    """

    async def repeat(step: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await step()
            except Exception as error:
                record_error(error)
            await asyncio.sleep(_EVERY_S)

    steps = (cache.follow_others, *(() if file is None else (file.reload,)))
    try:
        await asyncio.gather(*map(repeat, steps))
    finally:
        await cache.close()
