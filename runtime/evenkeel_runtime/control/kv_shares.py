"""Keep each tenant, session and route within its share of the KV cache.

A request holds what it probably needs: its prompt, which is known, and its answer, which is
estimated by the owner's recent answers. Blocks that several requests share count for each of them.
"""

from __future__ import annotations

import asyncio
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
    """What each owner holds, and the requests that wait until theirs holds less."""

    def __init__(self) -> None:
        self._held: dict[Owner, int] = {}
        self._inside: set[int] = set()
        self._waiting: list[Claim] = []
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
        if len(self._waiting) <= MAX_WAITING or claim not in self._waiting:
            return False
        return any(
            sum(owner in other.waits_for for other in self._waiting) > MAX_WAITING
            for owner in claim.waits_for
        )

    def expect_answer(self, shares: Sequence[Share]) -> float:
        """Return the length of the owners' recent answers, in tokens."""
        known = [self._answers[s.owner] for s in shares if s.owner in self._answers]
        return max(known, default=_FIRST_ANSWER_TOKENS)

    def fits(self, shares: Sequence[Share], tokens: int) -> bool:
        """Whether the owners may hold this much more; an owner that holds nothing always may."""
        return all(
            not (held := self._held.get(share.owner, 0)) or held + tokens <= share.max_tokens
            for share in shares
        )

    def claim(self, shares: Sequence[Share], tokens: int, due_s: float) -> Claim:
        """Return a claim that is let in at once, or when its owners hold less."""
        let_in: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # A claim to nothing would never exceed a share.
        claim = Claim(due_s, next(self._numbers), shares, max(1, tokens), let_in)
        self._waiting.append(claim)
        self._let_in()
        return claim

    def change(self, find_shares: Callable[[Sequence[Owner]], Sequence[Share]]) -> None:
        """Apply changed shares to the claims that wait; an owner without a share has no limit."""
        for claim in self._waiting:
            claim.shares = find_shares([share.owner for share in claim.shares])
        self._let_in()

    def leave(self, claim: Claim, answer_tokens: float | None) -> None:
        """Give up what a request holds or waits for; learn from the length of its answer."""
        if claim in self._waiting:
            self._waiting.remove(claim)
        elif claim.number in self._inside:
            self._inside.remove(claim.number)
            for share in claim.shares:
                left = self._held.pop(share.owner, 0) - claim.tokens
                if left > 0:
                    self._held[share.owner] = left
                if answer_tokens is not None:
                    self._learn(share.owner, max(0.0, answer_tokens))
        self._let_in()

    def _learn(self, owner: Owner, tokens: float) -> None:
        before = self._answers.pop(owner, tokens)
        self._answers[owner] = before + _NEWEST * (tokens - before)
        while len(self._answers) > _MAX_OWNERS:
            self._answers.popitem(last=False)

    def _let_in(self) -> None:
        """Let in what fits, the earliest deadline of each owner first."""
        blocked: set[Owner] = set()
        for claim in sorted(self._waiting):
            owners = [share.owner for share in claim.shares]
            full = [s.owner for s in claim.shares if not self.fits((s,), claim.tokens)]
            claim.waits_for = [o for o in owners if o in full or o in blocked]
            if not claim.waits_for:
                self._waiting.remove(claim)
                self._inside.add(claim.number)
                for owner in owners:
                    self._held[owner] = self._held.get(owner, 0) + claim.tokens
                if not claim.let_in.done():
                    claim.let_in.set_result(None)
            else:
                # Its other owners have room, and others' requests may use it.
                blocked.update(full)
