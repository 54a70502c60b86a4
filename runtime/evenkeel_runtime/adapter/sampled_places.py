"""Rank sampled tokens by the model's own probabilities (vLLM 0.32, V1 runner).

Computed from the target's logits and the request's parameters only, without the verification
kernels, because those are what is being watched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from vllm.v1.sample.ops.topk_topp_sampler import apply_top_k_top_p

from evenkeel_runtime.speculation.draftable import is_sampled
from evenkeel_runtime.speculation.sampled_watch import RARE_RATIO, SampledToken

# Probabilities computed per step: one request's draft for a large vocabulary, many for a small one.
_MAX_VALUES = 1 << 18


@dataclass(frozen=True, slots=True)
class TargetDistributions:
    """The distributions that one request's tokens of a step should be drawn from.

    Attributes:
        row: The request's row in the step.
        probabilities: [drafted tokens + 1, vocabulary].
    """

    row: int
    probabilities: torch.Tensor

    def of_tokens(self, sampled: torch.Tensor) -> Iterator[SampledToken]:
        """Return the place of each token sampled for the request.

        Args:
            sampled: [requests, longest draft + 1]; -1 from the first rejected token on.
        """
        for expected, token in zip(self.probabilities, sampled[self.row].tolist(), strict=False):
            if token < 0:
                return
            own, rare_below = expected[token], expected.max() * RARE_RATIO
            place = expected[expected > own].sum() + expected[expected == own].sum() / 2
            rare_chance = expected[expected < rare_below].sum()
            yield SampledToken(min(1.0, float(place)), bool(own < rare_below), float(rare_chance))


def find_target_distributions(
    runner: Any, logits: torch.Tensor, drafted: Any, random: Random
) -> list[TargetDistributions]:
    """Return the distributions of randomly chosen requests with drafts; at least one.

    As many as `_MAX_VALUES` allows, so that the cost per step is the same at any batch size.

    Args:
        runner: vLLM's model runner.
        logits: [all drafted tokens + requests, vocabulary], before vLLM samples.
        drafted: vLLM's `SpecDecodeMetadata`.
        random: Chooses the requests, independently of what will be sampled.
    """
    all_params = [runner.requests[i].sampling_params for i in runner.input_batch.req_ids]
    counts = drafted.num_draft_tokens
    rows = [
        row
        for row, (params, count) in enumerate(zip(all_params, counts, strict=True))
        if count and _is_plain(params)
    ]
    random.shuffle(rows)
    distributions: list[TargetDistributions] = []
    num_values = 0
    for row in rows:
        num_values += (counts[row] + 1) * logits.shape[1]
        if distributions and num_values > _MAX_VALUES:
            break
        end = int(drafted.cu_num_sampled_tokens[row])
        own = logits[end - counts[row] - 1 : end].to(torch.float32, copy=True)
        distributions.append(TargetDistributions(row, _probabilities(own, all_params[row])))
    return distributions


def _probabilities(logits: torch.Tensor, params: Any) -> torch.Tensor:
    """Return the distributions of one request's tokens; overwrites the logits."""
    logits /= params.temperature
    size, vocabulary = logits.shape
    top_k = top_p = None
    if 0 < params.top_k < vocabulary:
        top_k = torch.full((size,), params.top_k, dtype=torch.int32)
    if params.top_p < 1:
        top_p = torch.full((size,), params.top_p)
    return apply_top_k_top_p(logits, top_k, top_p).softmax(dim=-1)


def _is_plain(params: Any) -> bool:
    """Whether only temperature, top-k and top-p apply between logits and token."""
    return (
        params is not None
        and is_sampled(params)
        and not params.presence_penalty
        and not params.frequency_penalty
        and params.repetition_penalty == 1
        and not params.min_tokens
        and not params.bad_words
        and params.allowed_token_ids is None
        and params.thinking_token_budget is None
    )
