"""Convert between cache entries and vLLM's outputs and parameters (checked against vLLM 0.32)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenkeel_runtime.response_cache.entry import CacheEntry
from evenkeel_runtime.response_cache.question import Question, Rendered, Sampling
from evenkeel_runtime.wire.drafts import (
    ANSWER_KEY,
    LAST_PRIORITY,
    OTHERS_KEY,
    TRUST_KEY,
    pack_tokens,
)

_DRAFT_KEYS = (ANSWER_KEY, OTHERS_KEY, TRUST_KEY)
_SHAPING = (
    "temperature top_p top_k min_p seed presence_penalty frequency_penalty repetition_penalty "
    "stop stop_token_ids bad_words ignore_eos min_tokens include_stop_str_in_output logit_bias "
    "allowed_token_ids skip_special_tokens spaces_between_special_tokens structured_outputs"
).split()


def read_sampling(params: Any) -> Sampling | None:
    """Return the sampling parameters; None for what the cache cannot answer, such as pooling."""
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    if not isinstance(params, SamplingParams):
        return None
    if params.output_kind not in (RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY):
        return None
    return Sampling(
        temperature=params.temperature,
        values={name: _plain(getattr(params, name, None)) for name in _SHAPING},
        num_sequences=params.n,
        wants_logprobs=params.logprobs is not None or params.prompt_logprobs is not None,
        seed=params.seed,
    )


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else repr(value)


def read_prompt(prompt: Any) -> Rendered | None:
    """Return a rendered text prompt; None for any other prompt."""
    if not isinstance(prompt, Mapping) or prompt.get("type", "token") not in ("token", "tokens"):
        return None
    tokens = prompt.get("prompt_token_ids")
    return None if tokens is None else Rendered(tokens, prompt.get("prompt"))


def make_hit(request_id: str, prompt: Mapping[str, Any], entry: CacheEntry) -> Any:
    """Return a cached answer as the single, final output of an engine run with this prompt."""
    from vllm.outputs import CompletionOutput, RequestOutput

    completion = CompletionOutput(
        index=0,
        text=entry.text,
        token_ids=list(entry.token_ids),
        cumulative_logprob=None,
        logprobs=None,
        finish_reason=entry.finish_reason,
        stop_reason=entry.stop_reason,
    )
    return RequestOutput(
        request_id=request_id,
        prompt=prompt.get("prompt"),
        prompt_token_ids=list(prompt["prompt_token_ids"]),
        prompt_logprobs=None,
        outputs=[completion],
        finished=True,
    )


def fits(params: Any, entry: CacheEntry) -> bool:
    """Whether a cached answer ends where the request's may: at its limit, if that cut it off."""
    limit, size = params.max_tokens, len(entry.token_ids)
    if entry.finish_reason == "length":
        return bool(size == limit)
    return limit is None or size <= limit


@dataclass(slots=True)
class Gathered:
    """A run's answer so far, assembled from its outputs.

    Attributes:
        finish_reason: None until the run has ended.
        num_deletions: Deletions from the cache before its question was read.
    """

    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    num_deletions: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether the answer is finished, so that it may be kept and compared."""
        return self.finish_reason in ("stop", "length")

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self.texts)


def gather(gathered: Gathered, output: Any) -> None:
    """Append one output of a run to the answer so far."""
    for completion in output.outputs:
        gathered.texts.append(completion.text)
        gathered.token_ids.extend(completion.token_ids)
        if completion.finish_reason is not None:
            gathered.finish_reason = completion.finish_reason
            gathered.stop_reason = completion.stop_reason


def make_entry(question: Question, gathered: Gathered, generation_s: float) -> CacheEntry:
    """Return the entry of a complete answer; the cache sets when it expires."""
    return CacheEntry(
        id=question.id,
        scope=question.scope,
        tenant=question.tenant,
        subjects=question.subjects,
        question=question.text,
        text=gathered.text,
        token_ids=tuple(gathered.token_ids),
        finish_reason=gathered.finish_reason or "stop",
        stop_reason=gathered.stop_reason,
        generation_s=generation_s,
        expires_at_s=0.0,
    )


def hand_drafts(params: Any, answers: Sequence[Sequence[int]], trust: int) -> None:
    """Pass answers to the speculation hook, best first; a draft already in the request is kept."""
    arguments = dict(params.extra_args or {})
    if ANSWER_KEY not in arguments:
        first, *others = map(pack_tokens, answers)
        arguments |= {ANSWER_KEY: first, OTHERS_KEY: others, TRUST_KEY: trust}
    params.extra_args = arguments


def make_replay(params: Any) -> Any:
    """Return the same parameters for a background run."""
    from vllm.sampling_params import RequestOutputKind

    copy = params.clone()
    copy.output_kind = RequestOutputKind.FINAL_ONLY
    if copy.extra_args:
        copy.extra_args = {k: v for k, v in copy.extra_args.items() if k not in _DRAFT_KEYS}
    return copy


def make_replay_options(engine: Any, options: Mapping[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return the engine options for a replay, and whether the engine schedules it last."""
    scheduler = getattr(getattr(engine, "vllm_config", None), "scheduler_config", None)
    has_priorities = getattr(scheduler, "policy", None) == "priority"
    kept = {k: v for k, v in options.items() if k not in ("priority", "arrival_time")}
    if has_priorities:
        kept["priority"] = LAST_PRIORITY
    return kept, has_priorities
