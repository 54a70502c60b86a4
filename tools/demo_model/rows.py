"""Training rows: one system prompt followed by many conversations that cannot see each other.

A system prompt is far longer than a question. Computing it once for a dozen conversations, as
prefix caching does in serving, makes a step several times cheaper than one row per conversation.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerFast

from tools.demo_model.conversations import Conversation, Writer
from tools.demo_model.tokenizer import ASSISTANT, END, SYSTEM, USER

# Attention cost is quadratic in a row's length: only rows with a long prompt are long.
SHORT_ROW, LONG_ROW = 576, 1152
PREFIX = 0
PADDING = -1


@dataclass(frozen=True, slots=True)
class Batch:
    """Rows as the model takes them.

    Attributes:
        tokens: Token ids, (rows, length).
        positions: Position of each token as if its conversation alone followed the prompt.
        visible: Which token (last axis) each token may attend to, (rows, 1, length, length).
        labels: The id that each token must predict, −100 for tokens without loss.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    visible: torch.Tensor
    labels: torch.Tensor


@dataclass(slots=True)
class _Row:
    tokens: list[int]
    positions: list[int]
    segments: list[int]
    labels: list[int]


class RowMaker:
    """Packs conversations into rows of equal length."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast, writer: Writer) -> None:
        self._tokenizer = tokenizer
        self._writer = writer
        self._ids = {word: tokenizer.convert_tokens_to_ids(word) for word in (USER, ASSISTANT, END)}

    def batch(self, num_tokens: int, is_long: bool) -> Batch:
        """Return the next rows, `num_tokens` in total: few with long prompts or many with short."""
        length = LONG_ROW if is_long else SHORT_ROW
        rows = [self._row(length, is_long) for _ in range(num_tokens // length)]
        segments = torch.tensor([row.segments for row in rows])
        return Batch(
            tokens=torch.tensor([row.tokens for row in rows]),
            positions=torch.tensor([row.positions for row in rows]),
            visible=see(segments)[:, None],
            labels=torch.tensor([row.labels for row in rows]),
        )

    def _row(self, length: int, is_long: bool) -> _Row:
        prompt = self._writer.system_prompt(is_long)
        prefix = self._encode(f"{SYSTEM}{prompt.text}{END}") if prompt.text else []
        size = len(prefix)
        row = _Row(prefix, list(range(size)), [PREFIX] * size, [-100] * size)
        segment = PREFIX
        while True:
            tokens, labels = self._encode_conversation(self._writer.conversation(prompt.wants_json))
            if len(row.tokens) + len(tokens) > length:
                # A row must contain an answer; a conversation that fits comes soon.
                if segment == PREFIX:
                    continue
                break
            segment += 1
            row.tokens += tokens
            row.labels += labels
            row.segments += [segment] * len(tokens)
            row.positions += range(size, size + len(tokens))
        self._pad(row, length)
        return row

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids

    def _encode_conversation(self, conversation: Conversation) -> tuple[list[int], list[int]]:
        """Return tokens and labels; only answers and their end tokens are trained on."""
        user, assistant, end = self._ids[USER], self._ids[ASSISTANT], self._ids[END]
        tokens: list[int] = []
        labels: list[int] = []
        for turn in conversation:
            question = [user, *self._encode(turn.user), end, assistant]
            answer = [*self._encode(turn.assistant), end]
            tokens += question + answer
            # The token before an answer predicts its first one: labels are shifted by one.
            labels += [-100] * (len(question) - 1) + answer + [-100]
        return tokens, labels

    def _pad(self, row: _Row, length: int) -> None:
        missing = length - len(row.tokens)
        row.tokens += [self._tokenizer.pad_token_id] * missing
        row.positions += [0] * missing
        row.segments += [PADDING] * missing
        row.labels += [-100] * missing


def see(segments: torch.Tensor) -> torch.Tensor:
    """Return the attention mask: earlier tokens of the prompt or of the token's own segment.

    Args:
        segments: (rows, length): 0 for the prompt, 1, 2, … for conversations, −1 for padding.

    Returns:
        Booleans (rows, length, length), [row, from, to]. Every token attends to itself, so that
        the softmax of padding is defined.
    """
    length = segments.shape[1]
    same = segments[:, :, None] == segments[:, None, :]
    prompt = (segments == PREFIX)[:, None, :]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    return (same | prompt) & causal
