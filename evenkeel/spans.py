"""Names and shapes of what travels as OTLP: request spans, evaluation spans, caller headers.

GenAI names follow the OpenTelemetry semantic conventions (gen_ai.*); what they do not cover is
`evenkeel.*`. docs/metrics.md defines each word.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

SCOPE_NAME = "evenkeel"

# Span names. A request is one SERVER span, `{operation} {model}`, with three INTERNAL children.
SPAN_QUEUE = "evenkeel.queue"
SPAN_PREFILL = "evenkeel.prefill"
SPAN_DECODE = "evenkeel.decode"
# The steps of an engine, about one span a second: `engine_steps` has a row a run of them.
SPAN_ENGINE_STEPS = "evenkeel.engine.steps"
SPAN_CANARY = "evenkeel.speculation.canary"
SPAN_EVALUATION = "evenkeel.evaluation"
SPAN_EVALUATION_RUN = "evenkeel.evaluation.run"
SPAN_CONTROL = "evenkeel.control"
SPAN_LIVE_EVALUATION = "evenkeel.evaluation.live"
SPAN_FEEDBACK = "evenkeel.feedback"

# OpenTelemetry GenAI semantic conventions.
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CONVERSATION_ID = "gen_ai.conversation.id"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
ERROR_TYPE = "error.type"
HTTP_STATUS = "http.response.status_code"

# Ours, on the request span.
REQUEST_ID = "evenkeel.request.id"
TENANT = "evenkeel.tenant"
SLO_CLASS = "evenkeel.slo_class"
ROUTE = "evenkeel.route"
PROMPT_NAME = "evenkeel.prompt.name"
PROMPT_VERSION = "evenkeel.prompt.version"
STATUS = "evenkeel.status"
WASTED_TOKENS = "evenkeel.wasted_tokens"
QUEUE_S = "evenkeel.queue_s"
PREFILL_S = "evenkeel.prefill_s"
DECODE_S = "evenkeel.decode_s"
TTFT_S = "evenkeel.ttft_s"
TPOT_S = "evenkeel.tpot_s"
ITL_P50_S = "evenkeel.itl_p50_s"
ITL_P99_S = "evenkeel.itl_p99_s"
STALL_S = "evenkeel.stall_s"
E2E_S = "evenkeel.e2e_s"
DRAFTED_TOKENS = "evenkeel.drafted_tokens"
ACCEPTED_TOKENS = "evenkeel.accepted_tokens"
DRAFTED_BY_POSITION = "evenkeel.drafted_by_position"
ACCEPTED_BY_POSITION = "evenkeel.accepted_by_position"
# Followed by the source of the drafts; the same by position, of that source alone.
DRAFTED_PREFIX = "evenkeel.drafted."
ACCEPTED_PREFIX = "evenkeel.accepted."
RESPONSE_CACHE = "evenkeel.response_cache"
CACHE_MODE = "evenkeel.cache.mode"
CACHE_REASON = "evenkeel.cache.reason"
CACHE_SIMILARITY = "evenkeel.cache.similarity"
CACHE_LOOKUP_S = "evenkeel.cache.lookup_s"
CACHE_EMBEDDING_S = "evenkeel.cache.embedding_s"
CACHE_SAVED_TOKENS = "evenkeel.cache.saved_tokens"
CACHE_SAVED_S = "evenkeel.cache.saved_s"
CACHE_DRAFT_TOKENS = "evenkeel.cache.draft_tokens"
CACHE_VERDICT = "evenkeel.cache.verdict"
CACHE_THRESHOLD = "evenkeel.cache.threshold"
CACHE_BOUND = "evenkeel.cache.bound"
CACHE_LIMIT = "evenkeel.cache.limit"
CACHE_CHANGE = "evenkeel.cache.change"
COMPRESSION_VERDICT = "evenkeel.compression.verdict"
COMPRESSION_SAVED_TOKENS = "evenkeel.compression.saved_tokens"
EMISSION_TIME_S = "evenkeel.emission_time_s"
EMISSION_TOKENS = "evenkeel.emission_tokens"
EMISSION_DRAFTED = "evenkeel.emission_drafted"
EMISSION_ACCEPTED = "evenkeel.emission_accepted"
SAMPLE_WEIGHT = "evenkeel.sample_weight"
LEDGER_PREFIX = "evenkeel.ledger."
# What the ledger says besides: how steps were shared out, the model's error, the requests that
# cost it most, the prefix cache.
LEDGER_SHARED_BY = "evenkeel.ledger_shared_by"
LEDGER_ERROR_RATIO = "evenkeel.ledger_error_ratio"
RIVAL_REQUEST_IDS = "evenkeel.rivals.request_ids"
RIVAL_COST_S = "evenkeel.rivals.cost_s"
RIVAL_PREFILL_TOKENS = "evenkeel.rivals.prefill_tokens"
RIVAL_DECODE_TOKENS = "evenkeel.rivals.decode_tokens"
PREFIX_MISS = "evenkeel.prefix.miss"
PREFIX_MISSED_TOKENS = "evenkeel.prefix.missed_tokens"
PREFIX_COST_S = "evenkeel.prefix.cost_s"
PREFIX_LOST_TOKENS = "evenkeel.prefix.lost_tokens"
PREFIX_EVICTED_S = "evenkeel.prefix.evicted_s"
PREFIX_EVICTED_BY = "evenkeel.prefix.evicted_by"
PREFIX_DIVERGED_AT = "evenkeel.prefix.diverged_at"
PREFIX_UNSTABLE_TOKENS = "evenkeel.prefix.unstable_tokens"
CANCEL_STEPS = "evenkeel.cancel.steps"
CANCEL_TOKENS = "evenkeel.cancel.tokens"
CANCEL_S = "evenkeel.cancel_s"

# On a SPAN_CANARY: a greedy answer that was made again without drafts.
CANARY_RESULT = "evenkeel.canary.result"
CANARY_TOKENS = "evenkeel.canary.tokens"
CANARY_DIFFERS_AT = "evenkeel.canary.differs_at"

# Evaluation spans: one SPAN_EVALUATION per answer and scorer, one SPAN_EVALUATION_RUN per gate.
EVAL_NAME = "gen_ai.evaluation.name"
EVAL_SCORE = "gen_ai.evaluation.score.value"
EVAL_LABEL = "gen_ai.evaluation.score.label"
EVAL_EXPLANATION = "gen_ai.evaluation.explanation"
EVAL_RUN_ID = "evenkeel.eval.run_id"
EVAL_DATASET = "evenkeel.eval.dataset"
EVAL_SIDE = "evenkeel.eval.side"
EVAL_ITEM_ID = "evenkeel.eval.item_id"
EVAL_PAIR = "evenkeel.eval.pair"
EVAL_TAGS = "evenkeel.eval.tags"
EVAL_OUTPUT_TOKENS = "evenkeel.eval.output_tokens"
EVAL_CLIENT_TTFT_S = "evenkeel.eval.client_ttft_s"
EVAL_CLIENT_E2E_S = "evenkeel.eval.client_e2e_s"
EVAL_GATE = "evenkeel.eval.gate"
EVAL_SLICE = "evenkeel.eval.slice"
EVAL_VERDICT = "evenkeel.eval.verdict"
EVAL_ESTIMATE = "evenkeel.eval.estimate"
EVAL_LOWER = "evenkeel.eval.lower"
EVAL_UPPER = "evenkeel.eval.upper"
EVAL_NUM_PAIRS = "evenkeel.eval.num_pairs"
EVAL_RUN_VERDICT = "evenkeel.eval.run_verdict"
EVAL_BASELINE_TEXT = "evenkeel.eval.baseline_text"
EVAL_CANDIDATE_TEXT = "evenkeel.eval.candidate_text"

# Control spans: one SPAN_CONTROL a step, from its moment until its effect is known.
CONTROL_LEVER = "evenkeel.control.lever"
CONTROL_LEVEL = "evenkeel.control.level"
CONTROL_BEFORE = "evenkeel.control.before"
CONTROL_AFTER = "evenkeel.control.after"
CONTROL_REASON = "evenkeel.control.reason"
CONTROL_IS_DRY_RUN = "evenkeel.control.is_dry_run"
CONTROL_BURN_BEFORE = "evenkeel.control.burn_before"
CONTROL_BURN_AFTER = "evenkeel.control.burn_after"
CONTROL_GOOD_BEFORE = "evenkeel.control.good_before"
CONTROL_BAD_BEFORE = "evenkeel.control.bad_before"
CONTROL_GOOD_AFTER = "evenkeel.control.good_after"
CONTROL_BAD_AFTER = "evenkeel.control.bad_after"
CONTROL_CHANGE = "evenkeel.control.change"
# A production request that a live evaluation drew: one SPAN_LIVE_EVALUATION a scorer.
LIVE_MONITOR = "evenkeel.live.monitor"
LIVE_STRATUM = "evenkeel.live.stratum"
LIVE_PROBABILITY = "evenkeel.live.probability"
LIVE_LAG_S = "evenkeel.live.lag_s"

# What a person says of an answer, on SPAN_FEEDBACK besides the evaluation's own attributes.
FEEDBACK_CORRECTED = "evenkeel.feedback.corrected"
FEEDBACK_AUTHOR = "evenkeel.feedback.author"
# Labels of feedback in which a person says whether a failure becomes an item of a golden dataset.
REVIEW_ACCEPTED = "golden"
REVIEW_REJECTED = "not golden"

# What a caller may say of a request, as HTTP headers. `traceparent` is W3C Trace Context.
HEADER_TENANT = "x-evenkeel-tenant"
HEADER_SESSION = "x-evenkeel-session"
HEADER_PROMPT = "x-evenkeel-prompt"  # name@version
HEADER_SLO_CLASS = "x-evenkeel-slo-class"
HEADER_ROUTE = "x-evenkeel-route"
# On a response: which layer of the response cache gave it.
HEADER_CACHE = "x-evenkeel-cache"

AttributeValue = str | bool | int | float | Sequence[str] | Sequence[int] | Sequence[float]


class Status(StrEnum):
    """How a request ended; all four are valid events of an SLO."""

    OK = "ok"
    ERROR = "error"
    ABORTED = "aborted"
    SHED = "shed"


@dataclass(slots=True)
class RequestRecord:
    """One LLM request as its span says it: most are columns of `requests`; None without a value.

    Durations are seconds, `emission_time_s` is seconds since arrival, positions count from the
    first drafted token; `cache` holds span attributes by their full names. Filled by the runtime,
    by the simulator and by nobody else.
    """

    request_id: str
    model: str
    operation: str = "chat"
    status: Status = Status.OK
    finish_reason: str | None = None
    error_type: str | None = None
    http_status: int | None = None
    tenant: str | None = None
    session_id: str | None = None
    slo_class: str | None = None
    route: str | None = None
    prompt_name: str | None = None
    prompt_version: str | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    wasted_tokens: int | None = None
    queue_s: float | None = None
    prefill_s: float | None = None
    decode_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    itl_p50_s: float | None = None
    itl_p99_s: float | None = None
    stall_s: float | None = None
    e2e_s: float | None = None
    drafted_tokens: int | None = None
    accepted_tokens: int | None = None
    drafted_by_position: list[int] = field(default_factory=list)
    accepted_by_position: list[int] = field(default_factory=list)
    drafts_by_source: Mapping[str, tuple[list[int], list[int]]] = field(default_factory=dict)
    response_cache: str | None = None
    cache: Mapping[str, AttributeValue] = field(default_factory=dict)
    emission_time_s: list[float] = field(default_factory=list)
    emission_tokens: list[int] = field(default_factory=list)
    emission_drafted: list[int] = field(default_factory=list)
    emission_accepted: list[int] = field(default_factory=list)
    ledger: Mapping[str, float] = field(default_factory=dict)
    sample_weight: float = 1.0
    input_messages: str | None = None
    output_messages: str | None = None

    def to_attributes(self) -> dict[str, AttributeValue]:
        """Return the span attributes of this record; what has no value has no attribute."""
        attributes: dict[str, AttributeValue] = {PROVIDER: "vllm", STATUS: self.status.value}
        for name, attribute in _ATTRIBUTE_OF_FIELD.items():
            value = getattr(self, name)
            if value is not None and value != []:
                attributes[attribute] = value
        attributes[RESPONSE_MODEL] = self.model
        if self.finish_reason is not None:
            attributes[FINISH_REASONS] = [self.finish_reason]
        for source, (drafted, accepted) in self.drafts_by_source.items():
            attributes[DRAFTED_PREFIX + source] = drafted
            attributes[ACCEPTED_PREFIX + source] = accepted
        for cause, seconds in self.ledger.items():
            attributes[LEDGER_PREFIX + cause] = seconds
        attributes.update(self.cache)
        return attributes


_ATTRIBUTE_OF_FIELD = {
    "request_id": REQUEST_ID,
    "model": REQUEST_MODEL,
    "operation": OPERATION,
    "error_type": ERROR_TYPE,
    "http_status": HTTP_STATUS,
    "tenant": TENANT,
    "session_id": CONVERSATION_ID,
    "slo_class": SLO_CLASS,
    "route": ROUTE,
    "prompt_name": PROMPT_NAME,
    "prompt_version": PROMPT_VERSION,
    "max_tokens": REQUEST_MAX_TOKENS,
    "temperature": REQUEST_TEMPERATURE,
    "input_tokens": INPUT_TOKENS,
    "output_tokens": OUTPUT_TOKENS,
    "cached_tokens": CACHED_TOKENS,
    "wasted_tokens": WASTED_TOKENS,
    "queue_s": QUEUE_S,
    "prefill_s": PREFILL_S,
    "decode_s": DECODE_S,
    "ttft_s": TTFT_S,
    "tpot_s": TPOT_S,
    "itl_p50_s": ITL_P50_S,
    "itl_p99_s": ITL_P99_S,
    "stall_s": STALL_S,
    "e2e_s": E2E_S,
    "drafted_tokens": DRAFTED_TOKENS,
    "accepted_tokens": ACCEPTED_TOKENS,
    "drafted_by_position": DRAFTED_BY_POSITION,
    "accepted_by_position": ACCEPTED_BY_POSITION,
    "response_cache": RESPONSE_CACHE,
    "emission_time_s": EMISSION_TIME_S,
    "emission_tokens": EMISSION_TOKENS,
    "emission_drafted": EMISSION_DRAFTED,
    "emission_accepted": EMISSION_ACCEPTED,
    "sample_weight": SAMPLE_WEIGHT,
    "input_messages": INPUT_MESSAGES,
    "output_messages": OUTPUT_MESSAGES,
}
