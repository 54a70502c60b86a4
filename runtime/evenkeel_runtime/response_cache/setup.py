"""Build the cache from its policy."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evenkeel.embedding import Encoder, load_encoder
from evenkeel.errors import ConfigurationError, MissingPartError, first_line
from evenkeel.extras import how_to_install
from evenkeel.secret_text import read_secret
from evenkeel.watched_file import WatchedFile
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.backend import Backend
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.evidence_file import check_labels
from evenkeel_runtime.response_cache.knowledge import KnowledgeFiles
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.policy_reload import PolicyFile
from evenkeel_runtime.response_cache.settings_file import CachePolicy, read_policy

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenedCache:
    """A cache, and the watched file that it follows."""

    cache: ResponseCache
    file: PolicyFile


def open_cache(path: Path, data_dir: Path) -> OpenedCache:
    """Return the cache of a file; does not contact a shared backend yet, which may be down.

    Raises:
        MissingPartError: If a package needed by the file is missing.
        ConfigurationError: If the file, or one that it names (labels, the backend's address), is
            wrong.
    """
    rejections: list[Callable[[], None]] = []
    file = WatchedFile(path, read_policy, logger, lambda: rejections[0]())
    knowledge = KnowledgeFiles(path.parent)
    policy = knowledge.resolve(file.current)
    encoder = load_index() if policy.needs_embeddings else None
    audit = AuditLog(data_dir / policy.audit_log)
    cache = ResponseCache(policy, _open_backend(policy), encoder, audit)
    cache.controls.data_dir = None if encoder is None else data_dir
    cache.controls.labels = _find_labels(path, policy)
    watched = PolicyFile(file, cache, knowledge)
    rejections.append(watched.record_rejection)
    return OpenedCache(cache, watched)


def _find_labels(path: Path, policy: CachePolicy) -> Path | None:
    if policy.labels is None:
        return None
    labels = path.parent / policy.labels
    try:
        if not labels.is_file():
            raise ValueError("not a file")
        # Those of an earlier version are discarded later: an upgrade must not stop a server.
        check_labels(labels)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"labels is {policy.labels} ({path}), but {labels} cannot be used: "
            f"{first_line(error)}; write it with `evenkeel cache calibrate`"
        ) from error
    return labels


def load_index() -> Encoder:
    """Return the encoder, after checking that the vector index is available."""
    try:
        import usearch.index  # noqa: F401
    except ImportError as error:
        raise MissingPartError(
            "the response cache needs the module 'usearch' to compare meanings; install it with: "
            f"{how_to_install('cache')}; or set semantic = false"
        ) from error
    return load_encoder()


def _open_backend(policy: CachePolicy) -> Backend:
    if policy.redis_url is not None:
        return _open_redis(policy, policy.redis_url.get_secret_value())
    if policy.qdrant_url is not None:
        return _open_qdrant(policy, policy.qdrant_url)
    return MemoryBackend(policy.max_bytes)


def _open_redis(policy: CachePolicy, address: str) -> Backend:
    try:
        from evenkeel_runtime.response_cache.redis_backend import RedisBackend
    except ImportError as error:
        raise MissingPartError(
            f"a cache in Redis needs the module 'redis'; install it with: {how_to_install('cache')}"
        ) from error
    url = read_secret(address)
    try:
        return RedisBackend(url, policy.redis_prefix, policy.max_bytes, policy.redis_timeout_s)
    except TypeError:
        raise ConfigurationError(
            "redis_url has an option (after ?) that Redis does not know, or an invalid value"
        ) from None
    except ValueError:
        # The error may quote a part of the password: of one with a slash, what follows is no port.
        raise ConfigurationError(
            "redis_url is not an address of Redis; expected redis://HOST:PORT/DATABASE, rediss://… "
            "or unix://…, and special characters of a password as %XX"
        ) from None


def _open_qdrant(policy: CachePolicy, url: str) -> Backend:
    try:
        from evenkeel_runtime.response_cache.qdrant_backend import QdrantBackend, connect
    except ImportError as error:
        raise MissingPartError(
            "a cache in Qdrant needs the module 'qdrant_client'; install it with: "
            f"{how_to_install('qdrant')}"
        ) from error
    key = policy.qdrant_api_key
    secret = None if key is None else read_secret(key.get_secret_value())
    try:
        client = connect(url, secret, policy.qdrant_timeout_s)
    except ValueError:
        raise ConfigurationError(
            "qdrant_url is not an address of Qdrant; expected http://HOST:PORT or https://HOST:PORT"
        ) from None
    return QdrantBackend(
        client, policy.qdrant_collection, policy.max_bytes, policy.qdrant_timeout_s
    )
