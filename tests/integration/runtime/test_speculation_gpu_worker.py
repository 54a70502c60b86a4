"""What the GPU worker writes, and when, on tensors in the CPU's memory; it runs on a GPU only."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from vllm.config import SpeculativeConfig

from evenkeel_runtime.adapter.gpu_worker import DraftedStepWorker, propose_nothing, write_drafts
from evenkeel_runtime.adapter.vllm import find_name
from evenkeel_runtime.serve.speculation import can_draft_ahead
from evenkeel_runtime.speculation.flags import drafts_ahead, speculation_flags


def make_states() -> SimpleNamespace:
    return SimpleNamespace(
        req_id_to_index={"a": 2, "b": 0}, draft_tokens=torch.full((3, 4), -1, dtype=torch.int64)
    )


def test_drafts_are_written_to_the_rows_of_their_requests() -> None:
    states = make_states()
    write_drafts(states, {"a": [7, 8, 9], "gone": [5], "b": [3]})
    assert states.draft_tokens[2].tolist() == [7, 8, 9, -1]
    assert states.draft_tokens[0, :1].tolist() == [3]
    assert states.draft_tokens[1].tolist() == [-1] * 4


def test_requests_that_left_are_passed_over() -> None:
    states = make_states()
    write_drafts(states, {"gone": [5]})
    assert (states.draft_tokens == -1).all()


def test_where_writing_fails_the_table_holds_tokens_and_it_is_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    worker = object.__new__(DraftedStepWorker)
    worker._evenkeel_states = make_states()
    worker._evenkeel_states.req_id_to_index = None
    for _ in range(2):
        worker._evenkeel_write({"a": [7]})
    assert (worker._evenkeel_states.draft_tokens == 0).all()
    assert caplog.text.count("cannot write drafts") == 1


def test_the_proposer_says_nothing_and_keeps_its_shape() -> None:
    speculator = SimpleNamespace(drafts=torch.zeros((3, 4)))
    assert propose_nothing(speculator, SimpleNamespace(num_reqs=2), 1, x=2).shape == (2, 4)


def test_the_worker_is_vllms_own_with_two_methods_more() -> None:
    flags = speculation_flags(15, is_cpu=False, is_ahead=True)
    module, _, name = flags.worker_class.rpartition(".")
    assert (module, name) == (DraftedStepWorker.__module__, DraftedStepWorker.__name__)
    own = {n for n in vars(DraftedStepWorker) if not n.startswith("_")}
    assert own == {"load_model", "execute_model"}
    assert all(hasattr(DraftedStepWorker.__mro__[1], n) for n in own)


@pytest.mark.parametrize(
    ("runner_is_v2", "stages", "engines", "is_ahead"),
    [(True, 1, 1, True), (False, 1, 1, False), (True, 2, 1, False), (True, 1, 2, False)],
)
def test_where_drafts_are_made_ahead(
    runner_is_v2: bool, stages: int, engines: int, is_ahead: bool
) -> None:
    # vLLM itself reads the flags, and finds neither fault nor another method in them.
    own = speculation_flags(15, is_cpu=False, is_ahead=True).config
    speculative = SpeculativeConfig(
        **own, target_model_config=None, target_parallel_config=None, enforce_eager=True
    )
    config = SimpleNamespace(
        speculative_config=speculative,
        use_v2_model_runner=runner_is_v2,
        parallel_config=SimpleNamespace(pipeline_parallel_size=stages, data_parallel_size=engines),
    )
    assert drafts_ahead(config) is is_ahead


@pytest.mark.parametrize(
    ("is_cuda", "missing", "can"),
    [
        (True, None, True),
        (False, None, False),
        (True, "async_tensor_h2d", False),
        (True, "GPUModelRunner", False),
        (True, "NgramGPUSpeculator", False),
    ],
)
def test_drafts_are_made_ahead_only_where_all_is_there(
    is_cuda: bool, missing: str | None, can: bool
) -> None:
    def find(module: str, name: str) -> Any:
        if name == "current_platform":
            return SimpleNamespace(is_cuda=lambda: is_cuda)
        return None if name == missing else find_name(module, name)

    assert can_draft_ahead(find) is can
