"""Reads the energy counters of NVIDIA GPUs through NVML, NVIDIA's management library."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

logger = logging.getLogger(__name__)


def open_counters(gpus: Sequence[int]) -> Callable[[], list[int]] | None:
    """Return a function that reads each GPU's energy counter in mJ; None if they cannot be read.

    NVML counts since the driver was loaded, for whole GPUs of the Volta generation or newer: a GPU
    that is divided by MIG has others' energy in it, too
    (https://docs.nvidia.com/deploy/nvml-api/, `nvmlDeviceGetTotalEnergyConsumption`).

    Args:
        gpus: NVML's numbers of the GPUs, which `CUDA_VISIBLE_DEVICES` does not change.
    """
    try:
        import pynvml
    except ImportError:
        logger.warning("energy is not recorded: pip install nvidia-ml-py")
        return None
    try:
        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(gpu) for gpu in gpus]
        for gpu, handle in zip(gpus, handles, strict=True):
            if _is_divided(handle):
                logger.warning("energy is not recorded: GPU %d is divided by MIG", gpu)
                return None

        def read() -> list[int]:
            return [int(pynvml.nvmlDeviceGetTotalEnergyConsumption(each)) for each in handles]

        read()
    except pynvml.NVMLError as error:
        logger.warning("energy is not recorded: NVML: %s", error)
        return None
    return read


def _is_divided(handle: Any) -> bool:
    import pynvml

    try:
        mode, _ = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:
        return False  # GPUs before Ampere cannot be divided.
    return bool(mode == pynvml.NVML_DEVICE_MIG_ENABLE)
