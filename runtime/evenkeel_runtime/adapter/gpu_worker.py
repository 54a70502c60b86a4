"""vLLM's GPU worker, verifying the drafts chosen by the scheduler (vLLM 0.32).

Under asynchronous scheduling vLLM's V2 model runner reads a step's drafts from a table on the GPU,
filled by its proposer at the end of the previous step; the scheduler sets only their number. Here
the scheduler sets the drafts themselves, so they are written into that table just before the step,
queued behind pending GPU work, and the proposer proposes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from vllm.utils.torch_utils import async_tensor_h2d
from vllm.v1.worker.gpu_worker import Worker

from evenkeel_runtime.speculation.flags import ANY_BATCH, drafts_ahead

logger = logging.getLogger(__name__)


class DraftedStepWorker(Worker):  # type: ignore[misc]
    """Writes each step's drafts into the model runner's table."""

    _evenkeel_states: Any = None
    _evenkeel_has_failed = False

    def load_model(self, *args: Any, **options: Any) -> None:
        """Load like vLLM's worker, and silence its proposer if drafts are written."""
        super().load_model(*args, **options)
        if self.model_config.is_hybrid or self.model_config.is_attention_free:
            # State-space layers have graphs of one length; steps without drafts run piecewise.
            speculative = self.vllm_config.speculative_config
            longest = speculative.num_speculative_tokens
            speculative.num_speculative_tokens_per_batch_size = [(1, ANY_BATCH, longest)]
        if drafts_ahead(self.vllm_config):
            runner = self.model_runner
            runner.speculator.propose = partial(propose_nothing, runner.speculator)
            self._evenkeel_states = runner.req_states

    def execute_model(self, scheduler_output: Any, *args: Any, **options: Any) -> Any:
        """Run a step with the drafts chosen by the scheduler."""
        drafts = scheduler_output.scheduled_spec_decode_tokens
        if drafts and self._evenkeel_states is not None:
            self._evenkeel_write(drafts)
        return super().execute_model(scheduler_output, *args, **options)

    def _evenkeel_write(self, drafts: Mapping[str, Sequence[int]]) -> None:
        """Write a step's drafts; on failure, leave tokens that the model rejects."""
        states = self._evenkeel_states
        try:
            write_drafts(states, drafts)
        except Exception:
            if not self._evenkeel_has_failed:
                logger.exception("cannot write drafts; requests continue without speed-up")
            self._evenkeel_has_failed = True
            # vLLM marks positions without a draft with -1, which is not a valid token.
            with torch.inference_mode():
                states.draft_tokens.clamp_(min=0)


def propose_nothing(speculator: Any, input_batch: Any, *_: Any, **__: Any) -> torch.Tensor:
    """Return what vLLM expects of a proposer: one row per request, never read."""
    rows: torch.Tensor = speculator.drafts[: input_batch.num_reqs]
    return rows


def write_drafts(states: Any, drafts: Mapping[str, Sequence[int]]) -> None:
    """Write drafts into the runner's table.

    Args:
        states: The runner's `RequestState`; `draft_tokens` is [requests, longest draft].
        drafts: Token ids by request id. A request without a row has finished and is not verified.
    """
    known = [(states.req_id_to_index.get(i), tokens) for i, tokens in drafts.items()]
    known = [(row, tokens) for row, tokens in known if row is not None]
    if not known:
        return
    table = states.draft_tokens
    longest = max(len(tokens) for _, tokens in known)
    padded = np.zeros((len(known), longest), dtype=np.int64)
    for line, (_, tokens) in zip(padded, known, strict=True):
        line[: len(tokens)] = tokens
    rows = np.fromiter((row for row, _ in known), dtype=np.int64, count=len(known))
    with torch.inference_mode():
        at = async_tensor_h2d(rows, device=table.device)
        table[at, :longest] = async_tensor_h2d(padded, device=table.device, dtype=table.dtype)
