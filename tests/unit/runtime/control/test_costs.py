"""What a measured prompt costs, which limits apply to it, and when it is due."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_runtime.control import gate
from evenkeel_runtime.control.admission import AdmissionControl
from evenkeel_runtime.control.costs import PromptCost, RenderedPrompt
from evenkeel_runtime.control.door import Door
from evenkeel_runtime.control.kv_shares import MAX_WAITING, Share
from evenkeel_runtime.control.measure import claim_share
from evenkeel_runtime.control.measure import measure as measure_prompt
from evenkeel_runtime.control.prefixes import KvCache
from evenkeel_runtime.control.visit import RefusedError, Visit
from evenkeel_runtime.request.trace import EngineRun, HttpRequest
from evenkeel_runtime.wire.caller import Caller
from tests.fixtures.control_files import control_of

CACHE = KvCache(num_blocks=100, block_tokens=10)
FILE = """
long_prompt_tokens = 100
[classes.chat]
ttft_s = 0.5
queue_deadline_s = 0.05
[tenant]
context_tokens = 500
[tenants.acme]
context_tokens = 300
draft_tokens = 4
kv_share = 0.3
[session]
draft_tokens = 8
[routes.agent]
context_tokens = 200
draft_tokens = 0
[routes."*"]
kv_share = 0.5
"""


def make(text: str = FILE) -> AdmissionControl:
    return AdmissionControl(control_of(text), 64, clock=lambda: 0.0, cache=CACHE)


def measure(
    control: AdmissionControl,
    tokens: Sequence[int],
    max_tokens: int | None = None,
    **caller: Any,
) -> tuple[Visit, PromptCost]:
    visit = control.arrive(Caller(**caller), 0)
    return visit, measure_prompt(control, visit, RenderedPrompt(tokens, max_tokens=max_tokens))


@pytest.mark.parametrize(
    ("caller", "max_tokens", "answer", "drafts"),
    [
        pytest.param({}, None, 400, None, id="every tenant's"),
        pytest.param({"tenant": "acme"}, None, 200, 4, id="one tenant's own"),
        pytest.param({"tenant": "acme"}, 50, 50, 4, id="a shorter answer was asked for"),
        pytest.param({"tenant": "acme", "route": "agent"}, None, 100, 0, id="the strictest"),
        pytest.param({"session_id": "s"}, 9, 9, 8, id="a session's"),
    ],
)
def test_the_strictest_limit_applies(
    caller: dict[str, str], max_tokens: int | None, answer: int, drafts: int | None
) -> None:
    _, cost = measure(make(), range(100), max_tokens, **caller)
    assert (cost.max_tokens, cost.draft_tokens) == (answer, drafts)


def test_a_prompt_without_room_for_an_answer_is_refused_for_good() -> None:
    control = make()
    with pytest.raises(RefusedError, match=r"200 tokens; .* 200 tokens here") as caught:
        measure(control, range(200), route="agent")
    refused = caught.value
    assert (refused.status, refused.reason, refused.retry_after_s) == (400, "context_length", None)
    assert control.counts.refused == {("chat", "context_length"): 1}
    _, cost = measure(control, range(199), route="agent")
    assert cost.max_tokens == 1


def test_a_dry_run_limits_nothing_and_counts_what_it_would_refuse() -> None:
    control = make('mode = "dry-run"\n' + FILE)
    visit, cost = measure(control, range(900), 7, tenant="acme")
    assert (cost.max_tokens, cost.draft_tokens, claim_share(control, visit)) == (7, None, None)
    assert control.counts.would_refuse == {("chat", "context_length"): 1}


def test_a_changed_file_applies_to_the_next_request() -> None:
    control = make()
    control.configure(control_of(""))
    _, cost = measure(control, range(900), tenant="acme")
    assert (cost.max_tokens, cost.draft_tokens, cost.excess) == (None, None, None)


def test_only_tokens_to_compute_make_a_prompt_due_later() -> None:
    control = make("long_prompt_tokens = 100\n[classes.chat]\nttft_s = 0.5")
    first, cost = measure(control, range(301))
    assert (cost.cached, cost.uncached, first.due_s) == (0, 301, pytest.approx(0.5 * 3.01))
    control.enter(first)
    control.leave(first, 310, cached=0)
    again, cost = measure(control, range(301))
    assert (cost.cached, cost.uncached, again.due_s) == (300, 1, 0.5)
    control.enter(again)
    control.leave(again, 310, cached=290)
    assert control.costs.counts.prompt_tokens == {
        "total": 602, "cached": 290, "estimated_cached": 300,
    }  # fmt: skip


def test_what_the_engine_never_had_is_not_expected_in_its_cache() -> None:
    control = make("")
    visit, _ = measure(control, range(301))
    control.leave(visit, 0)
    assert measure(control, range(301))[1].cached == 0


async def test_a_request_waits_for_its_tenants_share_or_is_told_why_not() -> None:
    control = make()
    visits = [measure(control, range(200), 20, tenant="acme")[0] for _ in range(3)]
    doors = [Door(control, visit) for visit in visits]
    await doors[0].enter()
    second, third = (asyncio.create_task(door.enter()) for door in doors[1:])
    while doors[2].refusal is None:
        await asyncio.sleep(0.005)
    refused = doors[1].refusal
    assert refused is not None
    assert (refused.status, refused.reason) == (429, "kv_share")
    assert "of this tenant or route held" in str(refused)
    for task, visit in zip((second, third), visits[1:], strict=True):
        task.cancel()
        control.leave(visit, 0)
    # What is given back lets the next one in.
    later = measure(control, range(200), 20, tenant="acme")[0]
    entering = asyncio.create_task(Door(control, later).enter())
    await asyncio.sleep(0)
    control.leave(visits[0], 215)
    await entering
    assert later.ticket is not None and later.ticket.is_inside
    control.leave(later, 210)
    assert control.costs.shares.held() == {}
    # Routes without limits of their own share those of `*`.
    assert control.costs.find_owners(Caller(route="x"))[-1] == ("route", "*")


def test_all_prompts_of_a_request_count() -> None:
    control = make()
    visit, first = measure(control, range(150), 20, tenant="acme")
    second = measure_prompt(control, visit, RenderedPrompt(range(200, 450), max_tokens=90))
    assert (first.tokens, first.max_tokens) == (150, 20)
    assert (second.tokens, second.max_tokens) == (250, 50)
    assert visit.cost is not None
    assert (visit.cost.tokens, visit.cost.max_tokens) == (400, 70)
    assert visit.due_s == pytest.approx(0.5 * 4)
    control.enter(visit)
    visit.has_output = True
    # A step of a beam search.
    measure_prompt(control, visit, RenderedPrompt(range(500, 600), max_tokens=1))
    assert visit.due_s == pytest.approx(0.5 * 4)
    assert visit.cost.tokens == 400
    control.leave(visit, 520)
    cached = [measure(control, prompt)[1].cached for prompt in (range(150), range(200, 450))]
    assert cached == [140, 240]
    assert measure(control, range(500, 600))[1].cached == 0


def test_a_beam_search_under_way_is_not_refused_for_its_length() -> None:
    control = make()
    visit, first = measure(control, range(198), 20, route="agent")
    assert first.max_tokens == 2
    control.enter(visit)
    visit.has_output = True
    # Each step's prompt has the answer so far.
    for size in (199, 200, 201):
        step = measure_prompt(control, visit, RenderedPrompt(range(size), max_tokens=1))
        assert step.max_tokens == 1
    assert not control.counts.refused
    control.leave(visit, 201)


@pytest.mark.parametrize("mode", ["act", "dry-run"])
def test_a_prompt_measured_after_its_turn_is_checked_like_any_other(mode: str) -> None:
    """Those of `/v1/responses` are rendered after it, as are all prompts of a batch."""
    control = make(f'mode = "{mode}"\n' + FILE)
    counts = control.counts.refused if mode == "act" else control.counts.would_refuse
    for size in (199, 200):
        visit = control.arrive(Caller(route="agent"), 0)
        control.enter(visit)
        for prompt in (range(20), range(size)):
            with suppress(RefusedError):
                measure_prompt(control, visit, RenderedPrompt(prompt))
        assert visit.is_refused is (size == 200)
    assert counts == {("chat", "context_length"): 1}


@pytest.mark.parametrize(
    ("max_tokens", "expected"),
    [
        pytest.param(None, 100 + 3 * 256 + 50 + 256, id="as long as an owner's first ones"),
        pytest.param(20, 100 + 3 * 20 + 50 + 20, id="no longer than they may be"),
    ],
)
async def test_all_answers_of_a_request_count(max_tokens: int | None, expected: int) -> None:
    control = make("[tenants.acme]\nkv_share = 1.0")
    visit = control.arrive(Caller(tenant="acme"), 0)
    for size, num_answers in ((100, 3), (50, 1)):
        prompt = RenderedPrompt(range(size), "", max_tokens, num_answers)
        cost = measure_prompt(control, visit, prompt)
        assert cost.max_tokens == max_tokens
    claim = claim_share(control, visit)
    assert claim is not None and claim.tokens == CACHE.round_up(expected)


def test_the_length_of_an_answer_is_that_of_one() -> None:
    request = HttpRequest("chat", Caller())
    params = SimpleNamespace(n=3)
    run = EngineRun("r", "m", params, request, False, 0, 0, num_final_tokens=60)
    request.runs.append(run)
    assert request.find_answer_length() is None
    run.last_output, run.end_ns = SimpleNamespace(), 1
    assert request.find_answer_length() == 20
    run.was_cancelled = True
    assert request.find_answer_length() is None


async def test_who_waits_for_a_share_enters_once_control_is_switched_off() -> None:
    control = make(FILE.replace("queue_deadline_s = 0.05", "queue_deadline_s = 30"))
    visits = [measure(control, range(200), 20, tenant="acme")[0] for _ in range(2)]
    await Door(control, visits[0]).enter()
    waiting = asyncio.create_task(Door(control, visits[1]).enter())
    await asyncio.sleep(0)
    assert control.costs.shares.count_waiting() == 1
    control.configure(control_of('mode = "off"\n' + FILE))
    async with asyncio.timeout(120):
        await waiting
    for visit in visits:
        control.leave(visit, 210)
    assert control.costs.shares.held() == {}


@given(
    st.lists(
        st.tuples(
            st.lists(st.integers(1, 120), min_size=1, max_size=20),
            st.booleans(),
            st.integers(0, 9),
        ),
        max_size=25,
    )
)
@settings(deadline=None)
async def test_whatever_requests_teach_the_share_holds_and_no_place_is_lost(
    requests: list[tuple[list[int], bool, int]],
) -> None:
    """Requests with several prompts, whose callers leave after a token or wait for the end."""
    control = make("[tenants.acme]\nkv_share = 0.3\nactive = 1000")
    running: list[tuple[HttpRequest, Visit]] = []

    def end(request: HttpRequest, visit: Visit) -> None:
        answer = request.find_answer_length()
        control.leave(visit, request.count_tokens(), request.count_cached_tokens(), answer)

    for prompts, leaves_early, ends in requests:
        request = HttpRequest("text_completion", Caller(tenant="acme"))
        visit = control.arrive(request.caller, 0)
        for size in prompts:
            measure_prompt(control, visit, RenderedPrompt(range(size), max_tokens=40))
            run = EngineRun("r", "m", None, request, False, 0, 0, prompt_size=size)
            run.last_output = SimpleNamespace(prompt_token_ids=range(size))
            run.num_final_tokens, run.end_ns = 30, 1
            request.runs.append(run)
        if leaves_early:
            for run in request.runs[1:]:
                run.last_output, run.num_final_tokens, run.end_ns = None, 0, None
            request.runs[0].was_cancelled = True
        claim = claim_share(control, visit)
        assert claim is not None and claim.tokens >= sum(prompts)
        if claim.let_in.done():
            control.queue(visit)
            control.enter(visit)
        running.append((request, visit))
        for _ in range(min(ends, len(running))):
            end(*running.pop(0))
        held = control.costs.shares.held().get(("tenant", "acme"), 0)
        num_inside = sum(v.claim is not None and v.claim.let_in.done() for _, v in running)
        assert held <= 300 or num_inside == 1
    for request, visit in running:
        end(request, visit)
    assert control.costs.shares.held() == {}
    assert (control.gate.num_inside, control.costs.shares.count_waiting()) == (0, 0)
    assert 0 <= control.costs.shares.expect_answer([Share(("tenant", "acme"), 300)]) <= 256


async def test_a_part_that_fails_keeps_no_place_and_no_quota() -> None:
    control = make("[tenant]\nactive = 1")
    for _ in range(3):
        visit, _ = measure(control, range(20), tenant="acme")
        control.queue(visit)
        control.enter(visit)
        assert visit.cost is not None
        unhashable: Any = [{}]
        visit.cost.hashes = unhashable
        with pytest.raises(TypeError):
            control.leave(visit, 30)
    assert control.gate.num_inside == 0


async def test_only_so_many_wait_for_a_share() -> None:
    control = make()
    shares = control.costs.shares
    for _ in range(1 + MAX_WAITING):
        claim_share(control, measure(control, range(200), 20, tenant="acme")[0])
    one_more = measure(control, range(200), 20, tenant="acme")[0]
    with pytest.raises(RefusedError, match="512 requests of this tenant") as caught:
        claim_share(control, one_more)
    assert (caught.value.status, caught.value.reason) == (429, "kv_share")
    control.leave(one_more, 0)
    assert shares.count_waiting() == MAX_WAITING
    # Another tenant of the same route has room.
    other = claim_share(control, measure(control, range(100), 20, tenant="other")[0])
    assert other is not None and other.let_in.done()


async def test_only_so_many_wait_for_shares_in_all() -> None:
    control = make("[session]\nkv_share = 0.3")
    shares = control.costs.shares
    for number in range(2 * gate.MAX_WAITING):
        visit = measure(control, range(200), 20, session_id=f"s{number // 2}")[0]
        claim_share(control, visit)
    assert shares.count_waiting() == gate.MAX_WAITING
    one_more = measure(control, range(200), 20, session_id="s0")[0]
    with pytest.raises(RefusedError, match="the queue is full") as caught:
        claim_share(control, one_more)
    assert (caught.value.status, caught.value.reason) == (503, "shed")
    control.leave(one_more, 0)
    assert shares.count_waiting() == gate.MAX_WAITING
    # Whoever need not wait is let in.
    other = claim_share(control, measure(control, range(200), 20, session_id="other")[0])
    assert other is not None and other.let_in.done()


async def test_who_waits_for_a_share_enters_once_it_is_raised() -> None:
    control = make()
    visits = [measure(control, range(200), 20, tenant="acme")[0] for _ in range(2)]
    claims = [claim_share(control, visit) for visit in visits]
    assert claims[1] is not None and not claims[1].let_in.done()
    control.configure(control_of(FILE.replace("0.3", "0.5")))
    assert claims[1].let_in.done()


def test_the_wait_for_a_share_counts_to_the_longest_wait() -> None:
    now = [0.0]
    control = AdmissionControl(control_of(FILE), 64, clock=lambda: now[0], cache=CACHE)
    visit, _ = measure(control, range(100))
    assert control.left_s(visit) == 0.05
    visit.queued_s = 0.0
    now[0] = 0.03
    assert control.left_s(visit) == pytest.approx(0.02)
    now[0] = 0.2
    assert control.left_s(visit) == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tenant]\nkv_share = 1.5", "kv_share"),
        ("[routes.a]\ndraft_tokens = -1", "draft_tokens"),
        ("[routes.a]\nrequests_per_minute = 3", "requests_per_minute"),
        ("[tenants.a]\ncontext_tokens = 0", "context_tokens"),
    ],
)
def test_a_wrong_limit_is_said(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        control_of(text)
