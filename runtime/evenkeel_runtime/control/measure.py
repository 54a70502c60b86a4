"""Apply what is known once a prompt is rendered: its deadline, its limits, its KV share."""

from __future__ import annotations

from collections.abc import Sequence

from evenkeel_runtime.control import gate
from evenkeel_runtime.control.admission import TOO_MANY_REQUESTS, AdmissionControl
from evenkeel_runtime.control.config import ControlMode
from evenkeel_runtime.control.costs import PromptCost, RenderedPrompt
from evenkeel_runtime.control.kv_shares import MAX_WAITING, Claim, Owner
from evenkeel_runtime.control.visit import RefusedError, Visit

_BAD_REQUEST = 400


def measure(control: AdmissionControl, visit: Visit, prompt: RenderedPrompt) -> PromptCost:
    """Set a visit's deadline by the prompt tokens to compute; return what this prompt may use.

    A request may have several prompts, all measured before the engine answers the first, whether
    before or after its turn. What is measured after that (the steps of a beam search, the rounds of
    tools) contains an answer that is under way: it changes neither the request's deadline nor its
    cost, and is not refused.

    Raises:
        RefusedError: If the prompt is longer than a limit of its tenant, session or route.
    """
    cost = control.costs.measure(visit.owners, prompt)
    known = visit.cost
    if known is None:
        known = visit.cost = cost.of_all_answers()
    elif not visit.has_output:
        known.include(cost.of_all_answers())
    limit_s = visit.late_s - visit.arrived_s
    visit.due_s = visit.late_s + control.config.longer_s(limit_s, known.uncached)
    if cost.excess is not None and not visit.has_output:
        message = (
            f"the prompt has {cost.tokens} tokens; the limit for prompt and answer is "
            f"{cost.excess} tokens here (context_tokens); shorten the prompt"
        )
        control.refuse(visit, _BAD_REQUEST, "context_length", message, None)
    if control.config.mode is not ControlMode.ACT:
        cost.max_tokens, cost.draft_tokens = prompt.max_tokens, None
    return cost


def claim_share(control: AdmissionControl, visit: Visit) -> Claim | None:
    """Claim KV cache for a visit, let in at once or later; None if no share applies.

    Raises:
        RefusedError: If too many requests wait for the same share, or for any.
    """
    if visit.cost is None or control.config.mode is not ControlMode.ACT:
        return None
    if visit.claim is None:
        visit.claim = control.costs.claim(visit.owners, visit.cost, visit.due_s)
        shares = control.costs.shares
        if visit.claim is None or visit.claim.let_in.done():
            return visit.claim
        if shares.is_crowded(visit.claim):
            shares.leave(visit.claim, None)
            raise _refuse_share(
                control,
                visit,
                f"{MAX_WAITING} requests of this {_name_owners(visit.claim.waits_for)} wait for "
                "its share of the KV cache (kv_share) already; wait for some to end",
            )
        if shares.count_waiting() > gate.MAX_WAITING:
            shares.leave(visit.claim, None)
            raise control.push_out(visit)
        visit.queued_s = control.now_s()
    return visit.claim


def give_up_share(control: AdmissionControl, visit: Visit) -> RefusedError:
    """Refuse a request whose owner held its share of the KV cache for too long."""
    owners = [share.owner for share in visit.claim.shares] if visit.claim else []
    message = (
        f"the requests of this {_name_owners(owners)} held its share of the KV cache (kv_share) "
        f"for {control.longest_wait_s(visit):g} s; wait for some to end"
    )
    return _refuse_share(control, visit, message)


def _refuse_share(control: AdmissionControl, visit: Visit, message: str) -> RefusedError:
    wait_s = control.longest_wait_s(visit)
    return control.turn_away(visit, TOO_MANY_REQUESTS, "kv_share", message, wait_s)


def _name_owners(owners: Sequence[Owner]) -> str:
    return " or ".join(kind for kind, _ in owners)
