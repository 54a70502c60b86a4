"""Tool calls that vLLM's own parsers could not read, reported to the request."""

from collections.abc import Iterator
from typing import Any

import pytest

from evenkeel_runtime.adapter.answer_parser import find_marks, watch_parsers
from evenkeel_runtime.request.trace import CURRENT_REQUEST, HttpRequest
from evenkeel_runtime.wire.caller import Caller

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>'
BROKEN = '<tool_call>\n{"name": "f", arguments: {a}}\n</tool_call>'


class Tokenizer:
    """A tokenizer of single characters."""

    all_special_ids: tuple[int, ...] = ()

    def get_vocab(self) -> dict[str, int]:
        return {"<think>": 1, "</think>": 2} | {chr(code): code for code in range(32, 127)}

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(letter) for letter in text]

    def decode(self, tokens: list[int], **_: Any) -> str:
        return "".join(map(chr, tokens))


@pytest.fixture
def current() -> Iterator[HttpRequest]:
    request = HttpRequest("chat", Caller())
    token = CURRENT_REQUEST.set(request)
    yield request
    CURRENT_REQUEST.reset(token)


def make_parser(request: Any, reasoning: str | None = None) -> Any:
    from vllm.parser.parser_manager import ParserManager

    assert watch_parsers()
    parser_cls = ParserManager.get_parser(
        tool_parser_name="hermes", reasoning_parser_name=reasoning, enable_auto_tools=True
    )
    return parser_cls(Tokenizer(), request.tools)


def ask(**more: Any) -> Any:
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    return ChatCompletionRequest(
        messages=[{"role": "user", "content": "?"}], **{"tools": [TOOL]} | more
    )


def answer(text: str, request: Any, is_streamed: bool, reasoning: str | None = None) -> list[str]:
    """Let vLLM's parser read an answer, whole or by characters; return its calls' arguments."""
    parser = make_parser(request, reasoning)
    if not is_streamed:
        calls = parser.parse(text, request, enable_auto_tools=True)[2] or []
        return [call.arguments for call in calls]
    found: dict[int, str] = {}
    for place, letter in enumerate(text):
        # As vLLM's chat and responses call it: by name.
        delta = parser.parse_delta(
            delta_text=letter,
            delta_token_ids=[ord(letter)],
            request=request,
            prompt_token_ids=[],
            finished=place == len(text) - 1,
        )
        for call in (delta.tool_calls if delta else None) or ():
            found[call.index] = found.get(call.index, "") + (call.function.arguments or "")
    return list(found.values())


ANSWERS = {
    "no call": ("Hello.", [], 0),
    "a call": (CALL, ['{"a": 1}'], 0),
    "a call that is not JSON": (BROKEN, [], 1),
    "bare JSON": ('{"name": "f", "arguments": {}}', [], 1),
}


@pytest.mark.parametrize("is_streamed", [False, True], ids=["at once", "streamed"])
@pytest.mark.parametrize(("text", "found", "failed"), ANSWERS.values(), ids=ANSWERS)
def test_failed_calls_are_those_that_vllms_parser_did_not_find(
    current: HttpRequest, text: str, found: list[str], failed: int, is_streamed: bool
) -> None:
    # A stream names the function before its arguments turn out to be none.
    assert [each for each in answer(text, ask(), is_streamed) if each] == found
    assert current.tool_calls_failed == failed


@pytest.mark.parametrize("is_streamed", [False, True], ids=["at once", "streamed"])
def test_a_call_that_was_cut_has_failed(current: HttpRequest, is_streamed: bool) -> None:
    answer(CALL[:45], ask(), is_streamed)
    assert current.tool_calls_failed == 1


def test_a_call_that_the_model_only_thought_of_has_not_failed(current: HttpRequest) -> None:
    answer("<think>I could <tool_call></think>No.", ask(), False, "deepseek_r1")
    assert current.tool_calls_failed == 0


@pytest.mark.parametrize(
    "more", [{"tools": None}, {"tool_choice": "none"}], ids=["tools", "choice"]
)
def test_without_tools_nothing_is_counted(current: HttpRequest, more: dict[str, Any]) -> None:
    answer(BROKEN, ask(**more), True)
    assert current.tool_calls_failed is None


def test_outside_a_request_vllms_parser_works_as_ever() -> None:
    assert len(answer(CALL, ask(), True)) == 1


def test_parsers_are_watched_once() -> None:
    from vllm.parser.parser_manager import ParserManager

    assert watch_parsers()
    own = ParserManager.get_parser
    assert watch_parsers()
    assert ParserManager.get_parser is own
    # Without tools there is nothing to watch.
    parser_cls = ParserManager.get_parser(reasoning_parser_name="deepseek_r1")
    assert parser_cls.__mro__[1].__name__ == "DelegatingParser"


def test_marks_of_legacy_and_declarative_parsers() -> None:
    from vllm.tool_parsers import ToolParserManager

    parser = ToolParserManager.get_tool_parser("hermes")(Tokenizer())
    assert list(find_marks(parser)) == ["<tool_call>"]
    engine = type("Engine", (), {"parser_engine_config": None})()
    engine.parser_engine_config = type("Config", (), {"terminals": {"TOOL_START": "[CALL]"}})()
    assert list(find_marks(type("Adapter", (), {"_parser_engine": engine})())) == ["[CALL]"]
