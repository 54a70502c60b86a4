"""On a few CPU cores, has vLLM run its worker inside the engine's process.

vLLM's CPU platform starts the worker as a process of its own, and both poll shared memory with
`sched_yield` for a second after each message (vLLM 0.32, `shm_broadcast.SpinCondition`). On two
cores that is a spinning process for each core: everything else waits for up to seconds, and
throughput changes from one minute to the next (docs/decisions/0162-worker-in-the-engine.md).
"""

from __future__ import annotations

import argparse
import os

from evenkeel.settings import hand_down, read_environment
from evenkeel_runtime.adapter.vllm import Find, find_name

# Where cores are plenty, vLLM's own worker process binds its threads better than we could.
MOST_CORES = 4
_MODULE, _CLASS = "vllm.v1.executor.uniproc_executor", "UniProcExecutor"
EXECUTOR = f"{_MODULE}.{_CLASS}"
_THREADS_VARIABLE = "OMP_NUM_THREADS"
# vLLM's own setting for the threads of its worker: who gives it wants vLLM's own worker.
_BINDING_VARIABLE = "VLLM_CPU_OMP_THREADS_BIND"
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "nnodes")


def join_worker(
    args: argparse.Namespace, is_cpu: bool, cores: int | None = None, find: Find = find_name
) -> bool:
    """Choose the executor, and the threads it computes with; returns whether it was chosen.

    Nothing is chosen on a GPU, on more than `MOST_CORES` cores, for more than one worker, where
    the user chose an executor or bound threads, or where this vLLM has no such executor.

    Args:
        args: vLLM's parsed flags; `distributed_executor_backend` is set.
        is_cpu: Whether vLLM computes on the CPU.
        cores: How many cores this process may use; None asks the system.
        find: Returns a name of a module, or None.
    """
    cores = len(os.sched_getaffinity(0)) if cores is None else cores
    if not is_cpu or cores > MOST_CORES or any((getattr(args, n, 1) or 1) > 1 for n in _SIZES):
        return False
    if args.distributed_executor_backend is not None:
        return False
    if read_environment(_BINDING_VARIABLE) is not None or find(_MODULE, _CLASS) is None:
        return False
    args.distributed_executor_backend = EXECUTOR
    if read_environment(_THREADS_VARIABLE) is None:
        # One core is left to the HTTP process, the exporter, and whoever else is on the machine.
        hand_down(_THREADS_VARIABLE, str(max(1, cores - 1)))
    return True
