"""Build the cache from its policy."""

from __future__ import annotations

from pathlib import Path

from evenkeel.embedding import Encoder, load_encoder
from evenkeel.errors import MissingPartError
from evenkeel.secret_text import read_secret
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.backend import Backend
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.settings_file import CachePolicy


def open_cache(policy: CachePolicy, data_dir: Path) -> ResponseCache:
    """Return the cache; does not contact Redis yet, which may be down.

    Raises:
        MissingPartError: If a package needed by the policy is missing.
        ConfigurationError: If the file that holds the address of Redis cannot be read.
    """
    encoder = load_index() if policy.needs_embeddings else None
    return ResponseCache(
        policy, _open_backend(policy), encoder, AuditLog(data_dir / policy.audit_log)
    )


def load_index() -> Encoder:
    """Return the encoder, after checking that the vector index is available."""
    try:
        import usearch.index  # noqa: F401
    except ImportError as error:
        raise MissingPartError(
            "the response cache needs the module 'usearch' to compare meanings; install it with: "
            "pip install 'evenkeel[cache,embeddings]', or set semantic = false"
        ) from error
    return load_encoder()


def _open_backend(policy: CachePolicy) -> Backend:
    if policy.redis_url is None:
        return MemoryBackend(policy.max_bytes)
    try:
        from evenkeel_runtime.response_cache.redis_backend import RedisBackend
    except ImportError as error:
        raise MissingPartError(
            "a cache in Redis needs the module 'redis'; install it with: "
            "pip install 'evenkeel[cache]'"
        ) from error
    url = read_secret(policy.redis_url.get_secret_value())
    return RedisBackend(url, policy.redis_prefix, policy.max_bytes, policy.redis_timeout_s)
