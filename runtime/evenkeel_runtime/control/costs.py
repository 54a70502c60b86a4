"""What a request costs the engine, once vLLM has rendered its prompt: its size and its limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from evenkeel_runtime.control.config import ControlConfig, Limits
from evenkeel_runtime.control.kv_shares import Claim, KvShares, Owner, Share
from evenkeel_runtime.control.prefixes import KvCache, PrefixMemory
from evenkeel_runtime.wire.caller import Caller

OTHER_ROUTES = "*"
# Of a body whose prompt is not rendered yet.
BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """A prompt as vLLM has rendered it, and what the client asks for.

    Attributes:
        tokens: The prompt.
        salt: What keeps it apart from other prompts in the prefix cache.
        max_tokens: Longest answer; None if the client sets no limit.
        num_answers: Answers to it.
    """

    tokens: Sequence[int]
    salt: str = ""
    max_tokens: int | None = None
    num_answers: int = 1


@dataclass(slots=True)
class PromptCost:
    """The prompts of a request, and what they may use.

    Attributes:
        tokens: Prompt tokens.
        cached: Of these, probably in the engine's prefix cache.
        hashes: Its blocks.
        max_tokens: Longest answer (of all: all answers together); None if there is no limit.
        num_answers: Answers, each a sequence of its own in the engine.
        draft_tokens: Longest draft; None if there is no limit.
        excess: The context limit that the prompt exceeds; None if it fits.
    """

    tokens: int
    cached: int
    hashes: Sequence[int] = ()
    max_tokens: int | None = None
    num_answers: int = 1
    draft_tokens: int | None = None
    excess: int | None = None

    @property
    def uncached(self) -> int:
        """Prompt tokens that the engine probably has to compute."""
        return self.tokens - self.cached

    def of_all_answers(self) -> PromptCost:
        """Return the cost with the longest answer times their number."""
        longest = None if self.max_tokens is None else self.max_tokens * self.num_answers
        return replace(self, max_tokens=longest)

    def include(self, other: PromptCost) -> None:
        """Add another prompt of the same request; both are the cost of all their answers."""
        self.num_answers += other.num_answers
        self.tokens += other.tokens
        self.cached += other.cached
        self.hashes = [*self.hashes, *other.hashes]
        if self.max_tokens is None or other.max_tokens is None:
            self.max_tokens = None
        else:
            self.max_tokens += other.max_tokens


@dataclass(slots=True)
class CostCounts:
    """Counters of prompts; each only grows.

    Attributes:
        prompt_tokens: Tokens of the prompts that the engine answered: `total`, `cached` as the
            engine reported, and `estimated_cached`.
    """

    prompt_tokens: Counter[str] = field(default_factory=Counter)


class Costs:
    """Sizes prompts and applies the limits of the control file.

    Args:
        config: The control configuration.
        cache: The engine's KV cache.
    """

    def __init__(self, config: ControlConfig, cache: KvCache) -> None:
        self.config = config
        self.cache = cache
        self.counts = CostCounts()
        self.shares = KvShares()
        self._prefixes = PrefixMemory(cache)

    def measure(self, owners: Sequence[Owner], prompt: RenderedPrompt) -> PromptCost:
        """Return what a prompt costs and each answer to it may use.

        Args:
            owners: The request's tenant, session and route.
            prompt: The prompt.
        """
        size, max_tokens = len(prompt.tokens), prompt.max_tokens
        hashes = self._prefixes.hash_blocks(prompt.tokens, prompt.salt)
        cached = self._prefixes.count_cached(hashes, size)
        cost = PromptCost(size, cached, hashes, max_tokens, prompt.num_answers)
        limits = [self.find_limits(owner) for owner in owners]
        contexts = [each.context_tokens for each in limits if each.context_tokens is not None]
        if contexts:
            room = min(contexts) - size
            if room < 1:
                cost.excess = min(contexts)
            else:
                cost.max_tokens = room if max_tokens is None else min(room, max_tokens)
        drafts = [each.draft_tokens for each in limits if each.draft_tokens is not None]
        cost.draft_tokens = min(drafts, default=None)
        return cost

    def find_owners(self, caller: Caller) -> tuple[Owner, ...]:
        """Return the tenant, session and route whose limits apply to a caller's requests."""
        tenant, route = caller.tenant or "", caller.route or OTHER_ROUTES
        owners = [("tenant", tenant)]
        if caller.session_id is not None:
            # Two tenants may use the same name.
            owners.append(("session", f"{tenant}\0{caller.session_id}"))
        # Clients choose the names of routes: those without limits of their own count together.
        owners.append(("route", route if route in self.config.routes else OTHER_ROUTES))
        return tuple(owners)

    def find_limits(self, owner: Owner) -> Limits:
        """Return the limits of a tenant, session or route."""
        kind, name = owner
        config = self.config
        if kind == "tenant":
            return config.tenants.get(name, config.tenant)
        if kind == "session":
            return config.session
        return config.routes.get(name) or Limits()

    def claim(self, owners: Sequence[Owner], cost: PromptCost, due_s: float) -> Claim | None:
        """Claim KV cache for a request; None if no limit applies or the cache's size is unknown."""
        shares = self._find_shares(owners)
        if not shares:
            return None
        answer = self.shares.expect_answer(shares) * cost.num_answers
        if cost.max_tokens is not None:
            answer = min(answer, cost.max_tokens)
        tokens = self.cache.round_up(max(1, cost.tokens + int(answer)))
        return self.shares.claim(shares, tokens, due_s)

    def change_shares(self, *, acts: bool) -> None:
        """Apply changed shares to the requests that wait; without control, none wait."""
        self.shares.change(self._find_shares if acts else lambda _: [])

    def _find_shares(self, owners: Sequence[Owner]) -> list[Share]:
        total = self.cache.num_tokens
        return [
            Share(owner, share * total)
            for owner in owners
            if total and (share := self.find_limits(owner).kv_share) is not None
        ]

    def record_end(self, cost: PromptCost, cached: int | None) -> None:
        """Remember the prompt of a request that the engine has answered.

        Args:
            cost: What it cost.
            cached: Prompt tokens that the engine found in its cache; None if unknown.
        """
        self._prefixes.add(cost.hashes)
        if cached is not None:
            counter = self.counts.prompt_tokens
            counter["total"] += cost.tokens
            counter["cached"] += cached
            counter["estimated_cached"] += cost.cached
