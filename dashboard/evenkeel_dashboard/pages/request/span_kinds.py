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


class Kind(StrEnum):
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
    kinds: Mapping[str, Kind]


_OURS: Mapping[str, Kind] = {
    spans.SPAN_QUEUE: Kind.PHASE,
    spans.SPAN_PREFILL: Kind.PHASE,
    spans.SPAN_DECODE: Kind.PHASE,
    spans.SPAN_PROMPT: Kind.PREPARATION,
    spans.SPAN_COMPRESSION: Kind.PREPARATION,
    spans.SPAN_CACHE: Kind.PREPARATION,
    spans.SPAN_GATE: Kind.PREPARATION,
    spans.SPAN_EVALUATION: Kind.EVALUATION,
    spans.SPAN_LIVE_EVALUATION: Kind.EVALUATION,
    spans.SPAN_FEEDBACK: Kind.EVALUATION,
}
# The first rule with a matching value decides: who names the kind of a span comes before what the
# span carries, and the most specific convention before the general ones.
_RULES: Sequence[_Rule] = (
    _Rule(spans.STATUS, {"*": Kind.MODEL}),
    _Rule(
        "openinference.span.kind",
        {
            "LLM": Kind.MODEL,
            "EMBEDDING": Kind.EMBEDDING,
            "CHAIN": Kind.STEP,
            "RETRIEVER": Kind.RETRIEVAL,
            "RERANKER": Kind.RERANK,
            "TOOL": Kind.TOOL,
            "AGENT": Kind.AGENT,
            "GUARDRAIL": Kind.GUARDRAIL,
            "EVALUATOR": Kind.EVALUATION,
            "PROMPT": Kind.TEMPLATE,
        },
    ),
    _Rule(
        "traceloop.span.kind",
        {
            "workflow": Kind.APPLICATION,
            "task": Kind.STEP,
            "agent": Kind.AGENT,
            "tool": Kind.TOOL,
        },
    ),
    _Rule(
        "gen_ai.operation.name",
        {
            "chat": Kind.MODEL,
            "text_completion": Kind.MODEL,
            "generate_content": Kind.MODEL,
            "embeddings": Kind.EMBEDDING,
            "execute_tool": Kind.TOOL,
            "invoke_agent": Kind.AGENT,
            "create_agent": Kind.AGENT,
            "invoke_workflow": Kind.APPLICATION,
            "retrieval": Kind.RETRIEVAL,
        },
    ),
    _Rule(
        "llm.request.type",
        {
            "chat": Kind.MODEL,
            "completion": Kind.MODEL,
            "embedding": Kind.EMBEDDING,
            "rerank": Kind.RERANK,
            # LiteLLM's.
            "acompletion": Kind.MODEL,
            "text_completion": Kind.MODEL,
            "atext_completion": Kind.MODEL,
            "responses": Kind.MODEL,
            "aresponses": Kind.MODEL,
            "anthropic_messages": Kind.MODEL,
            "aanthropic_messages": Kind.MODEL,
            "generate_content": Kind.MODEL,
            "agenerate_content": Kind.MODEL,
            "generate_content_stream": Kind.MODEL,
            "agenerate_content_stream": Kind.MODEL,
            "aembedding": Kind.EMBEDDING,
            "arerank": Kind.RERANK,
        },
    ),
    # Vercel's AI SDK up to 6.
    _Rule(
        "ai.operationId",
        {
            "ai.generateText.doGenerate": Kind.MODEL,
            "ai.streamText.doStream": Kind.MODEL,
            "ai.generateObject.doGenerate": Kind.MODEL,
            "ai.streamObject.doStream": Kind.MODEL,
            "ai.embed.doEmbed": Kind.EMBEDDING,
            "ai.embedMany.doEmbed": Kind.EMBEDDING,
            "ai.toolCall": Kind.TOOL,
        },
    ),
    _Rule("gen_ai.latency.e2e", {"*": Kind.MODEL}),
    _Rule("mcp.method.name", {"tools/call": Kind.TOOL, "*": Kind.MCP}),
    *(
        _Rule(
            attribute,
            {
                **dict.fromkeys(
                    ("chroma", "lancedb", "marqo", "milvus", "pinecone", "qdrant", "weaviate"),
                    Kind.RETRIEVAL,
                ),
                "*": Kind.DATABASE,
            },
        )
        for attribute in ("db.system.name", "db.system")
    ),
    _Rule("messaging.system", {"*": Kind.MESSAGING}),
    _Rule("rpc.system.name", {"*": Kind.RPC}),
    _Rule("rpc.system", {"*": Kind.RPC}),
    _Rule("http.request.method", {"*": Kind.HTTP}),
    _Rule("http.method", {"*": Kind.HTTP}),
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


def kind_of(name: str, attributes: Mapping[str, str]) -> Kind:
    """Return what a span does, from its name and attributes; OTHER if nothing tells."""
    if name in _OURS:
        return _OURS[name]
    for rule in _RULES:
        value = attributes.get(rule.attribute, "")
        if value and (kind := rule.kinds.get(value) or rule.kinds.get("*")):
            return kind
    return Kind.OTHER


def first_of(attributes: Mapping[str, str], names: Sequence[str]) -> str:
    """Return the first of the named attributes that has a value; "" if none has."""
    return next((attributes[name] for name in names if attributes.get(name)), "")
