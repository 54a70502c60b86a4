"""vLLM's real CPU kernels: what is wrong is found by what it does, and replaced where it can be."""

import json
import os
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_runtime.adapter.verification_kernels import expand
from evenkeel_runtime.speculation.draftable import may_be_drafted, withhold_drafts
from tests.checkout import ROOT, source_path
from tests.fixtures.python_process import run_python

# A process as vLLM's worker is when it registers its kernels, which it does for each engine.
WORKER = """
import json
from vllm.platforms import current_platform
from evenkeel_runtime.adapter import verification_kernels as kernels
from evenkeel_runtime.serve.plugin import register

current_platform.import_kernels()
told = {}
current_platform.register_triton_kernel_overrides()
told["as they are"] = kernels.find_wrong()
register()
register()
for time in ("mended", "registered again"):
    current_platform.register_triton_kernel_overrides()
    told[time] = kernels.find_wrong()
told["is exact"] = kernels.mend_kernels()

from vllm.v1.sample import rejection_sampler
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

rejection_sampler.rejection_random_sample_kernel._impl = lambda *_, **__: None
told["one that cannot be replaced"] = kernels.find_wrong()
told["is exact then"] = kernels.mend_kernels()
own = GPUModelRunner.take_draft_token_ids
told["drafts are kept from sampled requests"] = []
for _ in range(2):
    kernels._keep_drafts_from_sampled()
    told["drafts are kept from sampled requests"].append(GPUModelRunner.take_draft_token_ids != own)
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told() -> tuple[dict[str, Any], str]:
    """What the worker printed, and what it logged."""
    done = run_python(
        "-W", "ignore", "-c", WORKER, cwd=ROOT, env=dict(os.environ) | {"PYTHONPATH": source_path()}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def test_a_wrong_kernel_is_replaced_each_time_vllm_registers_its_own(
    told: tuple[dict[str, Any], str],
) -> None:
    said, log = told
    # Should a release of vLLM mend it, this is the first to know, and the rest still holds.
    assert said["as they are"] == ["expand_kernel"]
    assert said["mended"] == said["registered again"] == []
    assert said["is exact"] is True
    assert log.count("replaced it") == 1


def test_what_cannot_be_replaced_takes_drafts_from_sampled_requests(
    told: tuple[dict[str, Any], str],
) -> None:
    said, log = told
    assert said["one that cannot be replaced"] == ["rejection_random_sample_kernel"]
    assert said["is exact then"] is False
    assert said["drafts are kept from sampled requests"] == [True, True]
    assert log.count("no drafts for sampled requests") == 1


@given(
    rows=st.lists(
        st.tuples(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 5)),
        min_size=1,
    ),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.int32, torch.int64]),
    spare=st.integers(0, 3),
)
@settings(max_examples=200, deadline=None)
def test_each_request_has_its_value_once_for_each_token(
    rows: list[tuple[float, int]], dtype: torch.dtype, spare: int
) -> None:
    is_float = dtype.is_floating_point
    values = [value if is_float else int(value) % 7 for value, _ in rows]
    ends, total = [], 0
    for _, count in rows:
        total += count
        ends.append(total)
    output = torch.full((total + spare,), 99, dtype=dtype)
    expand(output, torch.tensor(values, dtype=dtype), torch.tensor(ends, dtype=torch.int32), 0, 1)
    expected = [
        v if v else 1 for v, (_, count) in zip(values, rows, strict=True) for _ in range(count)
    ]
    assert output.tolist() == [*torch.tensor(expected, dtype=dtype).tolist(), *[99] * spare]


@pytest.mark.parametrize(
    ("params", "is_exact", "expected"),
    [
        pytest.param({}, True, True, id="greedy"),
        pytest.param({}, False, True, id="greedy beside wrong kernels"),
        pytest.param({"temperature": 0.8}, True, True, id="sampled"),
        pytest.param({"temperature": 0.8}, False, False, id="sampled by wrong kernels"),
        pytest.param({"temperature": 0.8, "seed": 0}, True, False, id="seeded"),
        pytest.param({"seed": 3}, True, True, id="greedy with a seed"),
        pytest.param({"temperature": 0.8, "min_p": 0.1}, True, False, id="min_p"),
        pytest.param({"min_p": 0.1}, True, True, id="min_p, which says nothing where greedy"),
        pytest.param({"logit_bias": {5: 1.0}}, True, False, id="logit_bias"),
        pytest.param({"min_tokens": 5}, True, False, id="min_tokens"),
        pytest.param({"presence_penalty": 0.5, "bad_words": ["x"]}, True, True, id="penalties"),
    ],
)
def test_who_may_be_drafted_for(params: dict[str, Any], is_exact: bool, expected: bool) -> None:
    from vllm import SamplingParams

    sampling = SamplingParams(**({"temperature": 0.0} | params))
    assert may_be_drafted(sampling, is_exact) is expected
    drafts = SimpleNamespace(req_ids=["a", "gone"], draft_token_ids=[[1, 2], [3]])
    requests = {"a": SimpleNamespace(sampling_params=sampling)}
    kept = withhold_drafts(drafts, requests, is_exact)
    assert kept.draft_token_ids == [[1, 2] if expected else [], [3]]


def test_no_drafts_are_no_drafts() -> None:
    assert withhold_drafts(None, {}, True) is None
