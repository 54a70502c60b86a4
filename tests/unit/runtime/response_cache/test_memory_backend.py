"""Memory keeps within its bound, forgets what expired, and finds by tag: a state machine."""

import asyncio

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from evenkeel_runtime.response_cache.memory_backend import OVERHEAD_BYTES, MemoryBackend

BOUND = 5 * OVERHEAD_BYTES
IDS = st.sampled_from("abcdefgh")


class Memory(RuleBasedStateMachine):
    """Against a plain model that keeps a list in the order of use."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.backend = MemoryBackend(BOUND, lambda: self.now_s)
        self.kept: dict[str, tuple[bytes, float, str]] = {}

    def size(self) -> int:
        return sum(len(data) + OVERHEAD_BYTES for data, _, _ in self.kept.values())

    @rule(name=IDS, length=st.integers(0, 2 * OVERHEAD_BYTES), ttl=st.integers(1, 9), tag=IDS)
    def write(self, name: str, length: int, ttl: int, tag: str) -> None:
        evicted = asyncio.run(self.backend.write(name, b"x" * length, ttl, [tag]))
        self.kept.pop(name, None)
        self.kept[name] = (b"x" * length, self.now_s + ttl, tag)
        expected = []
        while self.size() > BOUND:
            oldest = next(iter(self.kept))
            del self.kept[oldest]
            expected.append(oldest)
        assert list(evicted) == expected

    @rule(name=IDS)
    def read(self, name: str) -> None:
        (found,) = asyncio.run(self.backend.read([name]))
        kept = self.kept.pop(name, None)
        if kept is None or kept[1] <= self.now_s:
            assert found is None
        else:
            assert found == kept[0]
            self.kept[name] = kept

    @rule(seconds=st.integers(1, 5))
    def wait(self, seconds: int) -> None:
        self.now_s += seconds

    @rule(tag=IDS)
    def delete_tagged(self, tag: str) -> None:
        ids = asyncio.run(self.backend.find_tagged(tag))
        expected = sorted(name for name, kept in self.kept.items() if kept[2] == tag)
        assert ids == expected
        assert asyncio.run(self.backend.delete([*ids, "unknown"])) == len(expected)
        for name in ids:
            del self.kept[name]

    @invariant()
    def is_measured(self) -> None:
        size = asyncio.run(self.backend.measure())
        assert (size.entries, size.bytes) == (len(self.kept), self.size())
        assert size.bytes <= BOUND


TestMemory = Memory.TestCase
