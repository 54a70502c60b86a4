"""How to read a model's answers by their tokens: the marks of reasoning, and what shows nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evenkeel_runtime.adapter.vllm import find_name
from evenkeel_runtime.request.hook import EngineReader
from evenkeel_runtime.request.trace import EngineRun
from evenkeel_runtime.wire.frames import AnswerMarks
from evenkeel_runtime.wire.observation import MAX_ANSWER_TOKENS, Observation, pack_tokens

logger = logging.getLogger(__name__)

# What opens reasoning, and what closes it, each in one or more tokens.
_Texts = tuple[tuple[str, ...], tuple[str, ...]]

# What models reason between, if no parser says otherwise.
_THINK: _Texts = ("<think>",), ("</think>",)
# gpt-oss writes channels (vllm/parser/harmony.py); `analysis` is its reasoning.
_HARMONY: _Texts = ("<|channel|>", "analysis", "<|message|>"), ("<|end|>",)
_HARMONY_MODEL = "gpt_oss"
# Blanks as vocabularies spell them: of bytes (GPT-2), of pieces (SentencePiece), and as themselves.
_BLANKS = frozenset("ĠĊĉč▁ \n\r\t\xa0")
_BYTE_BLANKS = frozenset({"<0x09>", "<0x0A>", "<0x0D>", "<0x20>"})
# A template that opens the reasoning does so at the prompt's end.
_TAIL_TOKENS = 32
_UNKNOWN = AnswerMarks(reasons=True)


def read_marks(engine: Any) -> AnswerMarks:
    """Return the marks of the served model; ones that say nothing if they cannot be read.

    Args:
        engine: vLLM's engine client.
    """
    try:
        tokenizer = getattr(getattr(engine, "renderer", None), "tokenizer", None)
        return _UNKNOWN if tokenizer is None else _read(engine, tokenizer)
    except Exception as error:
        logger.warning("reasoning and empty answers are not recorded: %r", error)
        return _UNKNOWN


def _read(engine: Any, tokenizer: Any) -> AnswerMarks:
    vocabulary: Mapping[str, int] = tokenizer.get_vocab()
    silent = frozenset(getattr(tokenizer, "all_special_ids", ())) | find_blanks(vocabulary)
    config = getattr(engine, "vllm_config", None)
    parser = getattr(getattr(config, "structured_outputs_config", None), "reasoning_parser", "")
    texts: _Texts | None = None
    hf_config = getattr(getattr(config, "model_config", None), "hf_config", None)
    if getattr(hf_config, "model_type", None) == _HARMONY_MODEL:
        texts = _HARMONY
    elif parser:
        texts = _texts_of_parser(parser, tokenizer)
    elif vocabulary.keys() >= {*_THINK[0], *_THINK[1]}:
        texts = _THINK
    if texts is None:
        return AnswerMarks(reasons=bool(parser), silent=silent)
    opens, closes = (tuple(vocabulary.get(text, -1) for text in side) for side in texts)
    if -1 in (*opens, *closes):
        # Text in several tokens may be tokenized otherwise within an answer.
        return AnswerMarks(reasons=True, silent=silent)
    return AnswerMarks(True, opens, closes, silent - {*opens, *closes})


def find_blanks(vocabulary: Mapping[str, int]) -> frozenset[int]:
    """Return the tokens that are only spaces, tabs and line breaks."""
    return frozenset(
        token
        for text, token in vocabulary.items()
        if _BLANKS.issuperset(text) or text in _BYTE_BLANKS
    )


def _texts_of_parser(name: str, tokenizer: Any) -> _Texts | None:
    """Return the marks of vLLM's reasoning parser; None if it has none."""
    manager = find_name("vllm.reasoning", "ReasoningParserManager")
    parser = manager.get_reasoning_parser(name)(tokenizer)
    start, end = parser.reasoning_start_str, parser.reasoning_end_str
    return ((start.strip(),), (end.strip(),)) if start and end else None


def with_answers(reader: EngineReader, marks: AnswerMarks) -> EngineReader:
    """Return a reader whose observations also have the tokens of the answer.

    Args:
        reader: Reads the rest.
        marks: The model's marks.
    """

    def read_engine(run: EngineRun, seen: Observation) -> None:
        reader.read_engine(run, seen)
        output = run.last_output
        completions = getattr(output, "outputs", None)
        if not isinstance(completions, list):
            return
        if run.is_streamed:
            seen.answer = run.pack_answer()[:MAX_ANSWER_TOKENS].tobytes()
        elif completions:
            seen.answer = pack_tokens(completions[0].token_ids, MAX_ANSWER_TOKENS)
        if marks.opens:
            seen.opens_in_reasoning = ends_open(output.prompt_token_ids or (), marks)

    return replace(reader, read_engine=read_engine)


def ends_open(prompt: Sequence[int], marks: AnswerMarks) -> bool:
    """Return whether a prompt ends inside the reasoning."""
    tail = list(prompt[-_TAIL_TOKENS:])
    return _last(tail, marks.opens) > _last(tail, marks.closes)


def _last(tokens: list[int], pattern: tuple[int, ...]) -> int:
    """Return the last place of a pattern; -1 without one."""
    size = len(pattern)
    places = range(len(tokens) - size, -1, -1)
    return next((at for at in places if tuple(tokens[at : at + size]) == pattern), -1)
