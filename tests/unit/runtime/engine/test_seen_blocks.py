from evenkeel_runtime.engine.seen_blocks import Eviction, SeenBlocks


def test_leading_blocks_are_counted_up_to_the_first_unknown() -> None:
    seen = SeenBlocks(10)
    seen.add([b"a", b"b", b"d"])
    assert seen.count_leading([b"a", b"b", b"c", b"d"]) == 2
    assert seen.count_leading([b"c", b"a"]) == 0
    assert seen.count_leading([b"a", b"b"]) == 2


def test_the_block_not_met_for_longest_is_forgotten_first() -> None:
    seen = SeenBlocks(2)
    seen.add([b"a", b"b"])
    seen.add([b"a"])
    seen.add([b"c"])
    assert len(seen) == 2
    assert [seen.count_leading([block]) for block in (b"a", b"b", b"c")] == [1, 0, 1]


def test_a_memory_of_nothing_counts_nothing() -> None:
    seen = SeenBlocks(0)
    seen.add([b"a"])
    assert seen.count_leading([b"a"]) == 0


def test_an_eviction_is_remembered_until_the_block_is_computed_again() -> None:
    seen = SeenBlocks(10)
    seen.add([b"a", b"b"])
    seen.record_eviction(b"b", Eviction(5, by=7))
    seen.record_eviction(b"never met", Eviction(5, by=7))
    assert seen.count_leading([b"a", b"b"]) == 2
    assert seen.find_eviction(b"a") is None
    assert seen.find_eviction(b"b") == Eviction(5, 7)
    assert seen.find_eviction(b"never met") is None
    seen.add([b"b"])
    assert seen.find_eviction(b"b") is None
