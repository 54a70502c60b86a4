"""vLLM's own scheduler without an engine: real scheduling, made-up tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(slots=True)
class SchedulerBox:
    """A scheduler, and how to drive it.

    Attributes:
        scheduler: vLLM's scheduler.
        hasher: Makes the block hashes of a request.
        drafts: How many tokens to draft for each request a step.
        accept: How many drafted tokens are accepted, of so many.
    """

    scheduler: Any
    hasher: Callable[[Any], Any]
    drafts: int = 0
    accept: Callable[[int], int] = lambda drafted: drafted

    def add(self, request_id: str, prompt: Sequence[int], max_tokens: int = 16) -> Any:
        from vllm.sampling_params import SamplingParams
        from vllm.v1.request import Request

        params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
        params.update_from_generation_config({}, eos_token_id=2)
        request = Request(request_id, list(prompt), params, None, block_hasher=self.hasher)
        self.scheduler.add_request(request)
        return request

    def step(self) -> Any:
        """Schedule one step, make tokens for it, and hand them back."""
        output = self.scheduler.schedule()
        self.finish(output)
        return output

    def finish(self, output: Any) -> None:
        """Hand back tokens for a scheduled step."""
        from vllm.v1.outputs import DraftTokenIds

        self.scheduler.update_from_output(output, self.make_output(output))
        if self.drafts:
            ids = list(output.num_scheduled_tokens)
            drafted = [[7] * self.drafts for _ in ids]
            self.scheduler.update_draft_token_ids(DraftTokenIds(ids, drafted))

    def make_output(self, output: Any) -> Any:
        """Return tokens for a scheduled step, as vLLM's model runner would."""
        from vllm.v1.outputs import ModelRunnerOutput

        ids = list(output.num_scheduled_tokens)
        return ModelRunnerOutput(
            req_ids=ids,
            req_id_to_index={request_id: i for i, request_id in enumerate(ids)},
            sampled_token_ids=[self._sample(request_id, output) for request_id in ids],
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )

    def _sample(self, request_id: str, output: Any) -> list[int]:
        request = self.scheduler.requests.get(request_id)
        if request is None or request.is_prefill_chunk:
            return []
        drafted = len(output.scheduled_spec_decode_tokens.get(request_id, ()))
        return [5] * (1 + min(drafted, self.accept(drafted)))


def build_scheduler(
    scheduler_class: type,
    model: Path,
    *,
    num_blocks: int = 1000,
    block_tokens: int = 16,
    max_num_seqs: int = 64,
    max_batched_tokens: int = 2048,
    drafts: int = 0,
    is_async: bool = False,
) -> SchedulerBox:
    """Return a scheduler of the class, over a cache of `num_blocks` blocks."""
    import torch
    from vllm.config import (
        CacheConfig,
        DeviceConfig,
        ModelConfig,
        ParallelConfig,
        SchedulerConfig,
        SpeculativeConfig,
        VllmConfig,
    )
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    model_config = ModelConfig(
        model=str(model), dtype="bfloat16", seed=1, skip_tokenizer_init=True, max_model_len=4096
    )
    speculation = None
    if drafts:
        speculation = SpeculativeConfig(
            method="ngram", num_speculative_tokens=drafts, prompt_lookup_max=2
        )
    config = VllmConfig(
        model_config=model_config,
        cache_config=CacheConfig(block_size=block_tokens, enable_prefix_caching=True),
        parallel_config=ParallelConfig(),
        scheduler_config=SchedulerConfig(
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_batched_tokens,
            max_model_len=4096,
            enable_chunked_prefill=True,
            is_encoder_decoder=False,
        ),
        device_config=DeviceConfig("cpu"),
        speculative_config=speculation,
    )
    # vLLM's CPU platform switches it off, whatever is asked for.
    config.scheduler_config.async_scheduling = is_async
    config.cache_config.num_gpu_blocks = num_blocks
    spec = FullAttentionSpec(
        block_size=block_tokens, num_kv_heads=1, head_size=1, dtype=torch.float32
    )
    scheduler = scheduler_class(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=block_tokens,
        hash_block_size=block_tokens,
        log_stats=True,
    )
    hash_function = get_hash_fn_by_name("sha256")
    init_none_hash(hash_function)
    return SchedulerBox(scheduler, get_request_block_hasher(block_tokens, hash_function), drafts)
