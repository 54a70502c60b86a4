"""Cached answers: keyed by everything an answer depends on, and never with latencies."""

from dataclasses import replace
from pathlib import Path

import pytest

from evenkeel_evals.ask.answer_cache import AnswerCache, CacheKey, RunCache
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.ask.sides import ServeConfig, Side
from evenkeel_evals.dataset.dataset import Item, Message
from evenkeel_evals.scorers.base import make_scorer

SIDE = Side("a", "http://h", "m", "p", "1", "Be brief.", {"temperature": 0.0})
ITEM = Item("i", (Message("user", "?"),), "x", make_scorer("exact", "x"), (), "c")
REPLY = Reply(1, 2, text="yes", ttft_s=0.1, e2e_s=0.2, tpot_s=0.1, output_tokens=2)


def run_cache(folder: Path, other: Side = SIDE) -> RunCache:
    sides, engines = {"A": SIDE, "B": other}, {"A": "0.32", "B": "0.32"}
    return RunCache(AnswerCache(folder), True, sides, engines, 2)


def test_a_kept_answer_comes_back_without_times(tmp_path: Path) -> None:
    cache = run_cache(tmp_path)
    key = cache.key("A", ITEM, 0)
    assert cache.cache.find(key, 9) is None
    cache.cache.keep(key, REPLY)
    found = cache.cache.find(key, 9)
    assert found is not None
    assert (found.text, found.output_tokens, found.is_cached) == ("yes", 2, True)
    assert (found.ttft_s, found.e2e_s, found.tpot_s) == (None, None, None)


def test_errors_are_not_kept_and_damage_is_no_answer(tmp_path: Path) -> None:
    cache = run_cache(tmp_path)
    key = cache.key("A", ITEM, 0)
    cache.cache.keep(key, Reply(1, 2, error="HTTP 500"))
    assert cache.cache.find(key, 9) is None
    cache.cache.keep(key, REPLY)
    next(tmp_path.rglob("*.json")).write_text("{")
    assert cache.cache.find(key, 9) is None


@pytest.mark.parametrize(
    ("changed", "is_same"),
    [
        (replace(SIDE, name="b", prompt_version="2"), True),
        (replace(SIDE, model="other"), False),
        (replace(SIDE, url="http://g"), False),
        (replace(SIDE, system="Be kind."), False),
        (replace(SIDE, sampling={"temperature": 1.0}), False),
        (replace(SIDE, serve=ServeConfig("m")), False),
    ],
    ids=["names", "model", "server", "prompt", "sampling", "served"],
)
def test_what_an_answer_depends_on(tmp_path: Path, changed: Side, is_same: bool) -> None:
    cache = run_cache(tmp_path, changed)
    first = cache.key("A", ITEM, 0)
    other = cache.key("B", ITEM, 0)
    assert first.digest != other.digest
    # The same side twice: B's calls are further repeats of the same request.
    assert (replace(other, repeat=0).digest == first.digest) is is_same
    assert other.repeat == (2 if is_same else 0)
    assert isinstance(first, CacheKey)


def test_repeats_and_engines_are_kept_apart(tmp_path: Path) -> None:
    cache = run_cache(tmp_path)
    digests = {cache.key("A", ITEM, r).digest for r in (0, 1)}
    digests.add(replace(cache.key("A", ITEM, 0), engine="0.33").digest)
    assert len(digests) == 3
