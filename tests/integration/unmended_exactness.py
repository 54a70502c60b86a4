"""Runs `bench/exactness.py` with vLLM's kernels as they are: bench and watch must notice.

Run as a program. There is no setting for this; only the function that mends is put out of action,
and without `--watched` the limit at which the watch would take the drafts away.
"""

from __future__ import annotations

import math
import sys

from bench import exactness


def leave_kernels_wrong() -> None:
    from evenkeel_runtime.adapter import verification_kernels

    verification_kernels.mend_kernels = lambda: True
    # A top-k from uninitialised memory ends the engine before there is anything to compare.
    exactness.SETTINGS = tuple(s for s in exactness.SETTINGS if not s.top_k)


def leave_kernels_wrong_unwatched() -> None:
    from evenkeel_runtime.speculation import sampled_watch

    sampled_watch.LOG_LIMIT = math.inf
    leave_kernels_wrong()


if __name__ == "__main__":
    if "--watched" in sys.argv:
        sys.argv.remove("--watched")
        sys.exit(exactness.main(prepare=leave_kernels_wrong))
    sys.exit(exactness.main(prepare=leave_kernels_wrong_unwatched))
