"""The rule by which a near hit may be served; nothing else decides it.

A near hit is served if all of this holds. Otherwise the model answers, with the hit as its draft.

1. The route's mode is `serve` (route_modes.py).
2. The evidence on hits of its class keeps the declared limit (hit_class.py, serve_control.py).
3. The wrong ones among the hits already served keep it, too (wrong_hits.py).
4. If it is drawn to be answered by the model as well, there is room for that (replays.py).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from evenkeel_runtime.response_cache.hit_class import KNOWN_WORDS, SAME_WORDS, NearHit
from evenkeel_runtime.response_cache.serve_control import Evidence, ServeControl
from evenkeel_runtime.response_cache.settings_file import HitMode, RoutePolicy


class ClassStatus(StrEnum):
    """What happens to the near hits of a class on a route with the mode `serve`."""

    SERVED = "served"
    LEARNING = "learning"
    VERIFIED = "verified"


def may_serve(
    policy: RoutePolicy,
    control: ServeControl,
    near: NearHit,
    random_share: Callable[[], float],
    queue_replay: Callable[[float], bool],
) -> bool:
    """Return whether a near hit is served now, and count it as served if so.

    Args:
        policy: The route's policy, with its current mode.
        control: The route's evidence.
        near: The near hit.
        random_share: Returns a random number in [0, 1), to draw what the model answers as well.
        queue_replay: Queues its replay, which was drawn with this probability; False without room.
    """
    if policy.mode is not HitMode.SERVE or not control.may_serve(near.hit_class):
        return False
    ratio = control.wrong_hits.replay_ratio
    if random_share() < ratio and not queue_replay(ratio):
        return False
    control.wrong_hits.record_served()
    return True


def is_promising(hit: NearHit, control: ServeControl) -> bool:
    """Return whether a hit is worth an embedding: it is served, or likely to be soon."""
    is_likely = hit.refused_by is None or hit.hit_class.kind in (SAME_WORDS, KNOWN_WORDS)
    is_candidate = is_likely and control.is_candidate(hit.hit_class)
    return is_candidate or control.may_serve(hit.hit_class)


def find_status(control: ServeControl, item: Evidence) -> ClassStatus:
    """Return what happens to the near hits of a class, by its evidence.

    `learning`: the verdicts so far keep the limit, but there are too few of them. `verified`: more
    of them were wrong than the limit allows, so that the model verifies each hit.
    """
    served = control.served.get(item.kind)
    if served is not None and item.similarity >= served.similarity and item.lead >= served.lead:
        return ClassStatus.SERVED
    is_within = item.wrong <= control.limit * item.seen
    return ClassStatus.LEARNING if is_within else ClassStatus.VERIFIED
