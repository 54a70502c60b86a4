"""Whole cached answers as drafts, in vLLM's own scheduler; a made-up model has fixed answers."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenkeel_runtime.speculation.controller import GoodputController
from evenkeel_runtime.wire.drafts import ANSWER_KEY
from tests.fixtures import random_model
from tests.fixtures.fixed_length import FixedLength
from tests.fixtures.real_scheduler import SchedulerBox, build_scheduler

PROMPT = list(range(3, 23))
LONGEST = 128


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_model.build(tmp_path_factory.mktemp("model"), hidden=64, layers=1)


class Answers:
    """Runs the scheduler over a model that gives each request a fixed answer."""

    def __init__(self, model: Path, controller: Any = None, **options: Any) -> None:
        from evenkeel_runtime.adapter.speculative_scheduler import SpeculativeScheduler

        self.box: SchedulerBox = build_scheduler(
            SpeculativeScheduler, model, drafts=LONGEST, **options
        )
        self.scheduler = self.box.scheduler
        speculation = self.scheduler.evenkeel_speculation
        speculation.controller = controller or FixedLength(LONGEST)
        self.answers: dict[str, list[int]] = {}
        self.made: dict[str, list[int]] = {}
        self.sizes: list[int] = []
        self.drafted: list[dict[str, int]] = []

    def ask(
        self, request_id: str, answer: Sequence[int], draft: Sequence[int], prompt: Sequence[int]
    ) -> None:
        request = self.box.add(request_id, prompt, max_tokens=len(answer))
        request.sampling_params.temperature = 0.0
        request.sampling_params.extra_args = {ANSWER_KEY: list(draft)}
        self.answers[request_id], self.made[request_id] = list(answer), []

    def run(self) -> None:
        for _ in range(3000):
            if not self.scheduler.has_requests():
                break
            output = self.scheduler.schedule()
            self._check(output)
            made = self.box.make_output(output)
            made.sampled_token_ids = [self._sample(i, output) for i in made.req_ids]
            self.scheduler.update_from_output(output, made)
        assert self.scheduler.evenkeel_speculation is not None, "drafting was given up"
        assert self.made == self.answers

    def _check(self, output: Any) -> None:
        assert output.total_num_scheduled_tokens == sum(output.num_scheduled_tokens.values())
        assert output.total_num_scheduled_tokens <= self.scheduler.max_num_scheduled_tokens
        drafts = output.scheduled_spec_decode_tokens
        assert all(1 <= len(draft) <= LONGEST for draft in drafts.values())
        if output.total_num_scheduled_tokens:
            self.sizes.append(output.total_num_scheduled_tokens)
            self.drafted.append({i: len(draft) for i, draft in drafts.items()})
        for new in output.scheduled_new_reqs:
            end = new.num_computed_tokens + output.num_scheduled_tokens[new.req_id]
            assert len(new.block_ids[0]) * 16 >= end

    def _sample(self, request_id: str, output: Any) -> list[int]:
        request = self.scheduler.requests[request_id]
        if request.is_prefill_chunk:
            return []
        made = self.made[request_id]
        rest = self.answers[request_id][len(made) :]
        draft = output.scheduled_spec_decode_tokens.get(request_id, [])
        accepted = 0
        while accepted < len(draft) and rest[accepted : accepted + 1] == [draft[accepted]]:
            accepted += 1
        made += rest[: accepted + 1]
        return [*rest, 0][: accepted + 1]


def words(seed: int, length: int) -> list[int]:
    random = Random(seed)
    return [random.randrange(3, 500) for _ in range(length)]


def test_an_answer_is_verified_in_the_step_of_its_prompt(model: Path) -> None:
    run = Answers(model, GoodputController(15, Random(1)))
    answer = words(1, 60)
    run.ask("a", answer, answer, PROMPT)
    run.run()
    assert run.drafted == [{"a": 59}]


def test_a_long_answer_is_verified_in_successive_steps(model: Path) -> None:
    run = Answers(model)
    answer = words(2, 400)
    run.ask("a", answer, answer, PROMPT)
    run.run()
    assert run.drafted == [{"a": 128}, {"a": 128}, {"a": 128}, {"a": 12}]


def test_a_prompt_in_chunks_is_drafted_for_behind_its_last_one(model: Path) -> None:
    run = Answers(model, max_batched_tokens=64)
    answer = words(3, 20)
    run.ask("a", answer, answer, words(4, 150))
    run.run()
    assert [size - sum(d.values()) for size, d in zip(run.sizes, run.drafted, strict=True)] == [
        *(64, 64, 22)
    ]
    assert run.drafted[2] == {"a": 19}


def test_other_requests_get_their_share_of_a_step(model: Path) -> None:
    run = Answers(model, max_batched_tokens=100)
    for number in range(6):
        answer = words(10 + number, 300)
        run.ask(f"r{number}", answer, answer, words(20 + number, 10))
    run.run()
    # Each running request gets something in each step.
    assert all(len(sizes) == 6 for sizes in run.drafted[1:3])


def test_a_wrong_answer_costs_no_step(model: Path) -> None:
    run = Answers(model)
    answer = words(5, 40)
    run.ask("a", answer, words(6, 40), PROMPT)
    run.run()
    assert len(run.sizes) == 40


def test_a_replaced_word_costs_one_step(model: Path) -> None:
    run = Answers(model)
    answer = words(7, 80)
    run.ask("a", answer, [*answer[:30], 501, *answer[31:]], PROMPT)
    run.run()
    assert len(run.sizes) == 2


tokens = st.integers(3, 6)
requests = st.lists(
    st.tuples(
        st.lists(tokens, min_size=1, max_size=60),
        st.lists(tokens, min_size=1, max_size=300),
        st.lists(tokens, min_size=1, max_size=300),
        st.sampled_from(["other", "same", "begins", "replaced"]),
    ),
    min_size=1,
    max_size=6,
)
DRAFTS: Mapping[str, Callable[[list[int], list[int]], list[int]]] = {
    "other": lambda _, other: other,
    "same": lambda answer, _: answer,
    "begins": lambda answer, other: [*answer[: len(answer) // 2], *other],
    "replaced": lambda answer, _: [t if i % 9 else 400 for i, t in enumerate(answer)],
}


@given(requests, st.sampled_from([64, 200, 2048]), st.sampled_from([60, 1000]), st.booleans())
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_drafts_leave_every_answer_as_it_is(
    model: Path,
    asked: list[tuple[list[int], list[int], list[int], str]],
    budget: int,
    blocks: int,
    always: bool,
) -> None:
    controller = FixedLength(LONGEST) if always else GoodputController(15, Random(1))
    run = Answers(model, controller, max_batched_tokens=budget, num_blocks=blocks)
    for number, (prompt, answer, other, kind) in enumerate(asked):
        run.ask(f"r{number}", answer, DRAFTS[kind](answer, other), prompt)
    run.run()
