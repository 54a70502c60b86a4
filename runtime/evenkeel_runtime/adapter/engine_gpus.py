"""Finds the GPUs of each engine of this server."""

from __future__ import annotations

import logging
from typing import Any

from evenkeel.settings import read_environment

logger = logging.getLogger(__name__)


def find_gpus(engine: Any) -> dict[int, tuple[int, ...]]:
    """Return NVML's numbers of the NVIDIA GPUs of each engine on this machine, by engine.

    Nothing if there are none, or if not all of them are known: with Ray, engines may run anywhere,
    several nodes have GPUs elsewhere, and a MIG device's number is not that of its GPU.
    """
    try:
        from vllm.platforms import current_platform
        from vllm.v1.engine.utils import get_physical_gpu_ids_for_local_dp_rank

        if not current_platform.is_cuda():
            return {}
        parallel = engine.vllm_config.parallel_config
        visible = current_platform.device_control_env_var
        if parallel.use_ray or parallel.data_parallel_backend == "ray":
            return {}
        if parallel.nnodes_within_dp > 1 or "MIG-" in (read_environment(visible) or ""):
            return {}
        first = parallel.data_parallel_rank_local or 0
        return {
            parallel.data_parallel_rank + place: tuple(
                get_physical_gpu_ids_for_local_dp_rank(
                    visible,
                    first + place,
                    parallel.world_size,
                    parallel.local_world_size,
                    user_assigned_gpu_ids=parallel.assigned_physical_gpu_ids,
                )
            )
            for place in range(parallel.data_parallel_size_local)
        }
    except Exception as error:
        logger.warning("energy is not recorded: cannot find the engines' GPUs: %r", error)
        return {}
