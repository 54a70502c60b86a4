"""Which requests may be drafted for: those whose answers do not depend on drafts (vLLM 0.32).

- A seed promises that the same request is answered the same. Verification draws other numbers from
  the seed's generator than plain sampling does, so a seeded answer would depend on the drafts.
- `min_p` and `logit_bias` are applied to the last token of a step only
  (vllm/v1/sample/rejection_sampler.py), so vLLM refuses them while it speculates.
- `min_tokens` forbids a stop to the last token of a step by the answer's length before the step
  (vllm/v1/sample/logits_processor/builtin.py), so an answer could not stop where it should.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A temperature below this is greedy to vLLM (vllm/sampling_params.py, _SAMPLING_EPS).
_GREEDY_BELOW = 1e-5


def is_sampled(params: Any) -> bool:
    """Whether a request's answer depends on chance."""
    return bool(params.temperature >= _GREEDY_BELOW)


def may_be_drafted(params: Any, is_sampling_exact: bool = True) -> bool:
    """Whether drafts leave the distribution of a request's answer as it is.

    Args:
        params: vLLM's sampling parameters of the request.
        is_sampling_exact: Whether sampled drafts are verified rightly here.
    """
    if params.min_p or params.logit_bias or params.min_tokens:
        return False
    return not is_sampled(params) or (is_sampling_exact and params.seed is None)


def withhold_drafts(drafts: Any, requests: Mapping[str, Any], is_sampling_exact: bool) -> Any:
    """Empty the drafts, in place, of requests that may not be drafted for.

    Args:
        drafts: vLLM's `DraftTokenIds`, or None.
        requests: The worker's requests by id.
        is_sampling_exact: As above.
    """
    if drafts is None:
        return None
    for place, request_id in enumerate(drafts.req_ids):
        request = requests.get(request_id)
        params = None if request is None else request.sampling_params
        if params is not None and not may_be_drafted(params, is_sampling_exact):
            drafts.draft_token_ids[place] = []
    return drafts
