"""Drafts under vLLM's own asynchronous scheduler; a made-up model says what each step samples.

On a GPU vLLM schedules a step before it knows what the one ahead of it made. Its scheduler runs
anywhere: here it is asked in that order, and told what a model with fixed answers would sample.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.utils.hashing import sha256
from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
from vllm.v1.core.sched.output import SchedulerOutput
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import DraftTokenIds, ModelRunnerOutput
from vllm.v1.request import Request, RequestStatus
from vllm.v1.structured_output import StructuredOutputManager

from evenkeel_runtime.adapter.scheduler import AsyncLedgerScheduler
from evenkeel_runtime.adapter.speculative_scheduler import (
    AsyncSpeculativeScheduler,
    SpeculativeScheduler,
)
from evenkeel_runtime.demo_model.checkpoint import target_path
from evenkeel_runtime.speculation.flags import speculation_flags
from tests.fixtures.fixed_length import FixedLength

ANSWER_TOKENS = 40
NUM_BLOCKS = 200
BLOCK_TOKENS = 16


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch, no_internal_error: None) -> VllmConfig:
    """As it is on a GPU, where alone vLLM has its V2 model runner."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    flags = speculation_flags(15, is_cpu=False, is_ahead=True)
    config = EngineArgs(
        model=str(target_path()),
        speculative_config=flags.config,
        scheduler_cls=flags.scheduler_class,
        max_model_len=512,
        max_num_seqs=8,
        enforce_eager=True,
    ).create_engine_config()
    config.cache_config.num_gpu_blocks = NUM_BLOCKS
    config.scheduler_config.async_scheduling = True
    monkeypatch.setattr(VllmConfig, "use_v2_model_runner", True)
    return config


def new_scheduler(config: VllmConfig, num_blocks: int = NUM_BLOCKS) -> Any:
    kind = FullAttentionSpec(
        block_size=BLOCK_TOKENS, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    config.cache_config.num_gpu_blocks = num_blocks
    init_none_hash(sha256)
    return SpeculativeScheduler(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(num_blocks, [], [KVCacheGroupSpec(["layer"], kind)]),
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK_TOKENS,
        log_stats=True,
    )


def make_scheduler(config: VllmConfig, num_blocks: int = NUM_BLOCKS) -> Any:
    """A scheduler that drafts as many tokens as there are."""
    scheduler = new_scheduler(config, num_blocks)
    scheduler.evenkeel_speculation.controller = FixedLength(15)
    return scheduler


class Model:
    """Runs a scheduler two steps deep, as vLLM's engine does, over fixed answers.

    Args:
        scheduler: Of vLLM, with our hook.
    """

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.answers: dict[str, list[int]] = {}
        self.made: dict[str, list[int]] = {}
        self.num_steps = 0
        self.num_resumed = 0
        self.accepted: list[tuple[int, int]] = []
        self._under_way: deque[SchedulerOutput] = deque()
        self._computed: dict[str, int] = {}

    def ask(self, request_id: str, prompt: Sequence[int], answer: Sequence[int]) -> None:
        params = SamplingParams(temperature=0, max_tokens=len(answer), ignore_eos=True)
        params.update_from_generation_config({}, eos_token_id=None)
        self.answers[request_id], self.made[request_id] = list(answer), []
        hasher = get_request_block_hasher(BLOCK_TOKENS, sha256)
        request = Request(request_id, list(prompt), params, None, block_hasher=hasher)
        self.scheduler.add_request(request)

    def run(self, steps: int = 500) -> None:
        """Run until nothing is left to do."""
        while self.scheduler.has_requests() or self._under_way:
            steps -= 1
            assert steps, "it does not end"
            self.step()

    def step(self) -> None:
        """What `EngineCore.step_with_batch_queue` does: schedule first, then look at the oldest."""
        if self.scheduler.has_requests():
            output = self.scheduler.schedule()
            self._under_way.append(output)
            if output.total_num_scheduled_tokens and len(self._under_way) < 2:
                return
        if self._under_way:
            output = self._under_way.popleft()
            self.num_steps += bool(output.num_scheduled_tokens)
            self.scheduler.update_from_output(output, self._compute(output))

    def _compute(self, output: SchedulerOutput) -> ModelRunnerOutput:
        # The V2 model runner is told of a request that was preempted as of a new one.
        for new in output.scheduled_new_reqs:
            self.num_resumed += new.req_id in self._computed
            self._computed[new.req_id] = new.num_computed_tokens
        ids = list(output.num_scheduled_tokens)
        sampled = [self._sample(i, output) for i in ids]
        return ModelRunnerOutput(ids, {i: n for n, i in enumerate(ids)}, sampled)

    def _sample(self, request_id: str, output: SchedulerOutput) -> list[int]:
        draft = output.scheduled_spec_decode_tokens.get(request_id, [])
        assert -1 not in draft, "a place kept for a proposer's draft"
        request = self.scheduler.requests.get(request_id)
        self._computed[request_id] += output.num_scheduled_tokens[request_id] - len(draft)
        if request is None:
            return []
        at = self._computed[request_id] - request.num_prompt_tokens
        if at < 0:
            return []
        rest = self.answers[request_id][at:]
        accepted = 0
        while accepted < len(draft) and rest[accepted : accepted + 1] == [draft[accepted]]:
            accepted += 1
        if draft:
            self.accepted.append((len(draft), accepted))
        self._computed[request_id] += accepted
        # Where the answer is over, vLLM cuts off what a step made too much of.
        sampled = [*rest, 0][: accepted + 1]
        self.made[request_id] = self.answers[request_id][:at] + sampled
        return sampled


@pytest.fixture
def model(config: VllmConfig) -> Iterator[Model]:
    scheduler = make_scheduler(config)
    assert type(scheduler) is AsyncSpeculativeScheduler
    yield Model(scheduler)
    assert scheduler.evenkeel_speculation is not None, "drafting was given up"


def answer_of(seed: int) -> list[int]:
    return [100 + (seed * 7919 + i * i * 31 + i * 17) % 1800 for i in range(ANSWER_TOKENS)]


def check(model: Model, answers: Mapping[str, Sequence[int]]) -> None:
    for request_id, answer in answers.items():
        assert model.made[request_id][:ANSWER_TOKENS] == answer, request_id


def test_a_second_answer_takes_a_few_steps_and_is_the_same(model: Model) -> None:
    prompt, answer = list(range(50, 70)), answer_of(1)
    model.ask("first", prompt, answer)
    model.run()
    assert model.num_steps >= ANSWER_TOKENS
    before = model.num_steps
    model.ask("second", prompt, answer)
    model.run()
    # A prompt, a token, and drafts of up to 15 with a token each.
    assert model.num_steps - before <= 6
    assert model.accepted
    assert all(drafted == accepted for drafted, accepted in model.accepted)
    check(model, {"first": answer, "second": answer})


def test_answers_that_part_from_the_past_come_out_right(model: Model) -> None:
    prompt, answer = list(range(50, 70)), answer_of(2)
    model.ask("first", prompt, answer)
    model.run()
    others = {f"other {at}": [*answer[:at], 99, *answer[at + 1 :]] for at in (0, 1, 2, 9, 17, 39)}
    for request_id, other in others.items():
        model.ask(request_id, prompt, other)
    model.run()
    check(model, others)
    assert any(accepted < drafted for drafted, accepted in model.accepted)


def test_requests_that_come_and_go_while_others_are_drafted(model: Model) -> None:
    prompt, answer = list(range(50, 70)), answer_of(3)
    model.ask("first", prompt, answer)
    model.run()
    model.ask("short", prompt, answer[:3])
    model.ask("long", prompt, answer)
    for _ in range(3):
        model.step()
    model.ask("late", [*prompt, 71], answer_of(4))
    model.step()
    model.scheduler.finish_requests("long", RequestStatus.FINISHED_ABORTED)
    model.run()
    check(model, {"late": answer_of(4)})
    assert model.made["short"][:3] == answer[:3]


def test_requests_that_are_preempted_go_on(config: VllmConfig) -> None:
    scheduler = make_scheduler(config, num_blocks=14)
    model = Model(scheduler)
    prompt = list(range(50, 90))
    answers = {f"r{n}": answer_of(n % 2) for n in range(6)}
    model.ask("first", prompt, answer_of(0))
    model.run()
    for request_id, answer in answers.items():
        model.ask(request_id, prompt, answer)
    model.run()
    assert model.num_resumed
    check(model, answers)


def test_without_the_second_runner_nothing_of_ours_is_drafted(
    config: VllmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VllmConfig, "use_v2_model_runner", False)
    assert type(new_scheduler(config)) is AsyncLedgerScheduler


def test_where_drafts_cannot_be_verified_nothing_is_drafted(
    config: VllmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As with several engines or stages, for which vLLM's scheduler wants more than a config.
    monkeypatch.setattr(
        "evenkeel_runtime.adapter.speculative_scheduler.drafts_ahead", lambda _: False
    )
    scheduler: Any = new_scheduler(config)
    assert type(scheduler) is AsyncSpeculativeScheduler
    assert scheduler.evenkeel_speculation is None
    assert scheduler._evenkeel_errors == 1
    model = Model(scheduler)
    for request_id in ("first", "second"):
        model.ask(request_id, list(range(50, 70)), answer_of(1))
        model.run()
    check(model, {"first": answer_of(1), "second": answer_of(1)})
    assert not model.accepted


def test_a_hook_that_failed_schedules_no_place_of_a_draft(config: VllmConfig) -> None:
    config.scheduler_config.async_scheduling = False
    scheduler = make_scheduler(config)
    model = Model(scheduler)
    model.ask("a", list(range(50, 70)), answer_of(1))
    scheduler.evenkeel_speculation = None
    output = scheduler.schedule()
    scheduler.update_from_output(output, model._compute(output))
    scheduler.update_draft_token_ids(DraftTokenIds(["a"], [[-1] * 15]))
    assert scheduler.schedule().scheduled_spec_decode_tokens == {}
