"""Names what a span does, whichever instrumentation sent it: one table of attribute names.

Sources: OpenTelemetry's semantic conventions 1.41 (`gen_ai.*`, `mcp.*`, `db.*`, `http.*`, `rpc.*`,
`messaging.*`), OpenInference (`openinference.span.kind`), OpenLLMetry (`traceloop.span.kind`,
`llm.request.type`), vLLM (`llm_request`), and our own names (evenkeel/spans.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from evenkeel import spans


class SpanKind(StrEnum):
    """What a span does, in a word that the page shows."""

    APPLICATION = "application"
    AGENT = "agent"
    STEP = "step"
    TEMPLATE = "template"
    RETRIEVAL = "retrieval"
    EMBEDDING = "embedding"
    RERANK = "rerank"
    TOOL = "tool"
    GUARDRAIL = "guardrail"
    EVALUATION = "evaluation"
    MODEL = "model"
    PREPARATION = "preparation"
    PHASE = "phase"
    DATABASE = "database"
    HTTP = "http"
    RPC = "rpc"
    MESSAGING = "messaging"
    MCP = "mcp"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class _Rule:
    """Values of an attribute that tell a span's kind; "*" is any value."""

    attribute: str
    kinds: Mapping[str, SpanKind]


_OURS: Mapping[str, SpanKind] = {
    spans.SPAN_QUEUE: SpanKind.PHASE,
    spans.SPAN_PREFILL: SpanKind.PHASE,
    spans.SPAN_DECODE: SpanKind.PHASE,
    spans.SPAN_PROMPT: SpanKind.PREPARATION,
    spans.SPAN_COMPRESSION: SpanKind.PREPARATION,
    spans.SPAN_CACHE: SpanKind.PREPARATION,
    spans.SPAN_GATE: SpanKind.PREPARATION,
    spans.SPAN_EVALUATION: SpanKind.EVALUATION,
    spans.SPAN_LIVE_EVALUATION: SpanKind.EVALUATION,
    spans.SPAN_FEEDBACK: SpanKind.EVALUATION,
}
# The first rule with a matching value decides: who names the kind of a span comes before what the
# span carries, and the most specific convention before the general ones.
_RULES: Sequence[_Rule] = (
    _Rule(spans.STATUS, {"*": SpanKind.MODEL}),
    _Rule(
        "openinference.span.kind",
        {
            "LLM": SpanKind.MODEL,
            "EMBEDDING": SpanKind.EMBEDDING,
            "CHAIN": SpanKind.STEP,
            "RETRIEVER": SpanKind.RETRIEVAL,
            "RERANKER": SpanKind.RERANK,
            "TOOL": SpanKind.TOOL,
            "AGENT": SpanKind.AGENT,
            "GUARDRAIL": SpanKind.GUARDRAIL,
            "EVALUATOR": SpanKind.EVALUATION,
            "PROMPT": SpanKind.TEMPLATE,
        },
    ),
    _Rule(
        "traceloop.span.kind",
        {
            "workflow": SpanKind.APPLICATION,
            "task": SpanKind.STEP,
            "agent": SpanKind.AGENT,
            "tool": SpanKind.TOOL,
        },
    ),
    _Rule(
        "gen_ai.operation.name",
        {
            "chat": SpanKind.MODEL,
            "text_completion": SpanKind.MODEL,
            "generate_content": SpanKind.MODEL,
            "embeddings": SpanKind.EMBEDDING,
            "execute_tool": SpanKind.TOOL,
            "invoke_agent": SpanKind.AGENT,
            "create_agent": SpanKind.AGENT,
            "invoke_workflow": SpanKind.APPLICATION,
            "retrieval": SpanKind.RETRIEVAL,
        },
    ),
    _Rule(
        "llm.request.type",
        {
            "chat": SpanKind.MODEL,
            "completion": SpanKind.MODEL,
            "embedding": SpanKind.EMBEDDING,
            "rerank": SpanKind.RERANK,
            # LiteLLM's.
            "acompletion": SpanKind.MODEL,
            "text_completion": SpanKind.MODEL,
            "atext_completion": SpanKind.MODEL,
            "responses": SpanKind.MODEL,
            "aresponses": SpanKind.MODEL,
            "anthropic_messages": SpanKind.MODEL,
            "aanthropic_messages": SpanKind.MODEL,
            "generate_content": SpanKind.MODEL,
            "agenerate_content": SpanKind.MODEL,
            "generate_content_stream": SpanKind.MODEL,
            "agenerate_content_stream": SpanKind.MODEL,
            "aembedding": SpanKind.EMBEDDING,
            "arerank": SpanKind.RERANK,
        },
    ),
    # Vercel's AI SDK up to 6.
    _Rule(
        "ai.operationId",
        {
            "ai.generateText.doGenerate": SpanKind.MODEL,
            "ai.streamText.doStream": SpanKind.MODEL,
            "ai.generateObject.doGenerate": SpanKind.MODEL,
            "ai.streamObject.doStream": SpanKind.MODEL,
            "ai.embed.doEmbed": SpanKind.EMBEDDING,
            "ai.embedMany.doEmbed": SpanKind.EMBEDDING,
            "ai.toolCall": SpanKind.TOOL,
        },
    ),
    _Rule("gen_ai.latency.e2e", {"*": SpanKind.MODEL}),
    _Rule("mcp.method.name", {"tools/call": SpanKind.TOOL, "*": SpanKind.MCP}),
    *(
        _Rule(
            attribute,
            {
                **dict.fromkeys(
                    ("chroma", "lancedb", "marqo", "milvus", "pinecone", "qdrant", "weaviate"),
                    SpanKind.RETRIEVAL,
                ),
                "*": SpanKind.DATABASE,
            },
        )
        for attribute in ("db.system.name", "db.system")
    ),
    _Rule("messaging.system", {"*": SpanKind.MESSAGING}),
    _Rule("rpc.system.name", {"*": SpanKind.RPC}),
    _Rule("rpc.system", {"*": SpanKind.RPC}),
    _Rule("http.request.method", {"*": SpanKind.HTTP}),
    _Rule("http.method", {"*": SpanKind.HTTP}),
)

# What the rows show, by the names that senders use; the first that is there counts.
INPUT_TOKENS = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt",
)  # fmt: skip
OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.token_count.completion",
)  # fmt: skip
COST = (
    "llm.cost.total", "gen_ai.usage.cost", "operation.cost", "gen_ai.cost.total_cost",
    "litellm.cost.total",
)  # fmt: skip
MODEL_NAME = (
    "gen_ai.request.model", "llm.model_name", "gen_ai.response.model",
    "embedding.model_name",
)  # fmt: skip
TOOL_NAME = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name")
RESPONSE_ID = (spans.REQUEST_ID, "gen_ai.response.id", "llm.response.id")
ERROR = ("error.type", "exception.message")
CLAMPED = "evenkeel.clamped.start_unix_nano"

ATTRIBUTES: tuple[str, ...] = tuple(
    sorted({
        *(rule.attribute for rule in _RULES),
        *INPUT_TOKENS, *OUTPUT_TOKENS, *COST, *MODEL_NAME, *TOOL_NAME, *RESPONSE_ID, *ERROR,
        CLAMPED,
    })
)  # fmt: skip
"""The attributes that the waterfall reads of each span."""


def kind_of(name: str, attributes: Mapping[str, str]) -> SpanKind:
    """Return what a span does, from its name and attributes; OTHER if nothing tells."""
    if name in _OURS:
        return _OURS[name]
    for rule in _RULES:
        value = attributes.get(rule.attribute, "")
        if value and (kind := rule.kinds.get(value) or rule.kinds.get("*")):
            return kind
    return SpanKind.OTHER


def first_of(attributes: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the first of the named attributes that has a value; "" if none has."""
    return next((attributes[name] for name in names if attributes.get(name)), "")
