"""Keep a seeded request whose prompt takes several steps from ending a CPU engine (vLLM 0.32).

Each step samples a token for each of its requests; while a prompt is not complete, that token is
discarded. Then vLLM takes the request's random generator back by an offset
(vllm/v1/worker/gpu_model_runner.py, `_bookkeeping_sync`), which a generator on a CPU does not have:
the engine dies, and every request with it. So during such a step the generator is set aside. The
token is drawn from the shared one, and the answer is the one that the seed promises.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

_MARK = "_evenkeel_sets_aside"


def mend_seeds() -> bool:
    """Change vLLM's runner for the CPU if its generators have no offset; return whether it is."""
    try:
        torch.Generator("cpu").get_offset()
    except RuntimeError:
        pass
    else:
        return False
    from vllm.v1.worker.cpu_model_runner import CPUModelRunner

    own = CPUModelRunner.sample_tokens
    if hasattr(own, _MARK):
        return True

    @wraps(own)
    def sample_tokens(runner: Any, *args: Any, **options: Any) -> Any:
        with unused_generators_set_aside(runner):
            return own(runner, *args, **options)

    setattr(sample_tokens, _MARK, True)
    CPUModelRunner.sample_tokens = sample_tokens
    return True


@contextmanager
def unused_generators_set_aside(runner: Any) -> Iterator[None]:
    """Remove the generators of those requests whose token of this step is discarded, and restore.

    Args:
        runner: vLLM's model runner, between executing a step and sampling it.
    """
    batch = runner.input_batch
    generators = batch.generators
    is_discarded = runner.discard_request_mask.np[: batch.num_reqs]
    aside = {place: generators.pop(place) for place in list(generators) if is_discarded[place]}
    try:
        yield
    finally:
        generators.update(aside)
