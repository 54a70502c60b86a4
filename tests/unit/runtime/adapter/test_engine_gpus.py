"""The GPUs of engines, as NVML numbers them."""

from types import SimpleNamespace
from typing import Any

import pytest
import vllm.platforms
import vllm.v1.engine.utils
from vllm.config import ParallelConfig
from vllm.platforms.interface import Platform, PlatformEnum

from evenkeel_runtime.adapter.engine_gpus import find_gpus

TWO_OF_TWO = {"tensor_parallel_size": 2, "data_parallel_size": 2, "data_parallel_size_local": 2}


class Cuda(Platform):
    _enum = PlatformEnum.CUDA
    device_name = "cuda"
    device_control_env_var = "CUDA_VISIBLE_DEVICES"


def engine(**parallel: Any) -> Any:
    config = ParallelConfig(distributed_executor_backend="mp", **parallel)
    return SimpleNamespace(vllm_config=SimpleNamespace(parallel_config=config))


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let vLLM number GPUs as with CUDA, whose own platform needs CUDA's libraries."""
    cuda = Cuda()
    monkeypatch.setattr(vllm.platforms, "_current_platform", cuda)
    monkeypatch.setattr(vllm.v1.engine.utils, "current_platform", cuda)


@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize(
    ("visible", "parallel", "gpus"),
    [
        pytest.param("", {}, {0: (0,)}, id="one"),
        pytest.param("", TWO_OF_TWO, {0: (0, 1), 1: (2, 3)}, id="in order"),
        pytest.param("6,3,5,1", TWO_OF_TWO, {0: (6, 3), 1: (5, 1)}, id="as CUDA shows them"),
        pytest.param(
            "",
            {**TWO_OF_TWO, "assigned_physical_gpu_ids": [7, 6, 5, 4]},
            {0: (7, 6), 1: (5, 4)},
            id="as --device-ids says",
        ),
        pytest.param(
            "",
            {**TWO_OF_TWO, "data_parallel_size": 4, "data_parallel_rank": 2},
            {2: (0, 1), 3: (2, 3)},
            id="the second half on a machine of its own",
        ),
        pytest.param("MIG-41b3", {}, {}, id="a slice of a GPU"),
        pytest.param("", {**TWO_OF_TWO, "data_parallel_backend": "ray"}, {}, id="placed by Ray"),
        pytest.param("", {"tensor_parallel_size": 4, "nnodes": 2}, {}, id="half elsewhere"),
        pytest.param(
            "",
            {**TWO_OF_TWO, "data_parallel_size_local": 0, "data_parallel_size": 4},
            {},
            id="all elsewhere",
        ),
    ],
)
def test_each_engine_has_the_gpus_that_vllm_gives_it(
    visible: str,
    parallel: dict[str, Any],
    gpus: dict[int, tuple[int, ...]],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    configured = engine(**parallel)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_gpus(configured) == gpus
    assert not caplog.text


@pytest.mark.usefixtures("platform")
def test_gpus_that_cannot_be_found_are_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert find_gpus(engine(**TWO_OF_TWO)) == {}
    (record,) = caplog.records
    assert "cannot find the engines' GPUs" in record.getMessage()
