"""Charges each moment of a request's TTFT and of its decode to exactly one cause.

The time from arrival to the last token is cut at the engine's steps; each piece has one cause, or
is split among causes by what the step's parts cost (step_cost_model.py). By construction the
causes of TTFT sum to the measured TTFT and those of decode to the measured decode time. Each cause
is defined, with its formula, in docs/inside/ledger.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

import numpy as np

from evenkeel_runtime.ledger.engine_seconds import EngineSeconds
from evenkeel_runtime.ledger.rivals import Rival, find_rivals
from evenkeel_runtime.ledger.step_causes import awaited_columns, prefill_ratio, share_out
from evenkeel_runtime.ledger.step_cost_model import FloatArray
from evenkeel_runtime.ledger.step_costs import PricedSteps
from evenkeel_runtime.ledger.timeline import (
    BoolArray,
    EngineRequest,
    IntArray,
    OwnPart,
    Steps,
    find_own,
)
from evenkeel_runtime.wire.cause import CAUSES, Cause

# Longest time from the end of a step until the engine accepts requests that arrived during it. Past
# this, the request was not waiting for that step.
_TAKE_IN_NS = 10_000_000
DEFAULT_RIVALS = 3


class Phase(StrEnum):
    """The two charged phases of a request; a ledger's keys are `<phase>.<cause>`."""

    TTFT = "ttft"
    DECODE = "decode"


_KEYS = {(phase, cause): f"{phase}.{cause}" for phase in Phase for cause in CAUSES}


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """Times of one request as seen by its server, in monotonic nanoseconds.

    Attributes:
        arrival_ns: Arrival.
        end_ns: End of the request.
        first_token_ns: Its first emission; if None, all of its time counts as TTFT.
        last_token_ns: Its last emission.
        submitted_ns: Submission to the engine; the arrival if unknown.
        client_left_ns: Client disconnect before the end; None if it stayed.
        holds: Time spent in each of our hooks before submission to the engine, by cause.
    """

    arrival_ns: int
    end_ns: int
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    submitted_ns: int | None = None
    client_left_ns: int | None = None
    holds: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PrefixUse:
    """Prefix-cache use of one request's prompt.

    Attributes:
        prompt_tokens: Length of the prompt.
        cached_tokens: Tokens of it found in the cache.
        lost_tokens: Tokens after those that were cached earlier and evicted.
        block_tokens: Tokens per block; only whole blocks can be reused.
        evicted_ns: When the first lost block was evicted; None if none was, or if unknown.
        evicted_by: API id of the request that took its block; None if unknown.
    """

    prompt_tokens: int
    cached_tokens: int
    lost_tokens: int
    block_tokens: int
    evicted_ns: int | None = None
    evicted_by: str | None = None

    @property
    def cacheable_tokens(self) -> int:
        """Maximum number of cacheable tokens: whole blocks, without the prompt's last token."""
        if not self.block_tokens:
            return 0
        return max(0, self.prompt_tokens - 1) // self.block_tokens * self.block_tokens


@dataclass(frozen=True, slots=True)
class Aftermath:
    """Work the engine did for a request after its client disconnected.

    Attributes:
        num_steps: Steps with the request that began after the server saw the disconnect.
        tokens: Tokens generated for it from then on, including the step in progress.
        seconds: Time until the scheduler released it.
    """

    num_steps: int
    tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where one request's time went.

    Attributes:
        seconds: `<phase>.<cause>` → seconds, causes of 0 left out. The `ttft.` ones sum to the
            measured TTFT, the `decode.` ones to last token − first token.
        rivals: The other requests that cost it most time, most expensive first.
        error_ratio: Mean relative error of the step-cost model used to split steps; None until a
            model has passed its test, while steps are split by tokens.
        prefix: Its prefix-cache use.
        made_tokens: Tokens that the engine's steps generated for it; slightly more than delivered
            if a stop truncated a step's tokens.
        drafted_by_step: Draft tokens of each step of each of its sequences that tried any.
        accepted_by_step: Of those, the accepted ones.
        verified: For each step that generated tokens for it, in order: tokens generated, drafted
            and accepted; empty if it never had drafts, or if records are missing.
        aftermath: Work done after its client disconnected; None if it stayed.
        engine: What it cost the engine; None if records of its steps are missing.
    """

    seconds: Mapping[str, float]
    rivals: tuple[Rival, ...] = ()
    error_ratio: float | None = None
    prefix: PrefixUse | None = None
    made_tokens: int = 0
    drafted_by_step: tuple[int, ...] = ()
    accepted_by_step: tuple[int, ...] = ()
    verified: tuple[tuple[int, int, int], ...] = ()
    aftermath: Aftermath | None = None
    engine: EngineSeconds | None = None

    @property
    def shared_by(self) -> str:
        """How steps shared by several requests were split: by `cost_model` or by `tokens`."""
        return "tokens" if self.error_ratio is None else "cost_model"

    def total(self, phase: Phase) -> float:
        """Return the seconds of all causes of a phase."""
        return sum(value for key, value in self.seconds.items() if key.startswith(f"{phase}."))

    def top_cause(self, phase: Phase) -> Cause | None:
        """Return the largest cause of a phase; None if the phase took no time."""
        own = {key: value for key, value in self.seconds.items() if key.startswith(f"{phase}.")}
        if not own:
            return None
        return Cause(max(own, key=lambda key: own[key]).removeprefix(f"{phase}."))


@dataclass(slots=True)
class _Account:
    """Charges so far, and the time per step that the request was in it or waiting for it."""

    num_steps: int
    seconds: dict[str, float] = field(default_factory=dict)
    step_s: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self.step_s = np.zeros(self.num_steps)

    def add(self, phase: Phase, cause: Cause, seconds: float) -> None:
        if seconds > 0:
            key = _KEYS[phase, cause]
            self.seconds[key] = self.seconds.get(key, 0.0) + seconds


def charge(
    times: RequestTimes,
    request: EngineRequest,
    priced: PricedSteps,
    max_rivals: int = DEFAULT_RIVALS,
) -> Ledger:
    """Return the ledger of one request.

    Args:
        times: The request's own timestamps.
        request: The engine's records of it.
        priced: All steps that overlap it, in order, with the cost of their parts; gaps mean that
            records are missing.
        max_rivals: Maximum number of rivals to return; 0 skips the search, which is cheaper.

    Raises:
        ValueError: If the request's times run backwards.
    """
    first_ns, last_ns = _refuse_disorder(times)
    steps = priced.steps
    own = find_own(steps, request)
    account = _Account(len(steps))
    shares = share_out(own, priced, request.queued_ns)

    # Its tokens were generated in these steps; the rest is delivery by the server.
    made_first_ns = _find_end(steps, own.emitted > 0, first_ns, is_first=True)
    made_last_ns = _find_end(steps, own.is_scheduled, last_ns, is_first=False)
    has_token = times.first_token_ns is not None
    ttft_rest = Cause.UNOBSERVED if has_token and made_first_ns is None else Cause.HOST_GAP
    decode_rest = Cause.UNOBSERVED if made_last_ns is None else Cause.HOST_GAP
    if made_first_ns is None or not has_token:
        made_first_ns = first_ns
    made_first_ns = max(made_first_ns, times.arrival_ns)
    made_last_ns = last_ns if made_last_ns is None else max(made_last_ns, first_ns)
    queued_ns = min(max(request.queued_ns, times.arrival_ns), made_first_ns)
    submitted_ns = max(times.submitted_ns or 0, times.arrival_ns)

    _charge_input(account, priced, times, submitted_ns, queued_ns)
    charge_steps = partial(_charge_steps, account, steps, shares, awaited_columns(own))
    charge_steps(Phase.TTFT, queued_ns, made_first_ns, ttft_rest)
    account.add(Phase.TTFT, Cause.HOST_OUTPUT, (first_ns - made_first_ns) / 1e9)
    charge_steps(Phase.DECODE, first_ns, made_last_ns, decode_rest)
    account.add(Phase.DECODE, Cause.HOST_OUTPUT, (last_ns - made_last_ns) / 1e9)
    rivals = find_rivals(account.step_s, request, priced, own, max_rivals)
    return Ledger(
        account.seconds,
        rivals,
        priced.cost.error_ratio,
        made_tokens=round(float(own.emitted.sum())),
        drafted_by_step=tuple(own.drafts.tolist()),
        accepted_by_step=tuple(own.agreed.tolist()),
        verified=_verified(own) if len(own.drafts) and not steps.follows_loss.any() else (),
    )


def _verified(own: OwnPart) -> tuple[tuple[int, int, int], ...]:
    made = own.emitted > 0
    columns = (own.emitted.astype(np.int64), own.drafted, own.accepted)
    return tuple(zip(*(column[made].tolist() for column in columns), strict=True))


def find_aftermath(steps: Steps, request: EngineRequest, left_ns: int) -> Aftermath:
    """Return the work the engine did for a request after its client disconnected.

    Args:
        steps: All steps from then on.
        request: The engine's records of it.
        left_ns: When the server saw the connection closed.
    """
    own = find_own(steps, request)
    is_late = own.is_scheduled & (steps.table["start_ns"].astype(np.int64) > left_ns)
    tokens = own.emitted[steps.end_ns > left_ns].sum()
    gone_ns = left_ns if request.left_ns is None else max(request.left_ns, left_ns)
    return Aftermath(int(is_late.sum()), round(float(tokens)), (gone_ns - left_ns) / 1e9)


def _refuse_disorder(times: RequestTimes) -> tuple[int, int]:
    """Return the end of TTFT and of decode; both are the request's end if there was no token."""
    if times.first_token_ns is None:
        first_ns = last_ns = times.end_ns
    else:
        first_ns = times.first_token_ns
        last_ns = first_ns if times.last_token_ns is None else times.last_token_ns
    if not times.arrival_ns <= first_ns <= last_ns:
        raise ValueError(
            f"a request's times run backwards: arrival {times.arrival_ns}, first token {first_ns}, "
            f"last token {last_ns}"
        )
    return first_ns, last_ns


def _find_end(steps: Steps, is_candidate: BoolArray, until_ns: int, is_first: bool) -> int | None:
    """Return the end of the first or last candidate step that began before a token, or None."""
    found = (is_candidate & (steps.begin_ns < until_ns)).nonzero()[0]
    if not len(found):
        return None
    return min(int(steps.end_ns[found[0] if is_first else found[-1]]), until_ns)


def _charge_input(
    account: _Account,
    priced: PricedSteps,
    times: RequestTimes,
    submitted_ns: int,
    queued_ns: int,
) -> None:
    """Charge the time from arrival to the engine's queue, with our hooks' share separate.

    The engine accepts requests only between steps: one submitted during a step waits for its end,
    and that wait is charged to the other requests' work, not to the host.
    """
    waited_s, steps = 0.0, priced.steps
    row = int(np.searchsorted(steps.end_ns, queued_ns, side="right")) - 1
    if row >= 0 and queued_ns - int(steps.end_ns[row]) <= _TAKE_IN_NS:
        waited_ns = int(steps.end_ns[row]) - max(submitted_ns, int(steps.begin_ns[row]))
        waited_s = max(0, waited_ns) / 1e9
        if waited_s > 0:
            account.step_s[row] += waited_s
            ratio = float(prefill_ratio(priced)[row])
            account.add(Phase.TTFT, Cause.PREFILL_OTHERS, waited_s * ratio)
            account.add(Phase.TTFT, Cause.DECODE_OTHERS, waited_s * (1.0 - ratio))
    input_s = (queued_ns - times.arrival_ns) / 1e9 - waited_s
    for cause, held_s in times.holds.items():
        held_s = min(held_s, max(0.0, input_s))
        account.add(Phase.TTFT, Cause(cause), held_s)
        input_s -= held_s
    account.add(Phase.TTFT, Cause.HOST_INPUT, input_s)


def _charge_steps(
    account: _Account,
    steps: Steps,
    shares: FloatArray,
    awaited: IntArray,
    phase: Phase,
    from_ns: int,
    to_ns: int,
    rest: Cause,
) -> None:
    """Charge an interval: steps by their shares, the time between them to gaps.

    Args:
        account: Account to charge.
        steps: The steps.
        shares: Share of each cause (rows) in each step (columns).
        awaited: What the request was blocked on in each step; this continues between steps.
        phase: The phase that the interval belongs to.
        from_ns: Start of the interval.
        to_ns: Its end.
        rest: Cause charged for the time after the last step.
    """
    if to_ns <= from_ns:
        return
    begins = np.minimum(np.maximum(steps.begin_ns, from_ns), to_ns)
    ends = np.minimum(np.maximum(steps.end_ns, from_ns), to_ns)
    spent_ns = ends - begins
    spent_s = spent_ns / 1e9
    account.step_s += spent_s
    for cause, seconds in zip(CAUSES, (shares @ spent_s).tolist(), strict=True):
        account.add(phase, cause, seconds)
    last_ns = int(ends[-1]) if len(ends) else from_ns
    # Steps do not overlap, so the remaining time up to the last one's end lies between them.
    gaps_ns = last_ns - from_ns - int(spent_ns.sum())
    lost_ns = 0
    if steps.follows_loss.any() or (awaited >= 0).any():
        before = np.maximum(begins - np.concatenate(([from_ns], ends[:-1])), 0)
        lost_ns = int(before[steps.follows_loss].sum())
        before[steps.follows_loss] = 0
        gaps_ns -= _charge_awaited(account, phase, before, awaited)
        if awaited[-1] >= 0 and rest is Cause.HOST_GAP:
            rest = CAUSES[awaited[-1]]
    account.add(phase, Cause.UNOBSERVED, lost_ns / 1e9)
    account.add(phase, Cause.HOST_GAP, (gaps_ns - lost_ns) / 1e9)
    account.add(phase, rest, (to_ns - last_ns) / 1e9)


def _charge_awaited(account: _Account, phase: Phase, before_ns: IntArray, awaited: IntArray) -> int:
    """Charge the time before and after each step in which a request was blocked.

    Grammars are compiled and KV blocks fetched in parallel to the steps, and an otherwise idle
    engine polls for them only every millisecond.

    Returns:
        The part of the time between steps that was charged, in nanoseconds.
    """
    after = np.concatenate(([-1], awaited[:-1]))
    columns = np.where(awaited >= 0, awaited, after)
    total_ns = 0
    for column in np.unique(columns[columns >= 0]).tolist():
        waited_ns = int(before_ns[columns == column].sum())
        account.add(phase, CAUSES[column], waited_ns / 1e9)
        total_ns += waited_ns
    return total_ns
