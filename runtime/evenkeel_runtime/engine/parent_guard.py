"""Ends the engine's process when its server dies, however it dies."""

from __future__ import annotations

import ctypes
import logging
import multiprocessing
import os
import signal
import sys

logger = logging.getLogger(__name__)

# linux/prctl.h
_PR_SET_PDEATHSIG = 1


def end_with_parent() -> bool:
    """Have the kernel end this process when the one that started it is gone; whether it will.

    Without it, a server killed with SIGKILL leaves its engine, and the engine's memory, behind
    until the engine notices by itself. Linux only; nothing is done in a process that
    multiprocessing did not start, such as a server with its engine inside.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        logger.warning(
            "prctl failed, errno=%d: a killed server leaves its engine", ctypes.get_errno()
        )
        return False
    if os.getppid() != parent.pid:
        # It died before the kernel was told.
        os.kill(os.getpid(), signal.SIGKILL)
    return True
