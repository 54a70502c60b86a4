"""Charges each moment of a request's TTFT and of its decode to exactly one cause.

The time from arrival to the last token is cut at the engine's steps; each piece has one cause, or
is shared out among causes by what the step's parts cost (cost.py). By construction the
causes of TTFT sum to the measured TTFT and those of decode to the measured decode time. Each cause
is defined, with its formula, in docs/inside/ledger.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial

import numpy as np

from evenkeel_runtime.ledger.cost import FloatArray
from evenkeel_runtime.ledger.prices import PricedSteps
from evenkeel_runtime.ledger.rivals import Rival, find_rivals
from evenkeel_runtime.ledger.shares import awaited_columns, prefill_ratio, share_out
from evenkeel_runtime.ledger.timeline import (
    BoolArray,
    EngineRequest,
    IntArray,
    OwnPart,
    Steps,
    find_own,
)
from evenkeel_runtime.wire.cause import CAUSES, Cause

# From the end of a step to the engine taking in what came during it: longer than this, and the step
# was not what the request waited for.
_TAKE_IN_NS = 10_000_000
DEFAULT_RIVALS = 3


class Phase(StrEnum):
    """The two spans of time that are charged; a ledger's keys are `<phase>.<cause>`."""

    TTFT = "ttft"
    DECODE = "decode"


_KEYS = {(phase, cause): f"{phase}.{cause}" for phase in Phase for cause in CAUSES}


@dataclass(frozen=True, slots=True)
class RequestTimes:
    """When things happened to one request, as its server saw it; monotonic nanoseconds.

    Attributes:
        arrival_ns: It arrived.
        end_ns: It was over.
        first_token_ns: Its first emission; None without one: all of its time counts as TTFT.
        last_token_ns: Its last emission.
        submitted_ns: It was handed to the engine; the arrival where that is not known.
        client_left_ns: Its client left before the end; None where it stayed.
        holds: How long each of our hooks kept it before it was handed to the engine, by cause.
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
    """What the prefix cache did for one request's prompt.

    Attributes:
        prompt_tokens: Length of the prompt.
        cached_tokens: Tokens of it that the cache held.
        lost_tokens: Tokens after those that it had held before and lost to eviction.
        block_tokens: Tokens of one block: only whole ones are found again.
        evicted_ns: When the first lost block was evicted; None where none was, or not known.
        evicted_by: The request that got its room, by its id in the API; None where not known.
    """

    prompt_tokens: int
    cached_tokens: int
    lost_tokens: int
    block_tokens: int
    evicted_ns: int | None = None
    evicted_by: str | None = None

    @property
    def cacheable_tokens(self) -> int:
        """Most tokens that the cache can give: whole blocks, without the prompt's last token."""
        if not self.block_tokens:
            return 0
        return max(0, self.prompt_tokens - 1) // self.block_tokens * self.block_tokens


@dataclass(frozen=True, slots=True)
class Aftermath:
    """What the engine still did for a request after its client had left.

    Attributes:
        num_steps: Steps that began after the server saw it and held the request.
        tokens: Tokens that the engine made for it from then on, the step under way included.
        seconds: Until the scheduler let go of it.
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
        rivals: The other requests that cost it most, the worst first.
        error_ratio: Mean relative error of the step-cost model that shared steps out; None while no
            model has stood its test, and steps are shared out by tokens.
        prefix: What the prefix cache did for it.
        made_tokens: Tokens that the engine's steps made for it; a few more than were kept where a
            stop cut a step's tokens short.
        drafted_by_step: Draft tokens of each of its steps that tried any.
        accepted_by_step: Of those, the ones that the model agreed with.
        verified: Of each step that made tokens for it, in order: the tokens, and its draft tokens
            tried and agreed with; empty where it never had drafts, or records are missing.
        aftermath: What was done after its client left; None where it stayed.
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

    @property
    def shared_by(self) -> str:
        """What steps of several requests were shared out by: `cost_model`, or `tokens`."""
        return "tokens" if self.error_ratio is None else "cost_model"

    def total(self, phase: Phase) -> float:
        """Return the seconds of all causes of a phase."""
        return sum(value for key, value in self.seconds.items() if key.startswith(f"{phase}."))

    def top_cause(self, phase: Phase) -> Cause | None:
        """Return the cause that took most of a phase; None if it took no time."""
        own = {key: value for key, value in self.seconds.items() if key.startswith(f"{phase}.")}
        if not own:
            return None
        return Cause(max(own, key=lambda key: own[key]).removeprefix(f"{phase}."))


@dataclass(slots=True)
class _Account:
    """Charges so far, and how long of each step the request waited for or was in."""

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
        request: What the engine says of it.
        priced: All steps that overlap it, in order, with what their parts cost; where there is
            none, records are missing.
        max_rivals: Most rivals to name; 0 looks for none, which is cheaper.

    Raises:
        ValueError: If the request's times run backwards.
    """
    first_ns, last_ns = _refuse_disorder(times)
    steps = priced.steps
    own = find_own(steps, request)
    account = _Account(len(steps))
    shares = share_out(own, priced, request.queued_ns)

    # Its tokens were made in these steps; what follows is their way out of the server.
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
    has_draft = own.drafted > 0
    return Ledger(
        account.seconds,
        rivals,
        priced.cost.error_ratio,
        made_tokens=round(float(own.emitted.sum())),
        drafted_by_step=tuple(own.drafted[has_draft].tolist()),
        accepted_by_step=tuple(own.accepted[has_draft].tolist()),
        verified=_verified(own) if has_draft.any() and not steps.follows_loss.any() else (),
    )


def _verified(own: OwnPart) -> tuple[tuple[int, int, int], ...]:
    made = own.emitted > 0
    columns = (own.emitted.astype(np.int64), own.drafted, own.accepted)
    return tuple(zip(*(column[made].tolist() for column in columns), strict=True))


def find_aftermath(steps: Steps, request: EngineRequest, left_ns: int) -> Aftermath:
    """Return what the engine did for a request from the moment its client was seen to be gone.

    Args:
        steps: All steps from then on.
        request: What the engine says of it.
        left_ns: When the server saw the connection closed.
    """
    own = find_own(steps, request)
    is_late = own.is_scheduled & (steps.table["start_ns"].astype(np.int64) > left_ns)
    tokens = own.emitted[steps.end_ns > left_ns].sum()
    gone_ns = left_ns if request.left_ns is None else max(request.left_ns, left_ns)
    return Aftermath(int(is_late.sum()), round(float(tokens)), (gone_ns - left_ns) / 1e9)


def _refuse_disorder(times: RequestTimes) -> tuple[int, int]:
    """The end of TTFT and of decode; both are the request's end where no token came."""
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
    """End of the first or last candidate step that began before a token left; None without one."""
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
    """Charge the time from arrival to the engine's queue, what our hooks took of it apart.

    The engine takes requests in between steps only: one that was submitted during a step waits for
    its end, and that wait is the others' work, not the host's.
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
    """Charge what lies between two times: steps by their shares, the time between them to gaps.

    Args:
        account: Where to charge it.
        steps: The steps.
        shares: Share of each cause, a row, in each step, a column.
        awaited: What the request was set aside for in each step; it goes on between them.
        phase: The phase that the time belongs to.
        from_ns: Begin of the time.
        to_ns: Its end.
        rest: What the time after the last step is charged to.
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
    # Steps do not overlap: what they did not take, up to the last one's end, lies between them.
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
    """Charge the time before and after each step in which a request was set aside.

    A grammar is compiled and KV blocks are fetched beside the steps, and an engine that has nothing
    else to do only looks every millisecond whether they are there.

    Returns:
        How much of the time between steps that was, in nanoseconds.
    """
    after = np.concatenate(([-1], awaited[:-1]))
    columns = np.where(awaited >= 0, awaited, after)
    total_ns = 0
    for column in np.unique(columns[columns >= 0]).tolist():
        waited_ns = int(before_ns[columns == column].sum())
        account.add(phase, CAUSES[column], waited_ns / 1e9)
        total_ns += waited_ns
    return total_ns
