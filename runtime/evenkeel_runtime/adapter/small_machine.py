"""On few CPU cores, run vLLM's worker inside the engine process.

vLLM's CPU platform starts the worker as a separate process, and both poll shared memory with
`sched_yield` for a second after each message (vLLM 0.32, `shm_broadcast.SpinCondition`). On two
cores that is one spinning process per core: everything else waits for up to seconds, and throughput
varies from minute to minute (docs/decisions/0162-worker-in-the-engine.md).
"""

from __future__ import annotations

import argparse
import os

from evenkeel.settings import hand_down, read_environment
from evenkeel_runtime.adapter.vllm import Find, find_name

# With many cores, vLLM's own worker process binds its threads better than we could.
MOST_CORES = 4
_MODULE, _CLASS = "vllm.v1.executor.uniproc_executor", "UniProcExecutor"
EXECUTOR = f"{_MODULE}.{_CLASS}"
_THREADS_VARIABLE = "OMP_NUM_THREADS"
# vLLM's setting for its worker's threads: whoever sets it wants vLLM's own worker.
_BINDING_VARIABLE = "VLLM_CPU_OMP_THREADS_BIND"
_SIZES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size", "nnodes")


def join_worker(
    args: argparse.Namespace, is_cpu: bool, cores: int | None = None, find: Find = find_name
) -> bool:
    """Choose the executor and its threads; return whether it was chosen.

    Nothing is chosen on a GPU, on more than `MOST_CORES` cores, for more than one worker, if the
    user chose an executor or bound threads, or if this vLLM has no such executor.

    Args:
        args: vLLM's parsed flags; `distributed_executor_backend` is set.
        is_cpu: Whether vLLM computes on the CPU.
        cores: Number of cores this process may use; None asks the system.
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
        # One core is left to the HTTP process, the exporter and other processes.
        hand_down(_THREADS_VARIABLE, str(max(1, cores - 1)))
    return True
