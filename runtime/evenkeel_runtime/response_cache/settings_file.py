"""The cache policy per route; docs/guide/cache.md explains each key of its TOML file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from evenkeel.spans import ROUTE_EVAL
from evenkeel.toml_file import read_toml_file

OTHER_ROUTES = "*"
SECRET_KEYS = frozenset({"redis_url", "qdrant_api_key"})
_Ratio = Annotated[float, Field(ge=0, le=1)]
_SourceName = Annotated[str, Field(pattern=r"^[^\s@,]+$", max_length=100)]
_Version = Annotated[str, Field(pattern=r"^(@.+|[^\s@,]+)$", max_length=1000)]


class HitMode(StrEnum):
    """How the cache handles a request similar to one answered before."""

    SERVE = "serve"
    DRAFT = "draft"
    SHADOW = "shadow"
    OFF = "off"


class TimeToLive(StrEnum):
    """How fast answers expire; `auto` looks for words such as today, price, in stock."""

    STATIC = "static"
    DYNAMIC = "dynamic"
    AUTO = "auto"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RoutePolicy(_Model):
    """The policy for the requests of one route (header `x-evenkeel-route`).

    Attributes:
        route: Value of the header; `*` for requests with any other route or none.
        mode: How hits are handled.
        semantic: Whether questions in other words can match.
        similarities: Minimum cosines at which a near hit may be served, lowest first; evidence
            decides which one applies.
        leads: Minimum leads of its cosine over the nearest question with another answer, lowest
            first; evidence decides which one applies.
        draft_similarity: Minimum cosine at which a near hit is used as a draft.
        wrong_hit_limit: Highest acceptable rate of wrong semantic hits.
        alpha: Probability that the bound on that rate is wrong at any time.
        replay_ratio: Share of served near hits that are replayed on the model for comparison.
        ttl: How fast answers expire.
        max_temperature: Highest temperature that is cached; requests with a seed always are.
        knowledge: Version of each source of the answers, by name; `@PATH` stands for the content of
            a file.
    """

    route: str = OTHER_ROUTES
    mode: HitMode = HitMode.SHADOW
    semantic: bool = True
    similarities: tuple[_Ratio, ...] = (0.5, 0.8)
    leads: tuple[_Ratio, ...] = (0.0, 0.1, 0.2)
    draft_similarity: _Ratio = 0.5
    wrong_hit_limit: float = Field(default=0.02, gt=0, lt=0.5)
    alpha: float = Field(default=0.05, gt=0, lt=0.5)
    replay_ratio: float = Field(default=0.1, gt=0, le=1)
    ttl: TimeToLive = TimeToLive.AUTO
    max_temperature: float = Field(default=0.0, ge=0, le=2)
    knowledge: dict[_SourceName, _Version] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_ladder(self) -> RoutePolicy:
        if not self.similarities or list(self.similarities) != sorted(set(self.similarities)):
            raise ValueError("similarities must be in ascending order")
        if not self.leads or list(self.leads) != sorted(set(self.leads)):
            raise ValueError("leads must be in ascending order")
        if self.draft_similarity > self.similarities[0]:
            raise ValueError("draft_similarity must not exceed the first value of similarities")
        return self


class CachePolicy(_Model):
    """The whole file.

    Attributes:
        enabled: The kill switch: false sends every request to the model and stores nothing.
        backend: `memory`, in this process, or `redis` or `qdrant`, shared by several runtimes.
        redis_url: Address of Redis, password included; `@PATH` reads it from a file.
        redis_prefix: Prefix of the cache's keys in Redis.
        redis_timeout_s: Longest that a request waits for Redis before the model answers.
        qdrant_url: Address of Qdrant.
        qdrant_api_key: Its API key; `@PATH` reads it from a file.
        qdrant_collection: Collection of the entries, created if it does not exist.
        qdrant_timeout_s: Longest that a request waits for Qdrant before the model answers.
        embedding_timeout_s: Longest that a request waits for embeddings before the model answers.
        max_bytes: Maximum memory for entries; the least recently used are evicted first.
        max_entry_bytes: Largest answer that is stored.
        static_ttl_s: How long answers of the static class live.
        dynamic_ttl_s: How long answers of the dynamic class live.
        labels: File of labelled near hits to begin with, as `evenkeel cache calibrate` writes it,
            relative to this file; instead of the one in the data folder.
        audit_log: File that logs each change to what is served and each deletion, relative to the
            data folder.
        shows_texts: Whether the list of near misses shows questions.
        user_words: Additional words that after "my" make a question about its asker.
        routes: The policies; without any, every route is in shadow.
    """

    enabled: bool = True
    backend: Annotated[str, Field(pattern="^(memory|redis|qdrant)$")] = "memory"
    redis_url: SecretStr | None = None
    redis_prefix: str = Field(default="evenkeel:cache", pattern=r"^[\w:.-]+$")
    redis_timeout_s: float = Field(default=0.25, ge=0.01, le=10)
    qdrant_url: str | None = None
    qdrant_api_key: SecretStr | None = None
    qdrant_collection: str = Field(default="evenkeel-cache", pattern=r"^[\w.-]+$", max_length=200)
    qdrant_timeout_s: float = Field(default=0.25, ge=0.01, le=10)
    embedding_timeout_s: float = Field(default=0.05, ge=0.001, le=10)
    max_bytes: int = Field(default=256 * 1024 * 1024, ge=4096)
    max_entry_bytes: int = Field(default=256 * 1024, ge=1024)
    static_ttl_s: float = Field(default=24 * 3600, gt=0, le=24 * 3600)
    dynamic_ttl_s: float = Field(default=600, ge=300, le=900)
    labels: Path | None = None
    audit_log: Path = Path("cache-audit.jsonl")
    shows_texts: bool = False
    user_words: tuple[str, ...] = ()
    routes: tuple[RoutePolicy, ...] = ()

    @model_validator(mode="after")
    def _is_complete(self) -> CachePolicy:
        if (self.backend == "redis") != (self.redis_url is not None):
            raise ValueError('redis_url and backend = "redis" must be set together')
        if (self.backend == "qdrant") != (self.qdrant_url is not None):
            raise ValueError('qdrant_url and backend = "qdrant" must be set together')
        names = [policy.route for policy in self.routes]
        if len(names) != len(set(names)):
            raise ValueError("several policies have the same route")
        return self

    def find_route(self, route: str | None) -> RoutePolicy:
        """Return the policy of a route; falls back to `*`, then to the defaults.

        An evaluation asks the model, so the rest of the routes does not include its own.
        """
        by_name = {policy.route: policy for policy in self.routes}
        if route == ROUTE_EVAL and route not in by_name:
            return RoutePolicy(route=route, mode=HitMode.OFF)
        found = by_name.get(route or OTHER_ROUTES) or by_name.get(OTHER_ROUTES) or RoutePolicy()
        return found if self.enabled else found.model_copy(update={"mode": HitMode.OFF})

    @property
    def needs_embeddings(self) -> bool:
        """Whether any route compares meanings."""
        policies = self.routes or (RoutePolicy(),)
        has_rest = any(policy.route == OTHER_ROUTES for policy in policies)
        return not has_rest or any(p.semantic and p.mode is not HitMode.OFF for p in policies)


def read_policy(path: Path) -> CachePolicy:
    """Read the cache's TOML file.

    Raises:
        ConfigurationError: If it cannot be read, or a key or value is invalid.
    """
    return read_toml_file(path, CachePolicy, secrets=SECRET_KEYS)
