"""The order of a run: which item comes next, and which side goes first."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.errors import ConfigurationError
from evenkeel_evals.dataset.dataset import Item


@dataclass(frozen=True, slots=True)
class PlannedPair:
    """One item to ask on both sides, back to back.

    Attributes:
        index: Place in the run.
        item: The item to ask.
        first: The side that goes first, "A" or "B".
        repeat: Index of the item's repeat, from 0.
    """

    index: int
    item: Item
    first: str
    repeat: int = 0

    @property
    def order(self) -> tuple[str, str]:
        """Return both sides in the order they are asked."""
        return ("A", "B") if self.first == "A" else ("B", "A")


def interleave(
    items: Sequence[Item], seed: int, num_repeats: int = 1, *, keeps_clusters: bool = False
) -> list[PlannedPair]:
    """Shuffle the items and order the sides as ABBA or BAAB, in blocks of two pairs.

    Each side goes first equally often, and a machine that slows down slows both. Running all of A
    and then all of B calls 21-51% of unchanged candidates slower; this order 3.5-6.4%
    (docs/guide/evals.md).

    Args:
        items: The items to ask.
        seed: Seed for the order.
        num_repeats: Times each item is asked; repeats are shuffled among the other items.
        keeps_clusters: Whether to ask the items of a cluster consecutively, as anytime runs need,
            which bet on clusters as they complete.

    Raises:
        ConfigurationError: If `num_repeats` is below 1.
    """
    if num_repeats < 1:
        raise ConfigurationError(f"--repeats is {num_repeats}, expected at least 1")
    generator = random.Random(seed)
    shuffled = [(item, repeat) for repeat in range(num_repeats) for item in items]
    generator.shuffle(shuffled)
    if keeps_clusters:
        place: dict[str, int] = {}
        for item, _ in shuffled:
            place.setdefault(item.cluster_id, len(place))
        shuffled.sort(key=lambda asked: place[asked[0].cluster_id])
    pairs: list[PlannedPair] = []
    first = "A"
    for index, (item, repeat) in enumerate(shuffled):
        first = generator.choice("AB") if index % 2 == 0 else ("B" if first == "A" else "A")
        pairs.append(PlannedPair(index, item, first, repeat))
    return pairs


def spread(items: Sequence[Item], limit: int | None) -> Sequence[Item]:
    """Return `limit` items spread evenly over the file, so that every slice keeps its share.

    Raises:
        ConfigurationError: If `limit` is below 1.
    """
    if limit is None or limit >= len(items):
        return items
    if limit < 1:
        raise ConfigurationError(f"--limit is {limit}, expected at least 1")
    return tuple(items[(i * len(items)) // limit] for i in range(limit))
