"""Decide whether drafts are safe for a request, given what vLLM 0.32 verifies correctly.

- A seed guarantees the same answer to the same request. Verification draws different numbers from
  the seed's generator than plain sampling does, so a seeded answer would depend on the drafts.
- `min_p` and `logit_bias` are only applied to the last token of a step
  (vllm/v1/sample/rejection_sampler.py), so vLLM refuses them while it speculates.
- `min_tokens` blocks the stop token only for the last token of a step, using the answer's length
  before the step (vllm/v1/sample/logits_processor/builtin.py), so an answer could miss its stop.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# vLLM treats a temperature below this as greedy (vllm/sampling_params.py, _SAMPLING_EPS).
_GREEDY_BELOW = 1e-5


def is_sampled(params: Any) -> bool:
    """Whether a request's answer is sampled rather than greedy."""
    return bool(params.temperature >= _GREEDY_BELOW)


def may_be_drafted(params: Any, is_sampling_exact: bool = True) -> bool:
    """Whether drafts leave the distribution of a request's answers unchanged.

    Args:
        params: vLLM's sampling parameters of the request.
        is_sampling_exact: Whether sampled drafts are verified exactly in this engine.
    """
    if params.min_p or params.logit_bias or params.min_tokens:
        return False
    return not is_sampled(params) or (is_sampling_exact and params.seed is None)


def withhold_drafts(drafts: Any, requests: Mapping[str, Any], is_sampling_exact: bool) -> Any:
    """Return `drafts`, emptied in place for the requests that must not have any.

    Args:
        drafts: vLLM's `DraftTokenIds`, or None.
        requests: The worker's requests by id.
        is_sampling_exact: See `may_be_drafted`.
    """
    if drafts is None:
        return None
    for place, request_id in enumerate(drafts.req_ids):
        request = requests.get(request_id)
        params = None if request is None else request.sampling_params
        if params is not None and not may_be_drafted(params, is_sampling_exact):
            drafts.draft_token_ids[place] = []
    return drafts
