"""Keep each tenant, session and route within its share of the KV cache.

A request holds what it probably needs: its prompt, which is known, and its answer, which is
estimated by the owner's recent answers. Blocks that several requests share count for each of them.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

# The length of an owner's first answer is unknown.
_FIRST_ANSWER_TOKENS = 256.0
# Weight of the newest answer in the mean.
_NEWEST = 0.1
_MAX_OWNERS = 10_000
MAX_WAITING = 512

Owner = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Share:
    """The tokens of KV cache that an owner may hold."""

    owner: Owner
    max_tokens: float


@dataclass(order=True, slots=True)
class Claim:
    """What one request holds, or waits for.

    Attributes:
        due_s: Its deadline; earlier ones of an owner go first.
        shares: The shares it counts in.
        tokens: What it holds, at least one.
        let_in: Done when it holds it.
        waits_for: The owners that hold too much for it, or that an earlier one waits for.
    """

    due_s: float
    number: int
    shares: Sequence[Share] = field(compare=False)
    tokens: int = field(compare=False)
    let_in: asyncio.Future[None] = field(compare=False)
    waits_for: Sequence[Owner] = field(compare=False, default=())


class KvShares:
    """What each owner holds, and the requests that wait until theirs holds less.

    The first of those that wait for an owner does not fit into its share, and later ones wait
    behind it. So if an owner's requests hold less, only the front of its own queue is looked at.
    """

    def __init__(self) -> None:
        self._held: dict[Owner, int] = {}
        self._inside: set[int] = set()
        self._waiting: dict[int, Claim] = {}
        # Those that wait for each owner, the earliest deadline first.
        self._queues: dict[Owner, list[Claim]] = {}
        self._answers: OrderedDict[Owner, float] = OrderedDict()
        self._numbers = count()

    def held(self) -> dict[Owner, int]:
        """Return the tokens that each owner holds."""
        return dict(self._held)

    def count_waiting(self) -> int:
        """Return how many requests wait for a share."""
        return len(self._waiting)

    def is_crowded(self, claim: Claim) -> bool:
        """Whether more claims than allowed wait for the same owner as this one."""
        return any(len(self._queues[owner]) > MAX_WAITING for owner in claim.waits_for)

    def expect_answer(self, shares: Sequence[Share]) -> float:
        """Return the length of the owners' recent answers, in tokens."""
        known = [self._answers[s.owner] for s in shares if s.owner in self._answers]
        return max(known, default=_FIRST_ANSWER_TOKENS)

    def fits(self, share: Share, tokens: int) -> bool:
        """Whether an owner may hold this much more; one that holds nothing always may."""
        held = self._held.get(share.owner, 0)
        return not held or held + tokens <= share.max_tokens

    def claim(self, shares: Sequence[Share], tokens: int, due_s: float) -> Claim:
        """Return a claim that is let in at once, or when its owners hold less."""
        let_in: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A claim to nothing would never exceed a share.
        claim = Claim(due_s, next(self._numbers), shares, max(1, tokens), let_in)
        self._waiting[claim.number] = claim
        self._let_in(claim)
        return claim

    def change(self, find_shares: Callable[[Sequence[Owner]], Sequence[Share]]) -> None:
        """Apply changed shares to the claims that wait; an owner without a share has no limit."""
        self._queues.clear()
        for claim in sorted(self._waiting.values()):
            claim.shares = find_shares([share.owner for share in claim.shares])
            self._let_in(claim)

    def leave(self, claim: Claim, answer_tokens: float | None) -> None:
        """Give up what a request holds or waits for; learn from the length of its answer."""
        owners = [share.owner for share in claim.shares]
        if self._waiting.pop(claim.number, None) is not None:
            owners = [owner for owner in claim.waits_for if self._leave_queue(claim, owner)]
        elif claim.number in self._inside:
            self._inside.remove(claim.number)
            for owner in owners:
                left = self._held.pop(owner, 0) - claim.tokens
                if left > 0:
                    self._held[owner] = left
                if answer_tokens is not None:
                    self._learn(owner, max(0.0, answer_tokens))
        self._advance(owners)

    def _learn(self, owner: Owner, tokens: float) -> None:
        before = self._answers.pop(owner, tokens)
        self._answers[owner] = before + _NEWEST * (tokens - before)
        while len(self._answers) > _MAX_OWNERS:
            self._answers.popitem(last=False)

    def _let_in(self, claim: Claim) -> None:
        """Let a claim in if it fits, or have it wait for the owners that keep it out."""
        claim.waits_for = [s.owner for s in claim.shares if self._keeps_out(s, claim)]
        for owner in claim.waits_for:
            insort(self._queues.setdefault(owner, []), claim)
        if claim.waits_for:
            return
        del self._waiting[claim.number]
        self._inside.add(claim.number)
        for share in claim.shares:
            self._held[share.owner] = self._held.get(share.owner, 0) + claim.tokens
        if not claim.let_in.done():
            claim.let_in.set_result(None)

    def _keeps_out(self, share: Share, claim: Claim) -> bool:
        queue = self._queues.get(share.owner)
        return bool(queue and queue[0] < claim) or not self.fits(share, claim.tokens)

    def _advance(self, owners: Sequence[Owner]) -> None:
        """Let in those at the front of these owners' queues, the earliest deadline first."""
        while fronts := [front for owner in owners if (front := self._find_front(owner))]:
            claim, owner = min(fronts)
            self._leave_queue(claim, owner)
            claim.waits_for = [other for other in claim.waits_for if other != owner]
            # Else its other owners keep it out, and others' requests may use the room of this one.
            if not claim.waits_for:
                self._let_in(claim)

    def _find_front(self, owner: Owner) -> tuple[Claim, Owner] | None:
        """Return the first that waits for an owner if it need not any more."""
        queue = self._queues.get(owner)
        if not queue:
            return None
        share = next(share for share in queue[0].shares if share.owner == owner)
        return (queue[0], owner) if self.fits(share, queue[0].tokens) else None

    def _leave_queue(self, claim: Claim, owner: Owner) -> bool:
        """Take a claim out of an owner's queue; return whether others wait there."""
        queue = self._queues[owner]
        del queue[bisect_left(queue, claim)]
        if not queue:
            del self._queues[owner]
        return bool(queue)
