"""The estimate of what the prefix cache holds: whole blocks, its size, and what keeps it apart."""

import pytest

from evenkeel_runtime.control.prefixes import KvCache, PrefixMemory

SMALL = KvCache(num_blocks=8, block_tokens=4)


def count(memory: PrefixMemory, tokens: range, salt: str = "") -> int:
    return memory.count_cached(memory.hash_blocks(tokens, salt), len(tokens))


@pytest.mark.parametrize(
    ("known", "asked", "cached"),
    [
        pytest.param(range(10), range(10), 8, id="full blocks only"),
        pytest.param(range(12), range(12), 8, id="never the last token"),
        pytest.param(range(12), range(13), 12, id="a longer one finds all of the shorter"),
        pytest.param(range(12), range(100, 112), 0, id="another prompt"),
        pytest.param(range(3), range(3), 0, id="less than a block"),
    ],
)
def test_a_prompt_finds_the_leading_blocks_of_earlier_ones(
    known: range, asked: range, cached: int
) -> None:
    memory = PrefixMemory(SMALL)
    assert count(memory, asked) == 0
    memory.add(memory.hash_blocks(known, ""))
    assert count(memory, asked) == cached
    assert count(memory, asked, "salt") == 0


def test_the_oldest_blocks_go_first_and_of_a_prompt_the_last() -> None:
    memory = PrefixMemory(SMALL)
    for tokens in (range(16), range(100, 116)):
        memory.add(memory.hash_blocks(tokens, ""))
    assert (count(memory, range(17)), count(memory, range(100, 117))) == (16, 16)
    memory.add(memory.hash_blocks(range(16), ""))
    memory.add(memory.hash_blocks(range(200, 208), ""))
    # Of the one used longest ago the end has gone.
    assert (count(memory, range(17)), count(memory, range(100, 117))) == (16, 8)


def test_nothing_is_cached_without_a_prefix_cache_or_where_its_size_is_unknown() -> None:
    for cache in (KvCache(8, 4, has_prefixes=False), KvCache(0, 4)):
        memory = PrefixMemory(cache)
        memory.add(memory.hash_blocks(range(16), ""))
        assert count(memory, range(16)) == 0
