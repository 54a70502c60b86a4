"""Share a step's token budget among the drafts of its requests."""

from __future__ import annotations

from collections.abc import Sequence


def share_room(lengths: Sequence[int], room: int) -> list[int]:
    """Return the lengths cut so that they fit into `room` tokens together, the longest first.

    vLLM gives out a step's budget in the order of its requests: without this, a few long drafts
    would leave the later requests and new prompts without a token in the step.
    """
    if sum(lengths) <= room:
        return list(lengths)
    left, cap = max(room, 0), 0
    shorter = sorted(lengths)
    for place, length in enumerate(shorter):
        cap = left // (len(shorter) - place)
        if length > cap:
            break
        left -= length
    return [min(length, cap) for length in lengths]
