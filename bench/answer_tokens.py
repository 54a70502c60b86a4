"""Measure what it costs to see loops, reasoning, empty answers and failed tool calls, per token.

    python bench/answer_tokens.py --json build/bench/answer_tokens.json

In the server's process: keeping the tokens of a streamed answer, beside the rest of the request
hook; and watching a parser that does nothing itself, for requests with tools and without. In the
exporter: the share of repeated 4-grams and the split of reasoning, by the length of the answer.
Then one reading of the requests in flight, and the share itself: of random tokens, of tokens as
frequent as words (Zipf's law), of loops, and of an answer that falls into a loop half-way.
"""

import argparse
import asyncio
import statistics
import sys
import time
from array import array
from collections.abc import AsyncGenerator, Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.hook_cost import TOKENS, NoExporter, cpu_us, make_output
from bench.report import write_report
from evenkeel_runtime.adapter.answer_marks import with_answers
from evenkeel_runtime.adapter.answer_parser import watched
from evenkeel_runtime.adapter.vllm import make_reader
from evenkeel_runtime.exporter.answer_tokens import repeated_share, split_answer
from evenkeel_runtime.request.hook import RequestHook
from evenkeel_runtime.request.in_flight import InFlightWatch
from evenkeel_runtime.request.recorder import QueueBound, Recorder
from evenkeel_runtime.request.trace import CURRENT_REQUEST, MAX_KEPT, EngineRun, HttpRequest
from evenkeel_runtime.wire.caller import Caller
from evenkeel_runtime.wire.counters import SharedCounts
from evenkeel_runtime.wire.frames import AnswerMarks
from evenkeel_runtime.wire.in_flight import SharedInFlight
from evenkeel_runtime.wire.observation import MAX_ANSWER_TOKENS

VOCABULARY = 150_000
MARKS = AnswerMarks(True, (VOCABULARY,), (VOCABULARY + 1,), frozenset({VOCABULARY + 2}))
LENGTHS = (128, 1024, 8192, MAX_ANSWER_TOKENS)


def in_the_stream() -> dict[str, float]:
    """CPU microseconds per token of the hook on the event loop, and of keeping the answer."""
    output = make_output()
    run = EngineRun("r", "m", None, None, True, 0, 0)

    def keep() -> None:
        for _ in range(MAX_KEPT):
            run.kept.append(output.outputs[0].token_ids)
        run.pack_answer()
        run.answer = array("I")

    recorder = Recorder(NoExporter(), SharedCounts.create(), QueueBound(10**9, 10**12))
    found = with_answers(make_reader(lambda: None, strips_speculation=False), MARKS)
    hook = RequestHook(recorder, replace(found, is_streamed=lambda params: True), "support")

    async def generate() -> AsyncGenerator[Any, None]:
        for _ in range(TOKENS):
            yield output

    async def once(is_hooked: bool) -> None:
        outputs = generate()
        if is_hooked:
            run = hook.start_run("r", None)
            outputs = hook.observe(run, outputs)
            # Only the stream: recording ends a request once.
            run.is_recorded = True
        async for _ in outputs:
            pass

    async def measure() -> dict[str, float]:
        async def cpu_of(is_hooked: bool) -> float:
            started = time.process_time()
            for _ in range(500):
                await once(is_hooked)
            return (time.process_time() - started) / 500 / TOKENS * 1e6

        await cpu_of(True)
        rounds = [(await cpu_of(True), await cpu_of(False)) for _ in range(15)]
        return {
            "server: the request hook in a stream": statistics.median(
                hooked - plain for hooked, plain in rounds
            ),
            "server: of that, keeping the answer's tokens": cpu_us(keep, 2000) / MAX_KEPT,
        }

    return asyncio.run(measure())


def in_a_parser() -> dict[str, float]:
    """CPU microseconds per delta that watching adds to vLLM's parser."""

    class Parser:
        reasoning_parser = None
        tool_parser = SimpleNamespace(tool_call_start_token="<tool_call>")

        def __init__(self, tokenizer: Any, tools: Any = None) -> None:
            pass

        def parse(self) -> None:
            pass

        def parse_delta(
            self, delta_text: str, delta_token_ids: Any, request: Any, *, finished: bool
        ) -> Any:
            return None

    CURRENT_REQUEST.set(HttpRequest("chat", Caller()))
    request = SimpleNamespace(tool_choice="auto", tools=[1])

    def stream(parser_cls: Any, tools: Any) -> Callable[[], None]:
        def parse() -> None:
            parser = parser_cls(None, tools)
            for place in range(TOKENS):
                parser.parse_delta(
                    delta_text=" word",
                    delta_token_ids=[1],
                    request=request,
                    finished=place == TOKENS - 1,
                )

        return parse

    plain = cpu_us(stream(Parser, [1]), 500)
    watching = watched(Parser)
    return {
        "server: watching a parser, request with tools": (
            cpu_us(stream(watching, [1]), 500) - plain
        )
        / TOKENS,
        "server: watching a parser, without tools": (cpu_us(stream(watching, None), 500) - plain)
        / TOKENS,
    }


def of_a_reading() -> float:
    """CPU microseconds per running request of one reading of the requests in flight."""
    now_ns = time.monotonic_ns()
    runs = [
        EngineRun(
            str(number), "m", None, None, True, 0, 0, now_ns, emission_ns=[now_ns - 10**9, now_ns]
        )
        for number in range(1000)
    ]
    with closing(SharedInFlight.create()) as memory:
        watch = InFlightWatch(memory, lambda: runs, lambda _: [], 10.0, lambda error: None)
        return cpu_us(watch.read, 50) / len(runs)


def in_the_exporter() -> dict[str, float]:
    """CPU microseconds per token of the share and the split, by the answer's length."""
    random = np.random.default_rng(1)
    found = {}
    for length in LENGTHS:
        tokens = random.integers(0, VOCABULARY, length, dtype=np.uint32)
        tokens[[0, length // 2]] = VOCABULARY, VOCABULARY + 1
        answer = tokens.tobytes()
        calls = max(2, 200_000 // length)
        found[f"exporter: repeated share, {length} tokens"] = (
            cpu_us(lambda a=answer: repeated_share(a), calls) / length  # type: ignore[misc]
        )
        found[f"exporter: split of reasoning, {length} tokens"] = (
            cpu_us(lambda a=answer: split_answer(a, MARKS, False), calls) / length  # type: ignore[misc]
        )
    return found


def shares() -> dict[str, list[float]]:
    """Smallest and largest share of repeated 4-grams of each kind of text, of 512 tokens."""
    random = np.random.default_rng(2)

    def words() -> Any:
        return (random.zipf(1.2, 512) % VOCABULARY).astype(np.uint32)

    def loop(tokens: Any, period: int) -> Any:
        return np.resize(tokens[:period], 512)

    kinds: dict[str, list[Any]] = {
        "random tokens": [random.integers(0, VOCABULARY, 512, dtype=np.uint32) for _ in range(200)],
        "independent tokens as frequent as words": [words() for _ in range(200)],
        "loops of period 1 to 32": [loop(words(), period) for period in range(1, 33)],
        "a loop from the middle on": [
            np.concatenate([tokens[:256], loop(tokens, period)[:256]])
            for period in range(1, 33)
            for tokens in [random.integers(0, VOCABULARY, 512, dtype=np.uint32)]
        ],
    }
    found = {}
    for kind, answers in kinds.items():
        each = [repeated_share(answer.tobytes()) or 0.0 for answer in answers]
        found[kind] = [min(each), max(each)]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="PATH")
    args = parser.parse_args()
    figures = in_the_stream() | in_a_parser() | in_the_exporter()
    found = shares()
    print("CPU µs per token:")
    for name, value in figures.items():
        print(f"  {name:50} {value:8.3f}")
    reading_us = of_a_reading()
    print(f"one reading of 1000 requests in flight, µs per request: {reading_us:.2f}")
    print("repeated share, smallest and largest:")
    for name, (low, high) in found.items():
        print(f"  {name:50} {low:6.3f} {high:6.3f}")
    document = {
        "cpu_us_per_token": figures,
        "reading_cpu_us_per_request": reading_us,
        "repeated_share": found,
    }
    write_report(args.json, document)
    return 0


if __name__ == "__main__":
    sys.exit(main())
