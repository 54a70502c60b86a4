"""Measure what tail sampling costs and saves per request span, and that it causes no bias.

Cost: CPU microseconds per span, for requests of 512 spans with a series of 64 emissions each.
Bias: the mean of the longest stall over all requests, estimated from the kept ones, against the
truth, over repeated draws in which slow requests have longer stalls.
"""

import argparse
import math
import os
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.report import write_report
from evenkeel import spans
from evenkeel.request_record import RequestRecord
from evenkeel_collector.intake.sampling import LatencyObjective, SampledRequest, Sampler
from tests.fixtures.otlp_payload import key_values

NUM_SPANS = 512
NUM_EMISSIONS = 64
OBJECTIVES = [LatencyObjective("ttft_s", 0.5), LatencyObjective("itl_p99_s", 0.1)]
SLOW_RATIO = 0.05
SEED = 20261121


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    body = build()
    rows = [
        {"probability": p} | measure(body, p, args.runs) | estimate(p, args.draws)
        for p in (1.0, 0.1, 0.01)
    ]
    heads = (
        "probability",
        "us_per_span",
        "bytes_per_span",
        "kept_ratio",
        "bias_ratio",
        "naive_bias",
    )
    print(" ".join(f"{head:>15}" for head in heads))
    for row in rows:
        print(" ".join(f"{row[head]:15.4f}" for head in heads))
    write_report(args.json, {"cores": os.cpu_count(), "rows": rows})
    return 0


def measure(body: bytes, probability: float, num_runs: int) -> dict[str, float]:
    sampler = Sampler(probability, OBJECTIVES)
    cpu_s, size = [], 0
    for _ in range(num_runs):
        message = ExportTraceServiceRequest.FromString(body)
        began_s = time.thread_time()
        sampler.apply(message)
        cpu_s.append(time.thread_time() - began_s)
        size = message.ByteSize()
    return {
        "us_per_span": statistics.median(cpu_s) / NUM_SPANS * 1e6,
        "bytes_per_span": size / NUM_SPANS,
    }


def estimate(probability: float, num_draws: int) -> dict[str, float]:
    """Return the relative error of the mean stall: weighted, and naively over what is kept."""
    rng = random.Random(SEED)
    sampler = Sampler(probability, OBJECTIVES)
    weighted, naive, num_kept, num_all = [], [], 0, 0
    truths = []
    for _ in range(num_draws):
        total, kept, stalls = 0.0, [], []
        for _ in range(1000):
            is_slow = rng.random() < SLOW_RATIO
            stall_s = rng.expovariate(1.0) * (2.0 if is_slow else 0.1)
            attributes: dict[str, Any] = {
                spans.STATUS: "ok",
                "evenkeel.ttft_s": 1.0 if is_slow else 0.1,
            }
            decision = sampler.decide(SampledRequest(rng.randbytes(16), "", attributes))
            stalls.append(stall_s)
            if decision.is_kept:
                total += decision.sample_weight / decision.detail_probability * stall_s
                kept.append(stall_s)
        num_kept += len(kept)
        num_all += len(stalls)
        truths.append(statistics.fmean(stalls))
        weighted.append(total / len(stalls))
        naive.append(statistics.fmean(kept))
    truth = statistics.fmean(truths)
    spread = statistics.stdev([w - t for w, t in zip(weighted, truths, strict=True)])
    return {
        "kept_ratio": num_kept / num_all,
        "bias_ratio": statistics.fmean(weighted) / truth - 1,
        "bias_standard_error": spread / math.sqrt(num_draws) / truth,
        "naive_bias": statistics.fmean(naive) / truth - 1,
    }


def build() -> bytes:
    rng = random.Random(SEED)
    message = ExportTraceServiceRequest()
    scope_spans = message.resource_spans.add().scope_spans.add()
    for _ in range(NUM_SPANS):
        record = RequestRecord(
            request_id=f"chatcmpl-{rng.randbytes(16).hex()}",
            model="support-4m",
            tenant="acme",
            slo_class="chat",
            input_tokens=rng.randrange(4000),
            output_tokens=NUM_EMISSIONS,
            queue_s=rng.random(),
            ttft_s=1.0 if rng.random() < SLOW_RATIO else 0.1,
            itl_p99_s=0.01,
            stall_s=rng.random(),
            e2e_s=rng.random(),
            emission_time_s=[rng.random() for _ in range(NUM_EMISSIONS)],
            emission_tokens=[1] * NUM_EMISSIONS,
        )
        span = scope_spans.spans.add(trace_id=rng.randbytes(16), name="chat support-4m")
        span.attributes.extend(key_values(record.to_attributes()))
    encoded: bytes = message.SerializeToString()
    return encoded


if __name__ == "__main__":
    sys.exit(main())
