"""Test the draft verification kernels by example, and replace a broken one (vLLM 0.32).

On the CPU vLLM runs replacements of its Triton kernels (vllm/utils/cpu_triton_utils.py). That of
`expand_kernel` converts its output to int64 and does not write a float or int32 output back, so
temperatures, top-p and top-k of drafted positions are uninitialised memory: sampled answers are
garbage, greedy ones are correct. Every kernel that sampled answers depend on is tested by an
example with a known result, in each process that runs them.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import cache, wraps
from typing import Any

import torch

from evenkeel_runtime.adapter.seeded_prompts import mend_seeds

logger = logging.getLogger(__name__)

_EXPAND = "expand_kernel"
_MARK = "_evenkeel"
_VOCABULARY = 6
# Three requests; the second has no draft.
_ENDS = (2, 2, 5)
_DRAFTS = (0, 2, 3, 1, 0)
_NONE = -1


def mend_kernels() -> bool:
    """Return whether this process verifies sampled drafts correctly; for vLLM on a CPU.

    A broken kernel is replaced, with one warning; one that cannot be replaced gets another. Call it
    again whenever vLLM registers its kernels: each engine of a process does.
    """
    _register()
    wrong = find_wrong()
    if _EXPAND in wrong:
        _warn_once(
            f"vLLM's CPU kernel {_EXPAND} discards its output, which corrupts sampled "
            "answers with drafts; replaced it"
        )
        _replace_expand()
        wrong = find_wrong()
    if wrong:
        _warn_once(
            f"no drafts for sampled requests: verification is broken here ({', '.join(wrong)})"
        )
    return not wrong


@cache
def _warn_once(message: str) -> None:
    logger.warning("%s", message)


def mend_when_registered() -> None:
    """Test the kernels as soon as vLLM's platform has installed its own.

    vLLM loads plugins just before that, in each worker (vllm/v1/worker/worker_base.py). If they
    stay broken, sampled requests do not get vLLM's own drafts.
    """
    from vllm.platforms import current_platform

    platform = type(current_platform)
    own = platform.register_triton_kernel_overrides
    if not current_platform.is_cpu() or hasattr(own, _MARK):
        return

    @wraps(own)
    def register(_: Any) -> None:
        own()
        try:
            is_right = mend_kernels()
        except Exception as error:
            is_right = False
            logger.warning(
                "no drafts for sampled requests: vLLM's verification was not tested: %r", error
            )
        if not is_right:
            _keep_drafts_from_sampled()
        try:
            mend_seeds()
        except Exception as error:
            logger.warning("seeded requests with long prompts may crash the engine: %r", error)

    setattr(register, _MARK, True)
    platform.register_triton_kernel_overrides = classmethod(register)


def find_wrong() -> list[str]:
    """Return the names of the kernels that give wrong results."""
    return [name for name, is_right in _TESTS.items() if not _passes(is_right)]


def expand(
    output: torch.Tensor,
    values: torch.Tensor,
    ends: torch.Tensor,
    replace_from: float,
    replace_to: float,
    max_tokens: int | None = None,
) -> None:
    """Write each request's value once per token, like vLLM's `expand_kernel`.

    Args:
        output: [tokens], written.
        values: [requests].
        ends: [requests], the number of tokens up to and including each request's.
        replace_from: A value to replace.
        replace_to: Its replacement.
        max_tokens: The kernel's block size; not needed.
    """
    counts = torch.diff(ends, prepend=ends.new_zeros(1)).to(torch.int64)
    kept = torch.where(values == replace_from, torch.full_like(values, replace_to), values)
    expanded = torch.repeat_interleave(kept, counts)
    output[: expanded.shape[0]].copy_(expanded)


def _register() -> None:
    """Register vLLM's own kernels, which a process without a worker does not do."""
    from vllm.platforms import current_platform
    from vllm.triton_utils.dispatcher import KernelOverride
    from vllm.v1.sample import rejection_sampler

    if not isinstance(getattr(rejection_sampler, _EXPAND, None), KernelOverride):
        current_platform.import_kernels()
        # vLLM reads each name of each loaded module, including those deprecated by torch.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            current_platform.register_triton_kernel_overrides()


def _replace_expand() -> None:
    from vllm.triton_utils.dispatcher import KernelOverride, register_kernels
    from vllm.v1.sample import rejection_sampler

    kernel = getattr(rejection_sampler, _EXPAND)
    if isinstance(kernel, KernelOverride) and hasattr(kernel, "_impl"):
        # A stand-in: to register a kernel, vLLM scans everything imported, and fails at objects
        # without a proper `__dict__`.
        kernel._impl = expand
        return
    register_kernels({f"vllm.v1.sample.rejection_sampler.{_EXPAND}": expand})


def _keep_drafts_from_sampled() -> None:
    """Make vLLM's runner (one class for CPU and GPU) hand over drafts of greedy requests only."""
    from vllm.v1.worker.gpu_model_runner import GPUModelRunner

    from evenkeel_runtime.speculation.draftable import withhold_drafts

    own = GPUModelRunner.take_draft_token_ids
    if hasattr(own, _MARK):
        return

    @wraps(own)
    def take(runner: Any) -> Any:
        return withhold_drafts(own(runner), runner.requests, is_sampling_exact=False)

    setattr(take, _MARK, True)
    GPUModelRunner.take_draft_token_ids = take


def _passes(is_right: Callable[[], bool]) -> bool:
    try:
        return is_right()
    except Exception as error:
        logger.debug("cannot test a kernel: %r", error, exc_info=error)
        return False


def _expands() -> bool:
    """Temperatures and top-p are float, top-k is int32; 0 means greedy and becomes 1."""
    from vllm.v1.sample.rejection_sampler import expand_batch_to_tokens

    ends = torch.tensor(_ENDS, dtype=torch.int32)
    examples = (
        (torch.tensor([0.0, 0.5, 1.25]), [1.0, 1.0, 1.25, 1.25, 1.25]),
        (torch.tensor([3, 0, 7], dtype=torch.int32), [3, 3, 7, 7, 7]),
        (torch.tensor([3, 0, 7], dtype=torch.int64), [3, 3, 7, 7, 7]),
    )
    return all(
        expand_batch_to_tokens(values, ends, len(_DRAFTS), 0, 1).tolist() == expected
        for values, expected in examples
    )


def _target() -> torch.Tensor:
    rows = [
        [0.5, 0.5, 0.0, 0.0, 0.0, 0.0],
        [0.0625, 0.1875, 0.75, 0.0, 0.0, 0.0],
        [0.0, 0.0, 0.0, 1.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        [0.25, 0.25, 0.5, 0.0, 0.0, 0.0],
    ]
    return torch.tensor(rows)


def _verifies() -> bool:
    """Accepted while uniform < target / draft; then the recovered token; bonus if all were."""
    from vllm.v1.sample.rejection_sampler import _rejection_random_sample

    half = torch.full((len(_DRAFTS), _VOCABULARY), 0.5)
    examples = (
        # Without draft probabilities a draft counts as certain; with them twice as much is
        # accepted.
        (None, [0.49, 0.76, 0.9, 0.9, 0.24], [[0, 5, _NONE, _NONE], [3], [3, 1, 0, 2]]),
        (half, [0.99, 0.76, 0.9, 0.9, 0.51], [[0, 2, 4, _NONE], [3], [3, 1, 5, _NONE]]),
    )
    return all(
        _run_random(_rejection_random_sample, draft_probs, uniform)
        == [row + [_NONE] * (4 - len(row)) for row in expected]
        for draft_probs, uniform, expected in examples
    )


def _run_random(
    kernel: Callable[..., None], draft_probs: torch.Tensor | None, uniform: list[float]
) -> list[list[int]]:
    output = torch.full((3, 4), _NONE, dtype=torch.int32)
    kernel(
        output,
        torch.tensor(_ENDS, dtype=torch.int32),
        torch.tensor(_DRAFTS, dtype=torch.int32),
        draft_probs,
        _target(),
        torch.tensor([[4], [3], [2]], dtype=torch.int64),
        torch.full((len(_DRAFTS),), 5, dtype=torch.int32),
        torch.tensor(uniform, dtype=torch.float64),
        torch.tensor([False, False, False]),
        3,
        None,
    )
    return list(output.tolist())


def _verifies_greedy() -> bool:
    """Greedy rows hold the target's best tokens up to the first mismatch; others are unchanged."""
    from vllm.v1.sample.rejection_sampler import _rejection_greedy_sample

    output = torch.full((3, 4), _NONE, dtype=torch.int32)
    _rejection_greedy_sample(
        output,
        torch.tensor(_ENDS, dtype=torch.int32),
        torch.tensor(_DRAFTS, dtype=torch.int32),
        torch.tensor([0, 1, 3, 1, 0], dtype=torch.int64),
        torch.tensor([[4], [3], [2]], dtype=torch.int64),
        torch.tensor([True, True, False]),
        3,
        None,
        None,
    )
    expected = [[0, 1, _NONE, _NONE], [3, _NONE, _NONE, _NONE], [_NONE] * 4]
    return bool(output.tolist() == expected)


def _recovers() -> bool:
    """The token with most (target - draft) * inverse noise; a draft without its own is certain."""
    from vllm.v1.sample.rejection_sampler import _sample_recovered_tokens

    noise = torch.ones(3, _VOCABULARY)
    noise[2, 0] = 2.5
    draft = torch.zeros(len(_DRAFTS), _VOCABULARY)
    draft[0, 1], draft[1, 2], draft[4, 0] = 0.25, 0.75, 0.125
    # Rows where the target is certain have nothing to recover and are not compared.
    for probabilities, expected in ((None, (1, 1, 2)), (draft, (0, 1, 2))):
        recovered = torch.full((len(_DRAFTS),), _NONE, dtype=torch.int32)
        _sample_recovered_tokens(
            recovered,
            torch.tensor(_ENDS, dtype=torch.int32),
            torch.tensor(_DRAFTS, dtype=torch.int32),
            probabilities,
            _target(),
            noise,
            max_spec_len=3,
        )
        if tuple(recovered[[0, 1, 4]].tolist()) != expected:
            return False
    return True


_TESTS: dict[str, Callable[[], bool]] = {
    _EXPAND: _expands,
    "rejection_random_sample_kernel": _verifies,
    "rejection_greedy_sample_kernel": _verifies_greedy,
    "sample_recovered_tokens_kernel": _recovers,
}
