"""Watch what vLLM's parsers make of answers to requests with tools (vllm/parser, vLLM 0.32).

vLLM counts a call that its parser could not read as an answer without one. Each parser that it
composes is replaced by a subclass that compares the calls it found with those that the model began.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from evenkeel.error_guard import ErrorGuard
from evenkeel_runtime.adapter.vllm import find_name, takes
from evenkeel_runtime.request.tool_calls import StreamedCalls, count_failed
from evenkeel_runtime.request.trace import CURRENT_REQUEST

logger = logging.getLogger(__name__)

_MARK = "_evenkeel"
# How legacy parsers name what begins a call, and the terminals of the declarative ones.
_ATTRIBUTE = re.compile(r"(tool_calls?|function_call)_?(start|begin)(_token)?|bot_token", re.I)
_TERMINALS = ("TOOL_START", "TOOL_CALLS", "TOOL_SECTION_START", "TOOL_REQUESTS_START")
_errors = ErrorGuard(logger.error, "not all tool calls that failed to parse are counted: %r")


def watch_parsers() -> bool:
    """Make vLLM's parsers report tool calls that did not parse; return whether this vLLM can."""
    manager = find_name("vllm.parser.parser_manager", "ParserManager")
    parser = find_name("vllm.parser.abstract_parser", "Parser")
    if not (
        takes(getattr(manager, "get_parser", None), "tool_parser_name")
        and takes(getattr(parser, "parse", None), "model_output", "request")
        and takes(getattr(parser, "parse_delta", None), "delta_text", "request", "finished")
    ):
        return False
    own = manager.get_parser
    if hasattr(own, _MARK):
        return True

    @wraps(own)
    def get_parser(*args: Any, **options: Any) -> Any:
        parser_cls = own(*args, **options)
        if getattr(parser_cls, "tool_parser_cls", None) is None:
            return parser_cls
        return watched(parser_cls)

    setattr(get_parser, _MARK, True)
    manager.get_parser = staticmethod(get_parser)
    return True


def watched(parser_cls: Any) -> Any:
    """Return a parser class that reports the failed calls of each answer to its request."""

    class Watched(parser_cls):  # type: ignore[misc]
        def __init__(self, tokenizer: Any, tools: Any = None, *args: Any, **options: Any) -> None:
            super().__init__(tokenizer, tools, *args, **options)
            if tools:
                # On the instance: without tools, nothing is added to each delta.
                self.parse = _watch_parse(self, super().parse)
                self.parse_delta = _watch_stream(self, super().parse_delta)

    Watched.__name__, Watched.__qualname__ = parser_cls.__name__, parser_cls.__qualname__
    return Watched


def _watch_parse(parser: Any, parse: Callable[..., Any]) -> Callable[..., Any]:
    def watched_parse(*args: Any, **options: Any) -> Any:
        parsed = parse(*args, **options)
        try:
            text = args[0] if args else options["model_output"]
            request = args[1] if len(args) > 1 else options["request"]
            report(parser, request, text, [call.arguments or "" for call in parsed[2] or ()])
        except Exception as error:
            _errors.record(error)
        return parsed

    return watched_parse


def _watch_stream(parser: Any, parse_delta: Callable[..., Any]) -> Callable[..., Any]:
    calls = StreamedCalls()

    def watched_delta(*args: Any, **options: Any) -> Any:
        delta = parse_delta(*args, **options)
        try:
            calls.add_text(args[0] if args else options["delta_text"])
            if delta is not None:
                for call in delta.tool_calls or ():
                    calls.add_call(call.index, getattr(call.function, "arguments", "") or "")
            if options.get("finished"):
                request = args[2] if len(args) > 2 else options["request"]
                report(parser, request, calls.text, calls.arguments)
        except Exception as error:
            _errors.record(error)
        return delta

    return watched_delta


def report(parser: Any, request: Any, text: str, arguments: list[str]) -> None:
    """Count the failed calls of one answer on the HTTP request that is being handled.

    Args:
        parser: vLLM's parser of this answer.
        request: The request as vLLM parsed it.
        text: The answer.
        arguments: Those of each call that was parsed.
    """
    current = CURRENT_REQUEST.get()
    choice = getattr(request, "tool_choice", None)
    if current is None or choice == "none":
        return
    end = getattr(getattr(parser, "reasoning_parser", None), "reasoning_end_str", None)
    if end:
        text = text.rpartition(end)[2]
    is_forced = choice not in (None, "auto")
    marks = list(find_marks(parser.tool_parser))
    failed = count_failed(text, marks, arguments, is_forced)
    # Of several answers, the one with most: vLLM also parses some answers twice.
    current.tool_calls_failed = max(failed, current.tool_calls_failed or 0)


def find_marks(tool_parser: Any) -> Iterator[str]:
    """Yield what begins a tool call, or several, in the format of vLLM's tool parser."""
    engine = getattr(tool_parser, "_parser_engine", tool_parser)
    config = getattr(engine, "parser_engine_config", None)
    terminals = getattr(config, "terminals", {})
    yield from (terminals[name] for name in _TERMINALS if isinstance(terminals.get(name), str))
    for name in dir(tool_parser):
        if _ATTRIBUTE.fullmatch(name):
            mark = getattr(tool_parser, name)
            if isinstance(mark, str) and mark.strip():
                yield mark.strip()
