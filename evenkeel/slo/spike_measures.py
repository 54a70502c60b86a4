"""What rules on spikes compare, in words, and what would help against each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class SpikeKind(StrEnum):
    """What is compared: a quantile of tokens per request, or a share of requests."""

    TOKENS = "tokens"
    SHARE = "share"


@dataclass(frozen=True, slots=True)
class SpikeMeasure:
    """A measure of spikes.

    Attributes:
        kind: Tokens or a share.
        words: What requests have more of, as a sentence continues it.
        helps: What would help, one sentence.
        explore: Filters of the Explore page that find such requests.
    """

    kind: SpikeKind
    words: str
    helps: str
    explore: Mapping[str, str]


SPIKE_MEASURES: Mapping[str, SpikeMeasure] = {
    "input_tokens": SpikeMeasure(
        SpikeKind.TOKENS,
        "input tokens per request",
        "Open the longest prompts and see what was added: a new prompt version, retrieved "
        "documents or a history that is never cut. Limit the context, or compress it.",
        {"order": "input"},
    ),
    "output_tokens": SpikeMeasure(
        SpikeKind.TOKENS,
        "output tokens per request",
        "Open the longest answers: a prompt that no longer asks for short ones, a missing stop "
        "sequence or a loop. Set max_tokens.",
        {"order": "output"},
    ),
    "reasoning_tokens": SpikeMeasure(
        SpikeKind.TOKENS,
        "reasoning tokens per request",
        "See whether the model, its reasoning effort or the prompt changed; limit the effort for "
        "this route.",
        {"order": "reasoning"},
    ),
    "repeated_share": SpikeMeasure(
        SpikeKind.SHARE,
        "answers that repeat themselves",
        "Open an example: the model is in a loop. Set a repetition penalty or max_tokens, or take "
        "back the newest model or prompt version.",
        {"order": "repeated"},
    ),
    "empty_share": SpikeMeasure(
        SpikeKind.SHARE,
        "empty answers",
        "Look at stop sequences, the chat template and the newest prompt version: the model ends "
        "before it says anything.",
        {"answer": "empty"},
    ),
    "cut_share": SpikeMeasure(
        SpikeKind.SHARE,
        "answers cut by length",
        "Raise max_tokens or the model's context, or ask for shorter answers.",
        {"finish_reason": "length"},
    ),
    "failed_tool_share": SpikeMeasure(
        SpikeKind.SHARE,
        "answers with a tool call that did not parse",
        "Check the tool parser against the model, and the newest tool schema or prompt version.",
        {"answer": "failed_tools"},
    ),
    "refused_share": SpikeMeasure(
        SpikeKind.SHARE,
        "answers refused by a content filter",
        "Open examples: a prompt, retrieved text or a caller that triggers the filter.",
        {"finish_reason": "content_filter"},
    ),
}
