"""How the tokens of a model's answers are to be read, from its tokenizer and vLLM's flags."""

from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel_runtime.adapter.answer_marks import ends_open, find_blanks, read_marks, with_answers
from evenkeel_runtime.request.hook import EngineReader
from evenkeel_runtime.request.trace import EngineRun
from evenkeel_runtime.wire.frames import AnswerMarks
from evenkeel_runtime.wire.observation import Observation, pack_tokens

VOCABULARY = {
    "<think>": 1, "</think>": 2, "</s>": 3, "Ġ": 4, "ĊĊ": 5, "Ġa": 6, "a": 7, "<0x0A>": 8,
    "<|channel|>": 20, "analysis": 21, "<|message|>": 22, "<|end|>": 23,
}  # fmt: skip
MARKS = AnswerMarks(True, (1,), (2,))


class Tokenizer:
    """A tokenizer as vLLM gives it to its parsers."""

    all_special_ids = (1, 3)

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.vocabulary = vocabulary

    def get_vocab(self) -> dict[str, int]:
        return self.vocabulary


def engine(
    vocabulary: dict[str, int], parser: str = "", model_type: str = "llama"
) -> SimpleNamespace:
    config = SimpleNamespace(
        structured_outputs_config=SimpleNamespace(reasoning_parser=parser),
        model_config=SimpleNamespace(hf_config=SimpleNamespace(model_type=model_type)),
    )
    return SimpleNamespace(
        renderer=SimpleNamespace(tokenizer=Tokenizer(vocabulary)), vllm_config=config
    )


PLAIN = {"a": 7, "</s>": 3}
KNOWN = {
    "marks in the vocabulary": (engine(VOCABULARY), (True, (1,), (2,))),
    "none": (engine(PLAIN), (False, (), ())),
    "vLLM's parser of Qwen 3": (engine(VOCABULARY, "qwen3"), (True, (1,), (2,))),
    "vLLM's parser of DeepSeek R1": (engine(VOCABULARY, "deepseek_r1"), (True, (1,), (2,))),
    "gpt-oss": (engine(VOCABULARY, "", "gpt_oss"), (True, (20, 21, 22), (23,))),
    "a parser whose marks are several tokens": (engine(VOCABULARY, "granite"), (True, (), ())),
    "a parser that is not there": (engine(VOCABULARY, "no_such_parser"), (True, (), ())),
    "no tokenizer": (SimpleNamespace(), (True, (), ())),
}


@pytest.mark.parametrize(("of", "expected"), KNOWN.values(), ids=KNOWN)
def test_marks_of_reasoning(
    of: Any, expected: tuple[bool, tuple[int, ...], tuple[int, ...]]
) -> None:
    marks = read_marks(of)
    assert (marks.reasons, marks.opens, marks.closes) == expected


def test_special_tokens_and_blanks_show_nothing() -> None:
    assert read_marks(engine(VOCABULARY)).silent == {3, 4, 5, 8}
    assert find_blanks({"▁▁": 1, "▁the": 2, "\n": 3}) == {1, 3}


PROMPTS = {
    "opened at the end": ([7, 1, 5], True),
    "opened and closed": ([7, 1, 5, 2, 5], False),
    "closed, then opened": ([1, 7, 2, 7, 1], True),
    "opened long before": ([1, *[7] * 100], False),
    "never opened": ([7, 7], False),
    "empty": ([], False),
}


@pytest.mark.parametrize(("prompt", "expected"), PROMPTS.values(), ids=PROMPTS)
def test_a_template_may_open_the_reasoning(prompt: list[int], expected: bool) -> None:
    assert ends_open(prompt, MARKS) is expected


@pytest.mark.parametrize("is_streamed", [True, False])
def test_the_answer_is_that_of_the_first_sequence(is_streamed: bool) -> None:
    reader = with_answers(
        EngineReader(
            lambda params: is_streamed, lambda run, output: 0, lambda run, seen: None,
            lambda request_id: [], lambda request_id: None,
        ),
        MARKS,
    )  # fmt: skip
    run = EngineRun("r", "m", None, None, is_streamed, 0, 0)
    run.kept.extend([[8], [9]])
    run.last_output = SimpleNamespace(
        prompt_token_ids=[7, 1], outputs=[SimpleNamespace(token_ids=[5, 6])]
    )
    seen = Observation(request_id="r", model="m", arrival_unix_ns=0, arrival_ns=0, end_ns=0)
    reader.read_engine(run, seen)
    assert seen.answer == pack_tokens([8, 9] if is_streamed else [5, 6])
    assert seen.opens_in_reasoning
