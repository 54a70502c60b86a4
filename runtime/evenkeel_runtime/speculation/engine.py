"""Choose the drafts of each engine step and learn from the results; independent of vLLM.

There is one `Speculation` per engine. `evenkeel_runtime.adapter.speculative_scheduler` calls it in
the engine's loop: once per step with the decoding requests, when a draft is scheduled and when it
is verified, and when a request ends.

Under asynchronous scheduling the next step is drafted while one is still running. The output of the
running step is predicted from the same proposal: the tokens of its draft that the proposal agrees
with, plus one. The next draft starts after them. If the prediction is wrong, the draft is rejected
like any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic_ns
from typing import Any, Protocol

from evenkeel_runtime.speculation.acceptance import OwnRecord
from evenkeel_runtime.speculation.cached_draft import read_handed
from evenkeel_runtime.speculation.controller import (
    GoodputController,
    Offer,
    StepFacts,
)
from evenkeel_runtime.speculation.draft_store import DraftStore
from evenkeel_runtime.speculation.draftable import is_sampled, may_be_drafted
from evenkeel_runtime.speculation.sampled_watch import LOG_LIMIT
from evenkeel_runtime.speculation.sources import (
    Draft,
    DraftSource,
    Trail,
    propose,
    propose_handed,
)
from evenkeel_runtime.wire.drafts import SPECULATE_KEY, TENANT_KEY, DraftCounts

# A request whose draft did not pay off is tried again after 1, 2, 4, … steps, up to this many, and
# up to the number of requests: so that many together cost little more than one.
_MAX_WAIT_STEPS = 16
_ANY_ROOM = 1 << 30


class VllmRequest(Protocol):
    """The parts of vLLM's request that are read here (vllm/v1/request.py)."""

    request_id: str
    num_prompt_tokens: int
    max_tokens: int
    cache_salt: str | None
    sampling_params: Any
    num_output_placeholders: int

    @property
    def all_token_ids(self) -> Sequence[int]:
        """Prompt and answer so far."""
        ...


@dataclass(slots=True)
class _Followed:
    """A decoding request, the draft chosen for its next step, and the drafts being verified."""

    trail: Trail
    may_draft: bool
    is_sampled: bool
    own: OwnRecord = field(default_factory=OwnRecord)
    counts: dict[DraftSource, DraftCounts] = field(default_factory=dict)
    chosen: Offer | None = None
    under_way: deque[tuple[Offer, list[int]]] = field(default_factory=deque)
    next_try_step: int = 0
    wait_steps: int = 0


class Speculation:
    """Drafts tokens for one engine; call it only from the engine's loop.

    Args:
        store: Past answers.
        controller: Decides the draft lengths.
        vocabulary: Size of the model's vocabulary.
        answer_tokens: Longest part of a cached or past answer to verify in a step.

    Attributes:
        drafting_ns: Time spent drafting and updating estimates.
        num_steps: Finished steps.
        draft_ratio: Fraction of the draft length that control allows; 0 drafts nothing.
        drafts_sampled: Whether sampled requests get drafts.
        totals: Drafted tokens, accepted tokens and verify steps so far, by source.
        watched_tokens: Sampled tokens that were checked against the model's distribution.
        log_evidence: Evidence that they do not follow it; see sampled_watch.py.
    """

    def __init__(
        self, store: DraftStore, controller: GoodputController, vocabulary: int, answer_tokens: int
    ) -> None:
        self.store = store
        self._answer_tokens = answer_tokens
        self._vocabulary = vocabulary
        self.controller = controller
        self.drafting_ns = 0
        self._followed: dict[str, _Followed] = {}
        self.num_steps = 0
        self.draft_ratio = 1.0
        self.drafts_sampled = True
        self.totals = {source.value: [0, 0, 0] for source in DraftSource}
        self.watched_tokens = 0
        self.log_evidence = 0.0
        self._last_end_ns: int | None = None

    def begin_step(self) -> None:
        """Start timing a step that follows an idle period."""
        if self._last_end_ns is None:
            self._last_end_ns = monotonic_ns()

    def record_scheduled(self, request_id: str, drafted: int) -> None:
        """Record that a step is scheduled with the first `drafted` tokens of a request's draft."""
        followed = self._followed.get(request_id)
        if followed is not None and followed.chosen is not None:
            offer, followed.chosen = followed.chosen, None
            followed.under_way.append((offer, offer.draft.tokens[:drafted]))

    def record_verified(self, request_id: str, verified: tuple[int, int] | None) -> None:
        """Record the result of a request's draft.

        Args:
            request_id: The request.
            verified: Its drafted and accepted tokens; None if its step produced nothing.
        """
        followed = self._followed.get(request_id)
        if followed is None or not followed.under_way:
            return
        offer, _ = followed.under_way.popleft()
        if verified is None:
            return
        self.controller.record_verified(offer, *verified)
        counts = followed.counts.get(offer.draft.source)
        if counts is None:
            counts = followed.counts[offer.draft.source] = DraftCounts()
        counts.add(*verified)
        total = self.totals[offer.draft.source.value]
        total[0] += verified[0]
        total[1] += verified[1]
        total[2] += 1

    def record_watch(self, num_tokens: int, log_evidence: float) -> bool:
        """Record the sampled-token check; return whether this result stops sampled drafts."""
        self.watched_tokens, self.log_evidence = num_tokens, log_evidence
        if log_evidence < LOG_LIMIT or not self.drafts_sampled:
            return False
        self.drafts_sampled = False
        return True

    def record_end(self, request: VllmRequest) -> Mapping[str, DraftCounts]:
        """Store the answer of a finished request, and return its draft results."""
        followed = self._followed.pop(request.request_id, None)
        if followed is None:
            return {}
        text, split = followed.trail.text, followed.trail.num_prompt_tokens
        self.store.add(followed.trail.owner, text[:split], text[split:])
        return {source.value: counts for source, counts in followed.counts.items()}

    def end_step(
        self,
        facts: StepFacts | None,
        decoding: Sequence[VllmRequest],
        goes_on: bool,
        room: int = _ANY_ROOM,
    ) -> dict[str, list[int]]:
        """Record the finished step and return the drafts of the next one, by request id.

        Args:
            facts: The step, without its duration; None if it cannot be compared with others.
            decoding: The requests that will decode in the next step.
            goes_on: Whether the engine continues without a pause.
            room: Tokens of the next step that drafts may take in all.
        """
        now_ns = monotonic_ns()
        if facts is not None and self._last_end_ns is not None:
            facts.seconds = (now_ns - self._last_end_ns) / 1e9
            self.controller.record_step(facts)
        self._last_end_ns = now_ns if goes_on else None
        self.num_steps += 1
        drafts = self._draft(decoding, room) if decoding else {}
        self.drafting_ns += monotonic_ns() - now_ns
        return drafts

    def draft_first(
        self, begun: Sequence[VllmRequest], num_requests: int, room: int
    ) -> dict[str, list[int]]:
        """Return the parts of cached answers to verify in the step that completes the prompts.

        Args:
            begun: Requests whose prompt the step completes.
            num_requests: All requests of the step.
            room: Tokens of the step that drafts may take in all.
        """
        began_ns = monotonic_ns()
        longest = int(self._answer_tokens * self.draft_ratio)
        offers: list[Offer] = []
        offered: list[tuple[VllmRequest, _Followed]] = []
        for request in begun:
            followed = self._follow(request)
            if not followed.trail.handed or not self._allows(followed):
                continue
            # The step produces one token more than it accepts, so the last token needs no draft.
            draft = propose_handed(followed.trail, min(longest, request.max_tokens - 1))
            if draft is not None:
                offers.append(Offer(draft, followed.own))
                offered.append((request, followed))
        drafts = {}
        if offers:
            lengths = share_room(self.controller.decide_first(num_requests, offers), room)
            drafts = self._choose(offered, offers, lengths, num_requests)
        self.drafting_ns += monotonic_ns() - began_ns
        return drafts

    def _draft(self, decoding: Sequence[VllmRequest], room: int) -> dict[str, list[int]]:
        begun = self.controller.begin(len(decoding))
        max_tokens = int(begun * self.draft_ratio)
        answer_tokens = int(self._answer_tokens * self.draft_ratio) if begun else 0
        if not max_tokens and not answer_tokens:
            return {}
        step, is_exploring = self.num_steps, self.controller.is_exploring()
        offers: list[Offer] = []
        offered: list[tuple[VllmRequest, _Followed]] = []
        for request in decoding:
            followed = self._follow(request)
            if not self._allows(followed):
                continue
            if step < followed.next_try_step and not is_exploring:
                continue
            draft = self._propose(request, followed, max_tokens, answer_tokens)
            if draft is None:
                self._wait(followed, len(decoding))
                continue
            offers.append(Offer(draft, followed.own))
            offered.append((request, followed))
        lengths = share_room(self.controller.decide(len(decoding), offers), room)
        return self._choose(offered, offers, lengths, len(decoding))

    def _choose(
        self,
        offered: Sequence[tuple[VllmRequest, _Followed]],
        offers: Sequence[Offer],
        lengths: Sequence[int],
        num_requests: int,
    ) -> dict[str, list[int]]:
        drafts = {}
        for (request, followed), offer, length in zip(offered, offers, lengths, strict=True):
            if length:
                followed.chosen = offer
                followed.next_try_step = followed.wait_steps = 0
                drafts[request.request_id] = offer.draft.tokens[:length]
            else:
                self._wait(followed, num_requests)
        return drafts

    def _follow(self, request: VllmRequest) -> _Followed:
        followed = self._followed.get(request.request_id)
        if followed is None:
            followed = self._followed[request.request_id] = _follow(request, self._vocabulary)
        return followed

    def _allows(self, followed: _Followed) -> bool:
        return followed.may_draft and (self.drafts_sampled or not followed.is_sampled)

    def _propose(
        self, request: VllmRequest, followed: _Followed, max_tokens: int, answer_tokens: int
    ) -> Draft | None:
        """Return the request's draft for the next step, after the output of the running one."""
        # A step produces one token more than it accepts, so the last token needs no draft.
        made = len(followed.trail.text) - request.num_prompt_tokens
        left = request.max_tokens - made - 1
        trail, ahead = followed.trail, []
        if not request.num_output_placeholders:
            found = propose(self.store, trail, min(max_tokens, left), min(answer_tokens, left))
            return self.controller.pick(found, followed.own)
        if followed.under_way:
            ahead = followed.under_way[-1][1]
        more = len(ahead) + 1
        found = propose(
            self.store, trail, min(max_tokens + more, left), min(answer_tokens + more, left)
        )
        draft = self.controller.pick(found, followed.own)
        if draft is None:
            return None
        skipped = _count_agreed(ahead, draft.tokens) + 1
        longest = max_tokens if draft.source is DraftSource.PROMPT else answer_tokens
        tokens = draft.tokens[skipped : skipped + longest]
        return replace(draft, tokens=tokens, run=draft.run + skipped) if tokens else None

    def _wait(self, followed: _Followed, num_requests: int) -> None:
        followed.chosen = None
        longest = min(num_requests, _MAX_WAIT_STEPS)
        followed.wait_steps = min(max(1, followed.wait_steps * 2), longest)
        followed.next_try_step = self.num_steps + followed.wait_steps


def _follow(request: VllmRequest, vocabulary: int) -> _Followed:
    extra = getattr(request.sampling_params, "extra_args", None) or {}
    owner = f"{request.cache_salt or ''}\n{extra.get(TENANT_KEY) or ''}"
    handed = read_handed(extra, vocabulary, request.max_tokens)
    trail = Trail(owner, request.all_token_ids, request.num_prompt_tokens, handed)
    # vLLM's `vllm_xargs` has no booleans: its `false` arrives as 0.
    is_refused = extra.get(SPECULATE_KEY) in (False, 0)
    may_draft = not is_refused and may_be_drafted(request.sampling_params)
    return _Followed(trail, may_draft, is_sampled(request.sampling_params))


def _count_agreed(one: Sequence[int], other: Sequence[int]) -> int:
    agreed = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        agreed += 1
    return agreed


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
