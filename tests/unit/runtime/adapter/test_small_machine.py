"""When vLLM's worker joins the engine's process, and when the user's own choice stands."""

import argparse
import os

import pytest

from evenkeel_runtime.adapter.small_machine import EXECUTOR, MOST_CORES, join_worker
from evenkeel_runtime.adapter.vllm import find_name


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "VLLM_CPU_OMP_THREADS_BIND"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def found(module: str, name: str) -> object:
    return name


def flags(**given: object) -> argparse.Namespace:
    defaults = {"distributed_executor_backend": None, "tensor_parallel_size": 1}
    return argparse.Namespace(**(defaults | given))


@pytest.mark.parametrize(("cores", "threads"), [(1, "1"), (2, "1"), (MOST_CORES, "3")])
def test_one_worker_on_a_few_cores_joins_the_engine(cores: int, threads: str) -> None:
    args = flags()
    assert join_worker(args, is_cpu=True, cores=cores, find=found)
    assert args.distributed_executor_backend == EXECUTOR
    assert os.environ["OMP_NUM_THREADS"] == threads


@pytest.mark.parametrize(
    ("given", "is_cpu", "cores"),
    [
        ({}, False, 2),
        ({}, True, MOST_CORES + 1),
        ({"tensor_parallel_size": 2}, True, 2),
        ({"pipeline_parallel_size": 2}, True, 2),
        ({"data_parallel_size": 2}, True, 2),
    ],
)
def test_elsewhere_vllm_decides(given: dict[str, object], is_cpu: bool, cores: int) -> None:
    args = flags(**given)
    assert not join_worker(args, is_cpu, cores, found)
    assert args.distributed_executor_backend is None
    assert "OMP_NUM_THREADS" not in os.environ


def test_the_users_executor_stays() -> None:
    args = flags(distributed_executor_backend="mp")
    assert not join_worker(args, is_cpu=True, cores=2, find=found)
    assert args.distributed_executor_backend == "mp"


def test_the_users_bound_threads_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0-1")
    assert not join_worker(flags(), is_cpu=True, cores=2, find=found)


def test_the_users_number_of_threads_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    assert join_worker(flags(), is_cpu=True, cores=2, find=found)
    assert os.environ["OMP_NUM_THREADS"] == "2"


def test_a_vllm_without_the_executor_is_served_as_it_is() -> None:
    args = flags()
    assert not join_worker(args, is_cpu=True, cores=2, find=lambda *_: None)
    assert args.distributed_executor_backend is None


def test_this_vllm_has_the_executor() -> None:
    module, _, name = EXECUTOR.rpartition(".")
    assert find_name(module, name) is not None
