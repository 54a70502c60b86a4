"""Measure the CPU microseconds of each part of the request hook, per streamed 128-token request.

    python bench/hook_cost.py --json build/bench/hook_cost.json

For docs/decisions/0022-exporter-process.md and 0023-msgspec.md: what runs on the server's event
loop, what runs in the exporter process, and what the rejected alternatives would cost.

The first two figures are the cost per request in the server's own process: the hook with all its
middlewares, and vLLM's own tracing including the export of its spans, each compared with the same
without. No model runs, because the noise of a server would hide these costs
(bench/overhead_switch.py).
"""

import argparse
import asyncio
import marshal
import os
import pickle
import statistics
import sys
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from msgspec import structs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags
from vllm.sampling_params import RequestOutputKind, SamplingParams

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from bench.servers import receiver, wait_for
from evenkeel_runtime.adapter.engine_client import ObservedEngine
from evenkeel_runtime.adapter.vllm import make_reader
from evenkeel_runtime.exporter.otlp import build_request
from evenkeel_runtime.exporter.record import FinishedRequest
from evenkeel_runtime.request.arrival import ArrivalMiddleware
from evenkeel_runtime.request.hook import RequestHook
from evenkeel_runtime.request.prompts import PromptMiddleware
from evenkeel_runtime.request.recorder import QueueBound, Recorder
from evenkeel_runtime.serve.own_pages import OwnPagesMiddleware
from evenkeel_runtime.wire.counters import SharedCounts
from evenkeel_runtime.wire.observation import Observation, decode, encode

TOKENS = 128
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
    """Accepts every frame and sends none."""

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


def finish() -> FinishedRequest:
    """Return the request as it leaves the exporter."""
    request = FinishedRequest.begin(structs.replace(SEEN))
    request.complete(2048)
    return request


def through_the_sdk() -> object:
    request = finish()
    context = SpanContext(1, 2, False, TraceFlags(1))
    scope, resource = InstrumentationScope("evenkeel"), Resource(RESOURCE)
    spans = [
        ReadableSpan(
            name="chat support",
            context=context,
            resource=resource,
            attributes=request.seen.to_attributes(),
            kind=SpanKind.SERVER,
            instrumentation_scope=scope,
            start_time=SEEN.arrival_unix_ns,
            end_time=SEEN.arrival_unix_ns + 10**9,
        )
    ]
    spans += [
        ReadableSpan(name=phase.name, context=context, resource=resource, parent=context)
        for phase in request.phases.phases
    ]
    return encode_spans(spans).SerializeToString()


def make_output() -> Any:
    """Return what the engine yields for one token."""
    completion = SimpleNamespace(
        token_ids=[1], finish_reason=None, index=0, spec_decode_metrics=None
    )
    return SimpleNamespace(
        outputs=[completion], prompt_token_ids=[1], num_cached_tokens=0, metrics=None
    )


def on_the_event_loop() -> tuple[float, float]:
    """CPU microseconds that the hook adds to one request's stream, and to its end."""
    output = make_output()
    counts = SharedCounts.create()
    recorder = Recorder(NoExporter(), counts, QueueBound(10**9, 10**12))
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


def in_the_servers_process() -> float:
    """CPU microseconds that all of the request hook adds to a request in the server's process."""
    output = make_output()
    params = SamplingParams(output_kind=RequestOutputKind.DELTA)
    recorder = Recorder(NoExporter(), SharedCounts.create(), QueueBound(10**9, 10**12))

    class Engine:
        async def generate(self, *_: Any, **__: Any) -> AsyncGenerator[Any, None]:
            for _ in range(TOKENS):
                yield output

    engine = Engine()
    hook = RequestHook(recorder, make_reader(lambda: engine, strips_speculation=False), "support")

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        async for _ in scope["app"].state.engine_client.generate({}, params, "r"):
            await send({"type": "http.response.body", "body": b"data", "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"messages": []}'}

    async def send(_: Any) -> None:
        return

    hooked = ArrivalMiddleware(PromptMiddleware(OwnPagesMiddleware(app)))

    def scope_of(client: Any) -> dict[str, Any]:
        state = SimpleNamespace(
            engine_client=client, args=SimpleNamespace(evenkeel_prompts_dir=Path("prompts"))
        )
        return {
            "type": "http",
            "method": "POST",
            "path": "/v1/chat/completions",
            "headers": [(b"content-type", b"application/json"), (b"content-length", b"16")],
            "app": SimpleNamespace(state=state),
        }

    async def cpu_of(handle: Any, scope: dict[str, Any]) -> float:
        started = time.process_time()
        for _ in range(200):
            await handle(scope, receive, send)
        return (time.process_time() - started) / 200 * 1e6

    async def measure() -> float:
        bare, observed = scope_of(engine), scope_of(ObservedEngine(engine, hook))
        await cpu_of(hooked, observed)
        pairs = [(await cpu_of(hooked, observed), await cpu_of(app, bare)) for _ in range(9)]
        return statistics.median(with_hook - without for with_hook, without in pairs)

    return asyncio.run(measure())


def in_vllms_tracing() -> float:
    """CPU microseconds of vLLM's own tracing per request, including the export."""
    os.environ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"] = "http/protobuf"
    from opentelemetry.trace import get_tracer_provider
    from vllm.tracing import init_tracer
    from vllm.v1.engine.output_processor import OutputProcessor

    stats = SimpleNamespace(
        arrival_time=time.time(),
        first_token_latency=0.01,
        queued_ts=1.0,
        scheduled_ts=1.1,
        first_token_ts=1.2,
        last_token_ts=2.0,
        num_generation_tokens=TOKENS,
    )
    state = SimpleNamespace(
        stats=stats,
        prompt_token_ids=[1] * 20,
        prompt_embeds=None,
        external_req_id=SEEN.request_id,
        top_p=1.0,
        max_tokens_param=TOKENS,
        temperature=1.0,
        n=1,
    )
    output, iteration = (
        SimpleNamespace(trace_headers=None),
        SimpleNamespace(iteration_timestamp=stats.arrival_time + 1),
    )
    with receiver() as otlp:
        wait_for(otlp)
        init_tracer("vllm.llm_engine", f"{otlp}/v1/traces")
        provider: Any = get_tracer_provider()

        def trace() -> None:
            # As many as two cores serve in a second, and the sending of them.
            for _ in range(20):
                OutputProcessor.do_tracing(Any, output, state, iteration)
            provider.force_flush()

        trace()
        return cpu_us(trace, 10) / 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="PATH")
    args = parser.parse_args()
    packed = encode(SEEN)
    # marshal packs no objects of ours: the same facts as plain values.
    facts = structs.asdict(SEEN).items()
    plain = {k: v for k, v in facts if v and type(v) in (str, int, float, list)}
    stream_us, record_us = on_the_event_loop()
    figures = {
        "server: all of the request hook": in_the_servers_process(),
        "server: vLLM's own tracing": in_vllms_tracing(),
        "event loop: note every emission": stream_us,
        "event loop: record the request": record_us,
        "exporter: unpack": cpu_us(lambda: decode(packed), 2000),
        "exporter: build and serialize": cpu_us(
            lambda: build_request([finish()], RESOURCE).SerializeToString(), 500
        ),
        "not taken: the SDK's spans": cpu_us(through_the_sdk, 200),
        "pack with msgspec": cpu_us(lambda: encode(SEEN), 5000),
        "not taken: pack with marshal": cpu_us(lambda: marshal.dumps(plain), 5000),
        "not taken: pack with pickle": cpu_us(lambda: pickle.dumps(SEEN, 5), 5000),
    }
    print(f"CPU µs for one streamed request of {TOKENS} tokens:")
    for name, value in figures.items():
        print(f"  {name:34} {value:8.1f}")
    write_report(args.json, {"tokens": TOKENS, "cpu_us": figures})
    return 0


if __name__ == "__main__":
    sys.exit(main())
