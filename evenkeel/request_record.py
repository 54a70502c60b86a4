"""One LLM request as a record: the single definition of its fields.

Span attributes, the columns of `requests` and the documentation's tables are derived from it: a
new field takes one line here and one where it is measured. docs/metrics.md defines the terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import msgspec

from evenkeel import spans
from evenkeel.spans import AttributeValue, Status


@dataclass(frozen=True, slots=True)
class OnSpan:
    """A field that is an attribute of the request's span.

    Attributes:
        meaning: Unit and meaning, in one line.
        attribute: Its name; `evenkeel.` plus the field's name if empty. Braces mark variable parts.
    """

    meaning: str
    attribute: str = ""


@dataclass(frozen=True, slots=True)
class InStore(OnSpan):
    """A field that is also a column of `requests`, under its own name.

    Attributes:
        type: Type of the column; derived from the field's type if empty.
    """

    type: str = ""


class RequestRecord(msgspec.Struct, kw_only=True):
    """One LLM request; missing values are None, or an empty list or map.

    `cache` holds span attributes by their full names; `drafts_by_source` holds drafted and accepted
    tokens by position.
    """

    operation: Annotated[
        str,
        InStore("chat, text_completion, …", spans.OPERATION, "LowCardinality(Nullable(String))"),
    ] = "chat"
    request_id: Annotated[str, InStore("the server's ID of the request", spans.REQUEST_ID)]
    tenant: Annotated[str | None, InStore("who pays", spans.TENANT)] = None
    session_id: Annotated[
        str | None, InStore("conversation", spans.CONVERSATION_ID, "Nullable(String)")
    ] = None
    session_source: Annotated[
        str | None,
        InStore("how the session was found: header, attribute, trace, chain", spans.SESSION_SOURCE),
    ] = None
    parent_span_id: Annotated[
        str | None,
        InStore("the caller's span, if it sent one", spans.PARENT_SPAN_ID, "Nullable(String)"),
    ] = None
    model: Annotated[str, InStore("requested model", spans.REQUEST_MODEL, "LowCardinality(String)")]
    slo_class: Annotated[str | None, InStore("SLO class: which SLOs apply", spans.SLO_CLASS)] = None
    route: Annotated[str | None, InStore("the caller's name for its route", spans.ROUTE)] = None
    prompt_name: Annotated[str | None, InStore("prompt from the registry", spans.PROMPT_NAME)] = (
        None
    )
    prompt_version: Annotated[str | None, InStore("its version", spans.PROMPT_VERSION)] = None
    status: Annotated[Status, InStore("ok, error, aborted or shed", spans.STATUS)] = Status.OK
    finish_reason: Annotated[
        str | None, InStore("why the first answer ended: stop, length, …", spans.FINISH_REASONS)
    ] = None
    error_type: Annotated[str | None, InStore("kind of error", spans.ERROR_TYPE)] = None
    http_status: Annotated[
        int | None, InStore("HTTP status of the answer", spans.HTTP_STATUS, "Nullable(UInt16)")
    ] = None
    max_tokens: Annotated[int | None, InStore("tokens, as requested", spans.REQUEST_MAX_TOKENS)] = (
        None
    )
    temperature: Annotated[float | None, InStore("as requested", spans.REQUEST_TEMPERATURE)] = None
    input_tokens: Annotated[int | None, InStore("tokens in the prompt", spans.INPUT_TOKENS)] = None
    output_tokens: Annotated[int | None, InStore("tokens generated", spans.OUTPUT_TOKENS)] = None
    cached_tokens: Annotated[
        int | None, InStore("input tokens found in the prefix cache", spans.CACHED_TOKENS)
    ] = None
    reasoning_tokens: Annotated[
        int | None, InStore("output tokens spent on reasoning", spans.REASONING_TOKENS)
    ] = None
    visible_tokens: Annotated[
        int | None,
        InStore("output tokens after the reasoning; 0 if they show nothing: an empty answer"),
    ] = None
    repeated_share: Annotated[
        float | None,
        InStore("share of the answer's 4-grams of tokens that occurred earlier in it, 0-1"),
    ] = None
    tool_calls_failed: Annotated[
        int | None,
        InStore("tool calls in the answer that did not parse; NULL if no tools were offered"),
    ] = None
    wasted_tokens: Annotated[int | None, InStore("tokens generated after the client left")] = None
    queue_s: Annotated[float | None, InStore("s, arrival → first scheduled")] = None
    prefill_s: Annotated[float | None, InStore("s, → first token")] = None
    decode_s: Annotated[float | None, InStore("s, → last token")] = None
    ttft_s: Annotated[float | None, InStore("s, arrival → first token, queue included")] = None
    visible_ttft_s: Annotated[
        float | None, InStore("s, arrival → first token after the reasoning")
    ] = None
    tpot_s: Annotated[
        float | None, InStore("s per token: (last − first token time) / (output tokens − 1)")
    ] = None
    itl_p50_s: Annotated[float | None, InStore("s, median per-token gap")] = None
    itl_p99_s: Annotated[float | None, InStore("s, 99th percentile of the gaps")] = None
    stall_s: Annotated[float | None, InStore("s, longest gap between emissions")] = None
    e2e_s: Annotated[float | None, InStore("s, arrival → end")] = None
    drafted_tokens: Annotated[int | None, InStore("tokens proposed by speculation")] = None
    accepted_tokens: Annotated[int | None, InStore("of those, accepted")] = None
    drafted_by_position: Annotated[
        list[int], InStore("tokens, by position in the draft, first = 1")
    ] = []
    accepted_by_position: Annotated[list[int], InStore("accepted tokens, by position")] = []
    drafts_by_source: Annotated[
        Mapping[str, tuple[list[int], list[int]]],
        OnSpan("the same lists for drafts from one source", "evenkeel.{drafted,accepted}.{source}"),
    ] = {}
    response_cache: Annotated[
        str | None, InStore("outcome of the response-cache lookup", spans.RESPONSE_CACHE)
    ] = None
    cache: Annotated[
        Mapping[str, str | int | float],
        OnSpan(
            "attributes from the response cache and prompt compression",
            "evenkeel.{cache,compression}.*",
        ),
    ] = {}
    emission_time_s: Annotated[list[float], InStore("s since arrival, one per emission")] = []
    emission_tokens: Annotated[list[int], InStore("tokens, one per emission")] = []
    emission_drafted: Annotated[
        list[int], OnSpan("tokens drafted for each emission", spans.EMISSION_DRAFTED)
    ] = []
    emission_accepted: Annotated[
        list[int], OnSpan("of those, accepted", spans.EMISSION_ACCEPTED)
    ] = []
    ledger: Annotated[
        Mapping[str, float],
        InStore("s by cause", spans.LEDGER_PREFIX + "{phase}.{cause}"),
    ] = {}
    ledger_shared_by: Annotated[
        str | None,
        OnSpan("how step time was split: cost_model or tokens", spans.LEDGER_SHARED_BY),
    ] = None
    ledger_error_ratio: Annotated[
        float | None, OnSpan("mean relative error of the cost model", spans.LEDGER_ERROR_RATIO)
    ] = None
    rival_request_ids: Annotated[
        list[str],
        OnSpan("requests that delayed it most, worst first", "evenkeel.rivals.request_ids"),
    ] = []
    rival_cost_s: Annotated[
        list[float], OnSpan("s saved without each", "evenkeel.rivals.cost_s")
    ] = []
    rival_prefill_tokens: Annotated[
        list[int], OnSpan("prompt tokens of each", "evenkeel.rivals.prefill_tokens")
    ] = []
    rival_decode_tokens: Annotated[
        list[int], OnSpan("decoded tokens of each", "evenkeel.rivals.decode_tokens")
    ] = []
    prefix_miss: Annotated[
        str | None, OnSpan("why the prefix cache lacked part of the prompt", "evenkeel.prefix.miss")
    ] = None
    prefix_missed_tokens: Annotated[
        int | None, OnSpan("tokens in whole blocks not found", "evenkeel.prefix.missed_tokens")
    ] = None
    prefix_cost_s: Annotated[
        float | None, OnSpan("s spent computing them", "evenkeel.prefix.cost_s")
    ] = None
    prefix_lost_tokens: Annotated[
        int | None, OnSpan("of those, evicted earlier", "evenkeel.prefix.lost_tokens")
    ] = None
    prefix_evicted_s: Annotated[
        float | None,
        InStore("s from the eviction of its prefix to the arrival", "evenkeel.prefix.evicted_s"),
    ] = None
    recompute_s: Annotated[
        float | None,
        InStore("s of prefill that computed evicted tokens again", "evenkeel.prefix.recompute_s"),
    ] = None
    prefix_evicted_by: Annotated[
        str | None, OnSpan("request that took the freed blocks", "evenkeel.prefix.evicted_by")
    ] = None
    prefix_diverged_at: Annotated[
        int | None,
        OnSpan("first token, from 0, unlike the nearest prompt's", "evenkeel.prefix.diverged_at"),
    ] = None
    prefix_unstable_tokens: Annotated[
        int | None,
        OnSpan("static tokens after a changing part", "evenkeel.prefix.unstable_tokens"),
    ] = None
    cancel_steps: Annotated[
        int | None, OnSpan("engine steps begun after the client left", "evenkeel.cancel.steps")
    ] = None
    cancel_tokens: Annotated[
        int | None, OnSpan("tokens generated after that", "evenkeel.cancel.tokens")
    ] = None
    cancel_s: Annotated[float | None, OnSpan("s until the scheduler released the request")] = None
    engine: Annotated[
        str,
        InStore(
            "engine that served it: vllm, sglang, tgi, …",
            spans.ENGINE_NAME,
            "LowCardinality(Nullable(String))",
        ),
    ] = "vllm"
    dtype: Annotated[
        str | None, InStore("precision of the weights, such as bfloat16", spans.ENGINE_DTYPE)
    ] = None
    kv_cache_dtype: Annotated[
        str | None,
        InStore("data type of the KV cache; auto is the weights'", spans.ENGINE_KV_CACHE_DTYPE),
    ] = None
    tensor_parallel: Annotated[
        int | None, InStore("devices that share each layer", spans.ENGINE_TENSOR_PARALLEL)
    ] = None
    pipeline_parallel: Annotated[
        int | None, InStore("stages of layers", spans.ENGINE_PIPELINE_PARALLEL)
    ] = None
    engine_s: Annotated[
        float | None, InStore("s of the engine's steps that this request is charged with")
    ] = None
    engine_wasted_s: Annotated[
        float | None,
        InStore("of those, s after the client left, of repeated prefill and rejected drafts"),
    ] = None
    engine_saved_prefix_s: Annotated[
        float | None, InStore("s of the engine that cached prompt tokens saved, by the cost model")
    ] = None
    engine_saved_drafts_s: Annotated[
        float | None, InStore("s of the engine that accepted drafts saved, by the cost model")
    ] = None
    energy_j: Annotated[
        float | None, InStore("J of the engine's GPUs that this request is charged with")
    ] = None
    sample_weight: Annotated[
        float,
        InStore(
            "requests this row represents, if only a sample keeps its series",
            spans.SAMPLE_WEIGHT,
        ),
    ] = 1.0
    input_messages: Annotated[
        str | None, OnSpan("the prompt, with `record_content`", spans.INPUT_MESSAGES)
    ] = None
    output_messages: Annotated[
        str | None, OnSpan("the answer, with `record_content`", spans.OUTPUT_MESSAGES)
    ] = None

    def to_attributes(self) -> dict[str, AttributeValue]:
        """Return the span attributes of this record; fields without a value are omitted."""
        attributes: dict[str, AttributeValue] = {
            spans.PROVIDER: "vllm",
            spans.STATUS: self.status.value,
            spans.RESPONSE_MODEL: self.model,
        }
        for name, attribute in _AS_THEY_ARE:
            value = getattr(self, name)
            if value is not None and value != []:
                attributes[attribute] = value
        if self.ttft_s is not None:
            # The conventions' name for it, for other readers of our spans.
            attributes[spans.TIME_TO_FIRST_CHUNK] = self.ttft_s
        if self.finish_reason is not None:
            attributes[spans.FINISH_REASONS] = [self.finish_reason]
        for source, (drafted, accepted) in self.drafts_by_source.items():
            attributes[spans.DRAFTED_PREFIX + source] = drafted
            attributes[spans.ACCEPTED_PREFIX + source] = accepted
        for cause, seconds in self.ledger.items():
            attributes[spans.LEDGER_PREFIX + cause] = seconds
        attributes.update(self.cache)
        return attributes


@dataclass(frozen=True, slots=True)
class RequestField:
    """A field of the record; `column` is its column's type in `requests`, None without one."""

    name: str
    attribute: str
    column: str | None
    meaning: str


_COLUMN_OF_TYPE: Mapping[Any, str] = {
    str: "String",
    Status: "LowCardinality(String)",
    str | None: "LowCardinality(Nullable(String))",
    int | None: "Nullable(UInt32)",
    float: "Float64",
    float | None: "Nullable(Float64)",
    list[int]: "Array(UInt32)",
    list[float]: "Array(Float64)",
    Mapping[str, float]: "Map(LowCardinality(String), Float64)",
}


def _read_field(name: str, hint: Any) -> RequestField:
    place: OnSpan = hint.__metadata__[0]
    column = None
    if isinstance(place, InStore):
        column = place.type or _COLUMN_OF_TYPE[hint.__origin__]
    return RequestField(name, place.attribute or f"evenkeel.{name}", column, place.meaning)


REQUEST_FIELDS: Mapping[str, RequestField] = {
    name: _read_field(name, hint)
    for name, hint in get_type_hints(RequestRecord, include_extras=True).items()
}
# `to_attributes` converts these.
_RESHAPED = {"status", "finish_reason", "drafts_by_source", "ledger", "cache"}
_AS_THEY_ARE = [
    (name, field.attribute) for name, field in REQUEST_FIELDS.items() if name not in _RESHAPED
]
