"""The cache's file: defaults, and a clear line for each mistake."""

from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_runtime.response_cache.settings_file import (
    CachePolicy,
    HitMode,
    RoutePolicy,
    read_policy,
)

WRONG = {
    "no TOML": ("mode = ", "is not TOML"),
    "unknown key": ("maxbytes = 3", "maxbytes is not a known key"),
    "unknown mode": ('[[routes]]\nmode = "on"', "routes.0.mode"),
    "limit of 1": ("[[routes]]\nwrong_hit_limit = 1.0", "routes.0.wrong_hit_limit"),
    "ladder that falls": ("[[routes]]\nsimilarities = [0.9, 0.8]", "must be in ascending order"),
    "draft above the ladder": ("[[routes]]\ndraft_similarity = 0.99", "must not exceed"),
    "dynamic answers for an hour": ("dynamic_ttl_s = 3600", "dynamic_ttl_s"),
    "static answers for a week": ("static_ttl_s = 604800", "static_ttl_s"),
    "Redis without address": ('backend = "redis"', "must be set together"),
    "address without Redis": ('redis_url = "redis://x"', "must be set together"),
    "Qdrant without address": ('backend = "qdrant"', "must be set together"),
    "address without Qdrant": ('qdrant_url = "http://x"', "must be set together"),
    "a source without a version": ("[[routes]]\nknowledge = { docs = '' }", "knowledge.docs"),
    "a source with a comma": ("[[routes]]\nknowledge = { 'a,b' = '1' }", "knowledge"),
    "one route twice": ('[[routes]]\nroute = "a"\n[[routes]]\nroute = "a"', "same route"),
    "unknown backend": ('backend = "disk"', "backend"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_one_clear_line(case: str, tmp_path: Path) -> None:
    text, said = WRONG[case]
    path = tmp_path / "cache.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_policy(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_policy(tmp_path / "none.toml")


def test_the_password_of_redis_is_never_said(tmp_path: Path) -> None:
    path = tmp_path / "cache.toml"
    path.write_text('backend = "redis"\nredis_url = ["redis://:secret@host"]')
    with pytest.raises(ConfigurationError) as caught:
        read_policy(path)
    assert "secret" not in str(caught.value)
    path.write_text('backend = "memory"\nredis_url = "redis://:secret@host"')
    with pytest.raises(ConfigurationError) as caught:
        read_policy(path)
    assert "secret" not in str(caught.value)


def test_a_file_without_keys_watches_every_route(tmp_path: Path) -> None:
    path = tmp_path / "cache.toml"
    path.write_text("# All by default.\n")
    policy = read_policy(path)
    assert policy.find_route(None).mode is HitMode.SHADOW
    assert policy.find_route("faq").mode is HitMode.SHADOW
    assert policy.needs_embeddings


@pytest.mark.parametrize("rest", [(), (RoutePolicy(mode=HitMode.SERVE),)])
def test_evaluations_ask_the_model_unless_the_file_names_their_route(
    rest: tuple[RoutePolicy, ...],
) -> None:
    assert CachePolicy(routes=rest).find_route("eval").mode is HitMode.OFF
    named = CachePolicy(routes=(*rest, RoutePolicy(route="eval", mode=HitMode.DRAFT)))
    assert named.find_route("eval").mode is HitMode.DRAFT


def test_a_routes_own_policy_comes_before_the_rest() -> None:
    policy = CachePolicy(
        routes=(RoutePolicy(route="faq", mode=HitMode.SERVE), RoutePolicy(mode=HitMode.OFF))
    )
    assert policy.find_route("faq").mode is HitMode.SERVE
    assert policy.find_route("chat").mode is HitMode.OFF
    assert policy.find_route(None).mode is HitMode.OFF


def test_no_encoder_is_needed_where_no_route_compares_meanings() -> None:
    exact = RoutePolicy(route="faq", mode=HitMode.SERVE, semantic=False)
    assert not CachePolicy(routes=(exact, RoutePolicy(mode=HitMode.OFF))).needs_embeddings
    # Without a policy for the rest, the rest is in shadow.
    assert CachePolicy(routes=(exact,)).needs_embeddings
