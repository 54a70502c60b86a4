"""The speculation hook without vLLM: choose a step's drafts, and learn from its outcome.

One object an engine, called in its loop: once a step with the requests that decode, once for each
draft that is scheduled and once when it is verified, once for each request that ends.
`evenkeel_runtime.adapter.speculative_scheduler` does the calling.

Under asynchronous scheduling a step is under way while the next is drafted. What it will make is
taken from the same proposal: as many of its own draft's tokens as the proposal still agrees with,
and one more; the next draft goes on behind them. Where that was wrong, the draft is refused like
any other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic_ns
from typing import Any, Protocol

from evenkeel_runtime.speculation.acceptance import OwnRecord
from evenkeel_runtime.speculation.controller import Controller, ControllerState, Offer, StepFacts
from evenkeel_runtime.speculation.draftable import is_sampled, may_be_drafted
from evenkeel_runtime.speculation.sampled_watch import LOG_LIMIT
from evenkeel_runtime.speculation.sources import (
    Draft,
    DraftSource,
    Trail,
    propose,
    read_handed_draft,
)
from evenkeel_runtime.speculation.store import DraftStore
from evenkeel_runtime.wire.drafts import SPECULATE_KEY, TENANT_KEY, DraftCounts

# A request without a draft worth taking is asked again after 1, 2, 4, … steps, at most this many.
_MAX_WAIT_STEPS = 16


class VllmRequest(Protocol):
    """What is read of vLLM's request (vllm/v1/request.py)."""

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
    """One request that decodes, the draft chosen for its next step, and those being verified."""

    trail: Trail
    may_draft: bool
    is_sampled: bool
    own: OwnRecord = field(default_factory=OwnRecord)
    counts: dict[DraftSource, DraftCounts] = field(default_factory=dict)
    chosen: Offer | None = None
    under_way: deque[tuple[Offer, list[int]]] = field(default_factory=deque)
    ask_at_step: int = 0
    wait_steps: int = 0


class Speculation:
    """Drafts for one engine; belongs to its loop's thread.

    Args:
        store: Past answers.
        controller: Decides on the lengths.
        vocabulary: Number of tokens the model knows.

    Attributes:
        drafting_ns: Time spent learning and drafting.
        num_steps: Steps that ended.
        draft_ratio: Share of a draft's length that control leaves; 0 drafts nothing.
        drafts_sampled: Whether sampled requests are drafted for.
        totals: Drafted and accepted tokens and verify steps so far, by source.
        watched_tokens: Sampled tokens whose place among the likely ones was looked at.
        log_evidence: Against their being drawn as the model says; see sampled_watch.py.
    """

    def __init__(self, store: DraftStore, controller: Controller, vocabulary: int) -> None:
        self.store = store
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
        """Note that the engine begins a step: after an idle time, a step's time starts here."""
        if self._last_end_ns is None:
            self._last_end_ns = monotonic_ns()

    def record_scheduled(self, request_id: str, drafted: int) -> None:
        """Record that a step goes out with so many tokens of what was drafted for a request."""
        followed = self._followed.get(request_id)
        if followed is not None and followed.chosen is not None:
            offer, followed.chosen = followed.chosen, None
            followed.under_way.append((offer, offer.draft.tokens[:drafted]))

    def record_verified(self, request_id: str, verified: tuple[int, int] | None) -> None:
        """Learn the outcome of a request's draft.

        Args:
            request_id: The request.
            verified: Its drafted and accepted tokens; None where its step came to nothing.
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
        """Process the sampled-token watch's result; return whether it stops their drafts now."""
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
        self, facts: StepFacts | None, decoding: Sequence[VllmRequest], goes_on: bool
    ) -> dict[str, list[int]]:
        """Learn from the step that ended, and return the drafts of the next, by request id.

        Args:
            facts: The step, its time still to be filled in; None where nothing can be learned.
            decoding: The requests that will decode in the next step.
            goes_on: Whether the engine goes on without a pause.
        """
        now_ns = monotonic_ns()
        if facts is not None and self._last_end_ns is not None:
            facts.seconds = (now_ns - self._last_end_ns) / 1e9
            self.controller.record_step(facts)
        self._last_end_ns = now_ns if goes_on else None
        self.num_steps += 1
        drafts = self._draft(decoding) if decoding else {}
        self.drafting_ns += monotonic_ns() - now_ns
        return drafts

    def read_state(self) -> ControllerState | None:
        """Return what the controller has learned; None for one that learns nothing."""
        read = getattr(self.controller, "read_state", None)
        state: ControllerState | None = None if read is None else read()
        return state

    def _draft(self, decoding: Sequence[VllmRequest]) -> dict[str, list[int]]:
        max_tokens = int(self.controller.begin(len(decoding)) * self.draft_ratio)
        if not max_tokens:
            return {}
        step, everyone = self.num_steps, self.controller.is_exploring()
        offers: list[Offer] = []
        takers: list[tuple[VllmRequest, _Followed]] = []
        for request in decoding:
            followed = self._followed.get(request.request_id)
            if followed is None:
                followed = self._followed[request.request_id] = _follow(request, self._vocabulary)
            if not followed.may_draft or (followed.is_sampled and not self.drafts_sampled):
                continue
            if step < followed.ask_at_step and not everyone:
                continue
            draft = self._propose(request, followed, max_tokens)
            if draft is None:
                self._wait(followed)
                continue
            offers.append(Offer(draft, followed.own))
            takers.append((request, followed))
        lengths = self.controller.decide(len(decoding), offers)
        drafts = {}
        for (request, followed), offer, length in zip(takers, offers, lengths, strict=True):
            if length:
                followed.chosen = offer
                followed.ask_at_step = followed.wait_steps = 0
                drafts[request.request_id] = offer.draft.tokens[:length]
            else:
                self._wait(followed)
        return drafts

    def _propose(self, request: VllmRequest, followed: _Followed, max_tokens: int) -> Draft | None:
        """What the request should go on with in the next step, the one under way left out."""
        # A step makes one token more than it accepts, so the last one needs no draft.
        made = len(followed.trail.text) - request.num_prompt_tokens
        left = request.max_tokens - made - 1
        if not request.num_output_placeholders:
            return propose(self.store, followed.trail, min(max_tokens, left))
        ahead = followed.under_way[-1][1] if followed.under_way else []
        draft = propose(self.store, followed.trail, min(max_tokens + len(ahead) + 1, left))
        if draft is None:
            return None
        skipped = _count_agreed(ahead, draft.tokens) + 1
        tokens = draft.tokens[skipped : skipped + max_tokens]
        return replace(draft, tokens=tokens) if tokens else None

    def _wait(self, followed: _Followed) -> None:
        followed.chosen = None
        followed.wait_steps = min(max(1, followed.wait_steps * 2), _MAX_WAIT_STEPS)
        followed.ask_at_step = self.num_steps + followed.wait_steps


def _follow(request: VllmRequest, vocabulary: int) -> _Followed:
    extra = getattr(request.sampling_params, "extra_args", None) or {}
    owner = f"{request.cache_salt or ''}\n{extra.get(TENANT_KEY) or ''}"
    handed = read_handed_draft(extra, vocabulary)
    trail = Trail(owner, request.all_token_ids, request.num_prompt_tokens, handed)
    may_draft = extra.get(SPECULATE_KEY) is not False and may_be_drafted(request.sampling_params)
    return _Followed(trail, may_draft, is_sampled(request.sampling_params))


def _count_agreed(one: Sequence[int], other: Sequence[int]) -> int:
    agreed = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        agreed += 1
    return agreed
