"""Drafts in the step that completes a prompt, on something that has what vLLM's scheduler has."""

from types import SimpleNamespace

import pytest

from evenkeel_runtime.adapter.prompt_drafts import draft_prompts
from evenkeel_runtime.engine.limits import DraftLimits
from evenkeel_runtime.wire.drafts import MAX_DRAFT_KEY


class Drafter:
    """Drafts the same for each request."""

    def draft_first(self, begun: list[SimpleNamespace], *_: int) -> dict[str, list[int]]:
        return {request.request_id: [7, 8, 9] for request in begun}


@pytest.mark.parametrize(("longest", "drafted"), [(None, [7, 8, 9]), (2, [7, 8]), (0, None)])
def test_a_limit_on_drafts_holds_with_the_prompt(
    longest: int | None, drafted: list[int] | None
) -> None:
    extra = {} if longest is None else {MAX_DRAFT_KEY: longest}
    request = SimpleNamespace(
        request_id="r",
        sampling_params=SimpleNamespace(prompt_logprobs=None, extra_args=extra),
        num_tokens=5,
        num_computed_tokens=0,
        num_output_tokens=0,
        use_structured_output=False,
        has_encoder_inputs=False,
    )
    blocks = SimpleNamespace(allocate_slots=lambda *_: (), get_block_ids=lambda _: ([1],))
    scheduler = SimpleNamespace(
        requests={"r": request},
        scheduler_config=SimpleNamespace(max_num_batched_tokens=100),
        max_num_scheduled_tokens=100,
        max_model_len=100,
        kv_cache_manager=blocks,
        _evenkeel_drafts=DraftLimits(is_possible=True),
    )
    scheduler._evenkeel_drafts.add(request)
    output = SimpleNamespace(
        scheduled_new_reqs=[SimpleNamespace(req_id="r", block_ids=([0],))],
        num_scheduled_tokens={"r": 5},
        total_num_scheduled_tokens=5,
        scheduled_spec_decode_tokens={},
    )
    draft_prompts(scheduler, Drafter(), output)  # type: ignore[arg-type]
    assert output.scheduled_spec_decode_tokens.get("r") == drafted
    assert output.total_num_scheduled_tokens == 5 + len(drafted or [])
