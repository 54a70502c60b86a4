"""Names of OpenTelemetry's GenAI conventions: all that are current, and what replaced the others.

From model/gen-ai of open-telemetry/semantic-conventions-genai at e8fc57515062 (before its first
release), with the tokens by modality that 002c8a6ea1c8 added; deprecated ones from
open-telemetry/semantic-conventions at 055b333b0256. A test compares them with the models' names,
tests/fixtures/semantic_conventions.json, and every `gen_ai.` name in our code with both. spans.py
names those that our own spans have.
"""

from __future__ import annotations

from collections.abc import Mapping

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
RESPONSE_MODEL = "gen_ai.response.model"
RESPONSE_ID = "gen_ai.response.id"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS = "gen_ai.usage.cache_creation.input_tokens"
REASONING_TOKENS = "gen_ai.usage.reasoning.output_tokens"
CONVERSATION_ID = "gen_ai.conversation.id"
AGENT_NAME = "gen_ai.agent.name"
TOOL_NAME = "gen_ai.tool.name"
TOOL_CALL_ID = "gen_ai.tool.call.id"
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_DEFINITIONS = "gen_ai.tool.definitions"
ERROR_TYPE = "error.type"
HTTP_STATUS = "http.response.status_code"
EVENT_NAME = "event.name"
SESSION_ID = "session.id"

ATTRIBUTES = frozenset({
    OPERATION, PROVIDER, REQUEST_MODEL, RESPONSE_MODEL, RESPONSE_ID, TIME_TO_FIRST_CHUNK,
    INPUT_TOKENS, OUTPUT_TOKENS, CACHED_TOKENS, CACHE_WRITE_TOKENS, REASONING_TOKENS,
    CONVERSATION_ID, AGENT_NAME, TOOL_NAME, TOOL_CALL_ID, INPUT_MESSAGES, OUTPUT_MESSAGES,
    SYSTEM_INSTRUCTIONS, TOOL_DEFINITIONS,
    "gen_ai.agent.description", "gen_ai.agent.id", "gen_ai.agent.version", "gen_ai.data_source.id",
    "gen_ai.embeddings.dimension.count", "gen_ai.evaluation.explanation", "gen_ai.evaluation.name",
    "gen_ai.evaluation.score.label", "gen_ai.evaluation.score.value", "gen_ai.output.type",
    "gen_ai.prompt.name", "gen_ai.request.choice.count", "gen_ai.request.encoding_formats",
    "gen_ai.request.frequency_penalty", "gen_ai.request.max_tokens",
    "gen_ai.request.presence_penalty", "gen_ai.request.seed", "gen_ai.request.stop_sequences",
    "gen_ai.request.stream", "gen_ai.request.temperature", "gen_ai.request.top_k",
    "gen_ai.request.top_p", "gen_ai.response.finish_reasons", "gen_ai.retrieval.documents",
    "gen_ai.retrieval.query.text", "gen_ai.token.type", "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.result", "gen_ai.tool.description", "gen_ai.tool.type",
    "gen_ai.usage.audio.input_tokens", "gen_ai.usage.audio.output_tokens",
    "gen_ai.usage.image.input_tokens", "gen_ai.usage.text.input_tokens",
    "gen_ai.usage.text.output_tokens", "gen_ai.usage.video.input_tokens", "gen_ai.workflow.name",
})  # fmt: skip

EVENT_INFERENCE = "gen_ai.client.inference.operation.details"
EVENT_EVALUATION = "gen_ai.evaluation.result"
EVENTS = frozenset({EVENT_INFERENCE, EVENT_EVALUATION, "gen_ai.client.operation.exception"})

SERVER_DURATION = "gen_ai.server.request.duration"
SERVER_TIME_TO_FIRST_TOKEN = "gen_ai.server.time_to_first_token"
SERVER_TIME_PER_OUTPUT_TOKEN = "gen_ai.server.time_per_output_token"
# The histograms of a model server and their boundaries, in seconds: the page "Semantic conventions
# for generative AI metrics" at the commit named above.
SERVER_METRIC_BOUNDS_S: Mapping[str, tuple[float, ...]] = {
    SERVER_DURATION: (
        0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
    ),
    SERVER_TIME_TO_FIRST_TOKEN: (
        0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    ),
    SERVER_TIME_PER_OUTPUT_TOKEN: (
        0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5,
    ),
}  # fmt: skip
# The conventions' value for an error type that is not told.
OTHER = "_OTHER"

METRICS = frozenset({
    "gen_ai.client.token.usage", "gen_ai.client.operation.duration",
    "gen_ai.client.operation.time_to_first_chunk", "gen_ai.client.operation.time_per_output_chunk",
    SERVER_DURATION, SERVER_TIME_PER_OUTPUT_TOKEN, SERVER_TIME_TO_FIRST_TOKEN,
    "gen_ai.workflow.duration",
})  # fmt: skip

# Earlier names and what replaced them; None if nothing did. Senders still use them: both are read.
DEPRECATED: Mapping[str, str | None] = {
    "gen_ai.system": PROVIDER,
    "gen_ai.usage.prompt_tokens": INPUT_TOKENS,
    "gen_ai.usage.completion_tokens": OUTPUT_TOKENS,
    "gen_ai.prompt": None,
    "gen_ai.completion": None,
    "gen_ai.openai.request.seed": "gen_ai.request.seed",
    "gen_ai.openai.request.response_format": "gen_ai.output.type",
    "gen_ai.openai.request.service_tier": "openai.request.service_tier",
    "gen_ai.openai.response.service_tier": "openai.response.service_tier",
    "gen_ai.openai.response.system_fingerprint": "openai.response.system_fingerprint",
}

# What a request cost by its sender's account, in US dollars. OpenLIT uses it, Langfuse reads it.
COST = "gen_ai.usage.cost"
