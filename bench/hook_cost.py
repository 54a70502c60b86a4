"""CPU microseconds of each piece of the request hook, for one streamed request of 64 tokens.

    python bench/hook_cost.py --json build/bench/hook_cost.json

Behind docs/decisions/0022-exporter-process.md and 0023-msgspec.md: what runs on the server's event
loop, what runs in the exporter process, and what the ways not taken would cost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import marshal
import pickle
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import astuple, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

from evenkeel.spans import Status
from runtime.exporter_counters import SharedCounts
from runtime.observation import Observation, decode, encode
from runtime.otlp import build_request
from runtime.record import find_phases, to_record
from runtime.recorder import QueueBound, Recorder
from runtime.request_hook import RequestHook
from runtime.vllm_adapter import make_reader

TOKENS = 64
START_NS = 10**15
SEEN = Observation(
    request_id="chatcmpl-0123456789abcdef",
    model="support",
    operation="chat",
    arrival_unix_ns=1_800_000_000_000_000_000,
    arrival_ns=START_NS,
    end_ns=START_NS + 10**9,
    reached_engine=True,
    finish_reason="stop",
    max_tokens=TOKENS,
    temperature=1.0,
    input_tokens=20,
    output_tokens=TOKENS,
    cached_tokens=0,
    scheduled_ns=START_NS + 10**6,
    emission_ns=[START_NS + (3 + i) * 10**6 for i in range(TOKENS)],
    emission_tokens=[1] * TOKENS,
)
RESOURCE = {"service.name": "evenkeel-runtime"}


class NoExporter:
    """Takes every frame and sends none."""

    num_restarts = 0

    def write(self, frames: list[bytes]) -> int:
        """Take all."""
        return len(frames)

    def restart(self) -> bool:
        """Start nothing."""
        return False

    def close(self, timeout_s: float) -> None:
        """End nothing."""


def cpu_us(function: Callable[[], object], times: int) -> float:
    """Median over 5 rounds of the CPU microseconds of one call."""
    function()
    rounds = []
    for _ in range(5):
        started = time.process_time()
        for _ in range(times):
            function()
        rounds.append((time.process_time() - started) / times * 1e6)
    return statistics.median(rounds)


def through_the_sdk() -> object:
    context = SpanContext(1, 2, False, TraceFlags(1))
    scope, resource = InstrumentationScope("evenkeel"), Resource(RESOURCE)
    spans = [
        ReadableSpan(
            name="chat support",
            context=context,
            resource=resource,
            attributes=to_record(SEEN, 2048).to_attributes(),
            kind=SpanKind.SERVER,
            instrumentation_scope=scope,
            start_time=SEEN.arrival_unix_ns,
            end_time=SEEN.arrival_unix_ns + 10**9,
        )
    ]
    spans += [
        ReadableSpan(name=phase.name, context=context, resource=resource, parent=context)
        for phase in find_phases(SEEN)
    ]
    return encode_spans(spans).SerializeToString()


def on_the_event_loop() -> tuple[float, float]:
    """CPU microseconds that the hook adds to one request's stream, and to its end."""
    completion = SimpleNamespace(
        token_ids=[1], finish_reason=None, index=0, spec_decode_metrics=None
    )
    output = SimpleNamespace(
        outputs=[completion], prompt_token_ids=[1], num_cached_tokens=0, metrics=None
    )
    counts = SharedCounts.create()
    recorder = Recorder(NoExporter(), counts, QueueBound(10**9, 10**12), raises=True)
    found = make_reader(lambda: None, strips_speculation=False)
    reader = replace(found, is_streamed=lambda params: True)
    hook = RequestHook(recorder, reader, "support")

    async def generate() -> AsyncGenerator[Any, None]:
        for _ in range(TOKENS):
            yield output

    async def plain() -> None:
        async for _ in generate():
            pass

    async def hooked() -> None:
        async for _ in hook.observe(hook.start_run("r", None), generate()):
            pass

    async def measure() -> tuple[float, float]:
        async def rounds(once: Callable[[], Any]) -> float:
            results = []
            for _ in range(5):
                started = time.process_time()
                for _ in range(500):
                    await once()
                results.append((time.process_time() - started) / 500 * 1e6)
            return statistics.median(results)

        stream = await rounds(hooked) - await rounds(plain)
        return stream, cpu_us(lambda: recorder.record(SEEN), 2000)

    return asyncio.run(measure())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="PATH")
    args = parser.parse_args()
    packed = encode(SEEN)
    # marshal packs no objects of ours: the same facts as a plain tuple.
    plain = tuple(v for v in astuple(SEEN) if not isinstance(v, tuple | Status))
    stream_us, record_us = on_the_event_loop()
    figures = {
        "event loop: note every emission": stream_us,
        "event loop: record the request": record_us,
        "exporter: unpack": cpu_us(lambda: decode(packed), 2000),
        "exporter: build and serialize": cpu_us(
            lambda: build_request([SEEN], RESOURCE, 2048).SerializeToString(), 500
        ),
        "not taken: the SDK's spans": cpu_us(through_the_sdk, 200),
        "pack with msgspec": cpu_us(lambda: encode(SEEN), 5000),
        "not taken: pack with marshal": cpu_us(
            lambda: marshal.dumps(plain[:6] + plain[-4:-2]), 5000
        ),
        "not taken: pack with pickle": cpu_us(lambda: pickle.dumps(SEEN, 5), 5000),
    }
    print(f"CPU µs for one streamed request of {TOKENS} tokens:")
    for name, value in figures.items():
        print(f"  {name:34} {value:8.1f}")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"tokens": TOKENS, "cpu_us": figures}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
