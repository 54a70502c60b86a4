"""Finds the session of a request whose caller named none: by its trace, else by its messages.

Only digests are held, in memory and bounded. Requests of one trace are one session. A prompt that
begins with the whole messages of an earlier request, followed by an answer, continues the session
of that request, also from another trace.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from os import urandom
from typing import TypeVar

from evenkeel_runtime.exporter.record import NewId
from evenkeel_runtime.wire.observation import ANSWER_HEAD_TOKENS, Observation

HEADER, TRACE, CHAIN = "header", "trace", "chain"
MAX_TRACES = 50_000
MAX_PROMPTS = 50_000
_DIGEST_BYTES = 8
# Requests with exactly the same messages to choose among.
_MAX_SAME = 8
_ANSWER_BIT = 1

# The tenant, and the salt that separates its prefixes from others'.
Owner = tuple[str | None, str | None]
_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass(slots=True)
class _Turn:
    """An earlier request: its session, and what its answer began with."""

    session_id: str
    num_prompt_bytes: int
    answer_head: bytes
    is_continued: bool = False


class SessionFinder:
    """Names sessions, in the order in which requests end.

    Args:
        max_traces: Most traces to remember.
        max_prompts: Most conversations to remember.
        new_id: Returns the given number of random bytes.
    """

    def __init__(
        self,
        max_traces: int = MAX_TRACES,
        max_prompts: int = MAX_PROMPTS,
        new_id: NewId = urandom,
    ) -> None:
        self._max_traces = max_traces
        self._max_prompts = max_prompts
        self._new_id = new_id
        self._of_trace: OrderedDict[tuple[Owner, bytes], str] = OrderedDict()
        self._turns: OrderedDict[tuple[Owner, bytes], list[_Turn]] = OrderedDict()

    def find(self, seen: Observation) -> None:
        """Set the request's session and its source; neither if there is nothing to go by."""
        owner = (seen.tenant, seen.cache_salt)
        trace = None if seen.parent is None else seen.parent.trace_id
        chain = list(_chain(seen.message_digests))
        if seen.session_id is not None:
            seen.session_source = HEADER
        else:
            self._name(seen, owner, trace, chain)
        if seen.session_id is None:
            return
        if trace is not None:
            _remember(self._of_trace, (owner, trace), seen.session_id, self._max_traces)
        if chain:
            key = (owner, chain[-1][0])
            turns = [*self._turns.get(key, ()), _Turn(
                seen.session_id, len(seen.prompt), seen.answer[: 4 * ANSWER_HEAD_TOKENS]
            )]  # fmt: skip
            _remember(self._turns, key, turns[-_MAX_SAME:], self._max_prompts)

    def _name(
        self,
        seen: Observation,
        owner: Owner,
        trace: bytes | None,
        chain: list[tuple[bytes, bool]],
    ) -> None:
        known = None if trace is None else self._of_trace.get((owner, trace))
        if known is not None:
            seen.session_id, seen.session_source = known, TRACE
            return
        earlier = self._find_earlier(seen, owner, chain)
        if earlier is not None:
            seen.session_id, seen.session_source = earlier.session_id, CHAIN
        elif trace is not None:
            seen.session_id, seen.session_source = trace.hex(), TRACE
        elif chain:
            seen.session_id, seen.session_source = f"chain-{self._new_id(8).hex()}", CHAIN

    def _find_earlier(
        self, seen: Observation, owner: Owner, chain: list[tuple[bytes, bool]]
    ) -> _Turn | None:
        """Return the request with the longest messages that this one continues."""
        for place in range(len(chain) - 1, 0, -1):
            _, is_answer = chain[place]
            turns = self._turns.get((owner, chain[place - 1][0])) if is_answer else None
            if turns:
                found = _choose(turns, seen.prompt)
                found.is_continued = True
                self._turns.move_to_end((owner, chain[place - 1][0]))
                return found
        return None


def _choose(turns: list[_Turn], prompt: bytes) -> _Turn:
    """Return the request whose answer this prompt repeats; else the latest not yet continued."""
    for turn in reversed(turns):
        start, head = turn.num_prompt_bytes, turn.answer_head
        if head and prompt[start : start + len(head)] == head:
            return turn
    return next((turn for turn in reversed(turns) if not turn.is_continued), turns[-1])


def _chain(digests: bytes) -> Iterator[tuple[bytes, bool]]:
    """Yield a digest of each prefix of the messages, and whether it ends with an answer."""
    before = b""
    for at in range(0, len(digests), _DIGEST_BYTES):
        one = digests[at : at + _DIGEST_BYTES]
        before = blake2b(before + one, digest_size=_DIGEST_BYTES).digest()
        yield before, bool(one[0] & _ANSWER_BIT)


def _remember(kept: OrderedDict[_K, _V], key: _K, value: _V, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
