"""The state of the cache, as returned by `GET /v1/evenkeel/cache`."""

from __future__ import annotations

from dataclasses import dataclass, fields

from evenkeel_runtime.response_cache.backend import Size
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.near_misses import NearMiss
from evenkeel_runtime.response_cache.serve_control import Evidence
from evenkeel_runtime.response_cache.settings_file import HitMode


@dataclass(frozen=True, slots=True)
class RouteEvidence:
    """The minimum cosine for near hits on one route, and its evidence.

    Attributes:
        serves_from: The minimum cosine; null if the route serves no near hits.
        limit: The highest acceptable share of wrong near hits.
        served: Near hits served since the evidence of a kind was last found wanting.
        wrong: Wrong ones among them that replays have found.
        wrong_bound: Upper bound on the wrong ones, found or not.
        replay_ratio: Share of served near hits that the model answers as well, now.
        evidence: The classes with any verdict.
    """

    serves_from: float | None
    limit: float
    served: int
    wrong: int
    wrong_bound: float
    replay_ratio: float
    evidence: list[Evidence]


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
        model: The served weights, for which the evidence is; null if none is kept.
        evidence_discarded: Why evidence of earlier runs or labels was not used, by file.
        routes: Evidence on near hits by route.
        near_misses: The latest near hits that a guard objects to and that were not served.
    """

    enabled: bool
    needs_restart: list[str]
    size: Size | None
    indexed: int
    modes: dict[str, HitMode]
    counts: dict[str, int | float | dict[str, int | float]]
    model: str | None
    evidence_discarded: dict[str, str]
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
        model=None if cache.controls.file is None else cache.controls.file.model,
        evidence_discarded={} if cache.controls.file is None else cache.controls.file.discarded,
        routes={
            route: RouteEvidence(
                serves_from=control.threshold,
                limit=control.limit,
                served=control.wrong_hits.num_served,
                wrong=control.wrong_hits.num_detected,
                wrong_bound=control.wrong_hits.bound,
                replay_ratio=control.wrong_hits.replay_ratio,
                evidence=[item for item in control.classes if item.seen],
            )
            for route, control in cache.controls.items()
        },
        near_misses=list(cache.near_misses),
    )
