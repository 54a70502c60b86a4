"""Finds the GPUs of each engine of this server."""

from __future__ import annotations

import logging
from typing import Any

logger = logging.getLogger(__name__)


def find_gpus(engine: Any) -> dict[int, tuple[int, ...]]:
    """Return NVML's numbers of the NVIDIA GPUs of each engine on this machine, by engine.

    Nothing if there are none, or if they are not known: with Ray, engines may run anywhere.
    """
    try:
        from vllm.platforms import current_platform
        from vllm.v1.engine.utils import get_physical_gpu_ids_for_local_dp_rank

        if not current_platform.is_cuda():
            return {}
        parallel = engine.vllm_config.parallel_config
        if parallel.use_ray:
            return {}
        first = parallel.data_parallel_rank_local or 0
        return {
            parallel.data_parallel_rank + place: tuple(
                get_physical_gpu_ids_for_local_dp_rank(
                    current_platform.device_control_env_var,
                    first + place,
                    parallel.world_size,
                    parallel.local_world_size,
                    user_assigned_gpu_ids=parallel.assigned_physical_gpu_ids,
                )
            )
            for place in range(max(parallel.data_parallel_size_local, 1))
        }
    except Exception as error:
        logger.warning("energy is not recorded: unsupported vLLM version: %r", error)
        return {}
