"""Names used in OTLP data: request spans, evaluation spans, caller headers.

GenAI names follow the OpenTelemetry semantic conventions (gen_ai.*); anything they do not cover
is `evenkeel.*`. docs/metrics.md defines the terms.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

SCOPE_NAME = "evenkeel"

# Span names. A request is one SERVER span, `{operation} {model}`, with INTERNAL children: three
# phases, and before them what our hooks did with it, if that took time.
SPAN_PROMPT = "evenkeel.prompt"
SPAN_COMPRESSION = "evenkeel.compression"
SPAN_CACHE = "evenkeel.cache"
SPAN_GATE = "evenkeel.gate"
SPAN_QUEUE = "evenkeel.queue"
SPAN_PREFILL = "evenkeel.prefill"
SPAN_DECODE = "evenkeel.decode"
# Engine steps, about one span per second: `engine_steps` has one row per run of steps.
SPAN_ENGINE_STEPS = "evenkeel.engine.steps"
SPAN_CANARY = "evenkeel.speculation.canary"
# The model's own answer to a request that the response cache answered: work, but no request.
SPAN_CACHE_REPLAY = "evenkeel.cache.replay"
SPAN_EVALUATION = "evenkeel.evaluation"
SPAN_EVALUATION_RUN = "evenkeel.evaluation.run"
SPAN_CONTROL = "evenkeel.control"
SPAN_LIVE_EVALUATION = "evenkeel.evaluation.live"
SPAN_FEEDBACK = "evenkeel.feedback"
# What was judged of answers.
JUDGEMENTS = frozenset({
    SPAN_EVALUATION, SPAN_EVALUATION_RUN, SPAN_LIVE_EVALUATION, SPAN_FEEDBACK,
})  # fmt: skip

# OpenTelemetry GenAI semantic conventions.
OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
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
# Which engine served the request; on another tool's span or its resource, it names the engine.
ENGINE_NAME = "evenkeel.engine.name"
SESSION_SOURCE = "evenkeel.session.source"
PARENT_SPAN_ID = "evenkeel.parent_span_id"
# How the engine computes; also on the resource.
ENGINE_DTYPE = "evenkeel.engine.dtype"
ENGINE_KV_CACHE_DTYPE = "evenkeel.engine.kv_cache_dtype"
ENGINE_TENSOR_PARALLEL = "evenkeel.engine.tensor_parallel"
ENGINE_PIPELINE_PARALLEL = "evenkeel.engine.pipeline_parallel"
# Followed by the drafts' source; the same figures by position, for that source only.
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
CACHE_VERIFIED_TOKENS = "evenkeel.cache.verified_tokens"
CACHE_VERDICT = "evenkeel.cache.verdict"
CACHE_THRESHOLD = "evenkeel.cache.threshold"
CACHE_KIND = "evenkeel.cache.kind"
CACHE_LEAD = "evenkeel.cache.lead"
CACHE_BOUND = "evenkeel.cache.bound"
CACHE_LIMIT = "evenkeel.cache.limit"
# The class of a near hit: route in the cache's file, minimum cosine and lead, and its evidence.
CACHE_ROUTE = "evenkeel.cache.route"
CACHE_CLASS_SIMILARITY = "evenkeel.cache.class.similarity"
CACHE_CLASS_LEAD = "evenkeel.cache.class.lead"
CACHE_CLASS_SEEN = "evenkeel.cache.class.seen"
CACHE_CLASS_WRONG = "evenkeel.cache.class.wrong"
CACHE_CLASS_LABELLED = "evenkeel.cache.class.labelled"
CACHE_CLASS_STATUS = "evenkeel.cache.class.status"
CACHE_CHANGE = "evenkeel.cache.change"
COMPRESSION_VERDICT = "evenkeel.compression.verdict"
COMPRESSION_SAVED_TOKENS = "evenkeel.compression.saved_tokens"
EMISSION_DRAFTED = "evenkeel.emission_drafted"
EMISSION_ACCEPTED = "evenkeel.emission_accepted"
SAMPLE_WEIGHT = "evenkeel.sample_weight"
LEDGER_PREFIX = "evenkeel.ledger."
LEDGER_SHARED_BY = "evenkeel.ledger_shared_by"
LEDGER_ERROR_RATIO = "evenkeel.ledger_error_ratio"

# On a SPAN_CANARY: a greedy answer that was regenerated without drafts.
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
EVAL_RUN_HEADLINE = "evenkeel.eval.run_headline"
EVAL_BASELINE_TEXT = "evenkeel.eval.baseline_text"
EVAL_CANDIDATE_TEXT = "evenkeel.eval.candidate_text"
EVAL_OTHER_CHANGES = "evenkeel.eval.other_changes"

# On a span that the collector made of a log event: the event's name.
FROM_EVENT = "evenkeel.from_event"

# Control spans: one SPAN_CONTROL per step, from its start until its effect is known.
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
# A production request sampled by live evaluation: one SPAN_LIVE_EVALUATION per scorer.
LIVE_MONITOR = "evenkeel.live.monitor"
LIVE_STRATUM = "evenkeel.live.stratum"
LIVE_PROBABILITY = "evenkeel.live.probability"
LIVE_LAG_S = "evenkeel.live.lag_s"

# Human feedback on an answer, on SPAN_FEEDBACK in addition to the evaluation's attributes.
FEEDBACK_CORRECTED = "evenkeel.feedback.corrected"
FEEDBACK_AUTHOR = "evenkeel.feedback.author"
# Feedback labels for whether a failure is added to a golden dataset.
REVIEW_ACCEPTED = "golden"
REVIEW_REJECTED = "not golden"
REVIEWS = frozenset({REVIEW_ACCEPTED, REVIEW_REJECTED})

# HTTP headers a caller may set on a request. `traceparent` is W3C Trace Context.
HEADER_TENANT = "x-evenkeel-tenant"
HEADER_SESSION = "x-evenkeel-session"
# Headers in which agents, and clients of vLLM, name their session; ours comes first.
HEADERS_SESSION_OTHERS = (
    "x-session-id",
    "x-claude-code-session-id",
    "session-id",
    "x-session-affinity",
)
HEADER_PROMPT = "x-evenkeel-prompt"  # name@version
HEADER_SLO_CLASS = "x-evenkeel-slo-class"
HEADER_ROUTE = "x-evenkeel-route"
# The route of requests that `evenkeel eval` makes.
ROUTE_EVAL = "eval"
# On a response: which layer of the response cache served it.
HEADER_CACHE = "x-evenkeel-cache"
HEADER_KNOWLEDGE = "x-evenkeel-knowledge"  # name@version, name@version

AttributeValue = str | bool | int | float | Sequence[str] | Sequence[int] | Sequence[float]


class Status(StrEnum):
    """How a request ended; all four are valid events of an SLO."""

    OK = "ok"
    ERROR = "error"
    ABORTED = "aborted"
    SHED = "shed"
