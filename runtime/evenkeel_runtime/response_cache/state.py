"""The state of the cache, as returned by `GET /v1/evenkeel/cache`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from evenkeel_runtime.response_cache.backend import Size
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.neighbours import NearMiss
from evenkeel_runtime.response_cache.serve_control import Rung
from evenkeel_runtime.response_cache.settings_file import HitMode


@dataclass(frozen=True, slots=True)
class RouteEvidence:
    """The minimum cosine for near hits on one route, and its evidence.

    Attributes:
        serves_from: The minimum cosine; null if the route serves no near hits.
        limit: The highest acceptable share of wrong near hits.
        evidence: What is known at and above each cosine.
    """

    serves_from: float | None
    limit: float
    evidence: list[Rung]


@dataclass(frozen=True, slots=True)
class CacheState:
    """The state of one server's cache.

    Attributes:
        enabled: Whether the cache's file enables it.
        needs_restart: Keys whose change in the file takes effect at the next start only.
        size: The backend's size; null if it does not respond.
        indexed: Questions that can be compared.
        modes: Current mode of each route in the cache file.
        counts: Counters since the start.
        routes: Evidence on near hits by route.
        near_misses: The latest near hits rejected by a guard.
    """

    enabled: bool
    needs_restart: list[str]
    size: Size | None
    indexed: int
    modes: dict[str, HitMode]
    counts: dict[str, int | float | dict[str, int | float]]
    routes: dict[str, RouteEvidence]
    near_misses: list[NearMiss]


async def describe(cache: ResponseCache) -> CacheState:
    """Return the current state of the cache."""
    counts = {field.name: getattr(cache.counts, field.name) for field in fields(cache.counts)}
    counts["verdicts"] = {
        f"{layer} {word}": n for (layer, word), n in cache.counts.verdicts.items()
    }
    return CacheState(
        enabled=cache.policy.enabled,
        needs_restart=list(cache.needs_restart),
        size=await cache.measure(),
        indexed=len(cache.index),
        modes=cache.modes.describe(),
        counts=counts,
        routes={
            route: RouteEvidence(control.threshold, control.limit, control.rungs)
            for route, control in cache.controls.items()
        },
        near_misses=list(cache.near_misses),
    )
