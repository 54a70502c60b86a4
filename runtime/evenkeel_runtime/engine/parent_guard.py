"""End the engine's process when its server dies, for whatever reason."""

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
    """Make the kernel kill this process when its parent dies; return whether that is set up.

    Without it, a server killed with SIGKILL leaves its engine running, and its memory allocated,
    until the engine notices. Linux only; does nothing in a process that multiprocessing did not
    start, such as a server with an in-process engine.
    """
    parent = multiprocessing.parent_process()
    if parent is None or not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        logger.warning(
            "prctl failed, errno=%d: a killed server leaves its engine running", ctypes.get_errno()
        )
        return False
    if os.getppid() != parent.pid:
        # The parent died before the call took effect.
        os.kill(os.getpid(), signal.SIGKILL)
    return True
