"""Measure what redaction costs per span, and the precision and recall of its rules.

Cost: CPU microseconds per span on top of encoding the request, for requests of 512 spans; medians
of interleaved runs. Quality: precision and recall of each rule on the labelled corpus of the tests;
how many secrets are missed in other encodings, and how many ordinary texts are changed.
"""

import argparse
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from phonenumbers import PhoneNumberMatcher
from pydantic import SecretStr

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from evenkeel.privacy.cpu_budget import CpuBudget
from evenkeel.privacy.phone import PhoneCheck
from evenkeel.privacy.rules import compile_bytes
from evenkeel.privacy.text_redactor import RedactionTally, TextRedactor, Tokens
from evenkeel.request_record import RequestRecord
from evenkeel_collector.redaction.field_redactor import Redactor
from evenkeel_collector.redaction.field_rules import load_rules
from tests.fixtures.otlp_payload import key_values
from tests.fixtures.redaction_score import load_corpus, score
from tests.unit.evenkeel.privacy.samples import DISGUISES, ORDINARY, PRIVATE, letters

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "unit" / "collector" / "redaction" / "corpus.jsonl"
NUM_SPANS = 512
HASH_KEY = "a key for measuring only"
CONTENT = "How do I reset my router? The light blinks red since this morning. " * 12
PERSONAL = CONTENT + " Write to ana@example.org or call +49 30 23125 041."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="labelled texts, JSON lines")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    result = {
        "cores": os.cpu_count(),
        "cost": measure_cost(args.runs),
        "alternatives": measure_alternatives(),
        "quality": judge(args.corpus),
        "disguised": judge_disguised(),
    }
    print(f"{'request of 512 spans':44} {'bytes/span':>10} {'extra µs/span':>14}")
    for name, row in result["cost"].items():
        print(f"{name:44} {row['bytes_per_span']:10.0f} {row['extra_us_per_span']:14.2f}")
    print(f"\n{'instead of it':44} {'µs':>10}")
    for name, cost_us in result["alternatives"].items():
        print(f"{name:44} {cost_us:10.1f}")
    print(f"\n{'rule':16} {'found':>6} {'missed':>7} {'false':>6} {'precision':>10} {'recall':>7}")
    for name, row in result["quality"].items():
        print(
            f"{name:16} {row['found']:6} {row['missed']:7} {row['false']:6}"
            f" {row['precision']:10.3f} {row['recall']:7.3f}"
        )
    disguised = result["disguised"]
    print(f"\nsecrets sent in other forms: {disguised['missed']} of {disguised['sent']} missed")
    print(f"ordinary texts: {disguised['changed']} of {disguised['ordinary']} changed")
    write_report(args.json, result)
    return 0


def measure_cost(num_runs: int) -> dict[str, Any]:
    rules = load_rules()
    key = SecretStr(HASH_KEY)
    removing, storing = Redactor(rules, key), Redactor(rules, key, ["*"])
    cases = {
        "no content, nothing to redact": (removing, build()),
        "no content, a secret in one span": (removing, build(num_secrets=1)),
        "no content, a secret in each span": (removing, build(num_secrets=NUM_SPANS)),
        "800 characters of content, removed": (removing, build(content=CONTENT)),
        "800 characters of content, stored": (storing, build(content=CONTENT)),
        "stored, with an e-mail and a phone number": (storing, build(content=PERSONAL)),
    }
    return {name: cost(redactor, body, num_runs) for name, (redactor, body) in cases.items()}


def cost(redactor: Redactor, body: bytes, num_runs: int) -> dict[str, float]:
    extra_s = []
    for _ in range(num_runs):
        plain, redacted = (ExportTraceServiceRequest.FromString(body) for _ in range(2))
        began_s = time.thread_time()
        plain.SerializeToString()
        middle_s = time.thread_time()
        redactor.redact(redacted)
        ended_s = time.thread_time()
        extra_s.append((ended_s - middle_s) - (middle_s - began_s))
    return {
        "bytes_per_span": len(body) / NUM_SPANS,
        "extra_us_per_span": statistics.median(extra_s) / NUM_SPANS * 1e6,
        "spread_us_per_span": (max(extra_s) - min(extra_s)) / NUM_SPANS * 1e6,
    }


def measure_alternatives() -> dict[str, float]:
    """Return the microseconds of what we chose and of what we did not (decisions 0070, 0071)."""
    body = build()
    message = ExportTraceServiceRequest.FromString(body)
    pattern = Redactor(load_rules(), None).prefilter
    linear, backtracking = (
        compile_bytes(pattern),
        re.compile(pattern.replace("(?:(?i)", "(?i:").encode()),
    )

    def walk() -> None:
        for span in message.resource_spans[0].scope_spans[0].spans:
            for pair in span.attributes:
                _ = pair.key, pair.value.WhichOneof("value")

    check, dates = PhoneCheck(["US"]), b"1990-1999 2000-2009"
    return {
        "a span: RE2, all rules": timed(lambda: sum(1 for _ in linear.finditer(body))) / NUM_SPANS,
        "a span: re, all rules": timed(lambda: sum(1 for _ in backtracking.finditer(body)))
        / NUM_SPANS,
        "a span: a walk over its attributes": timed(walk) / NUM_SPANS,
        "digits that are no phone number: our check": timed(
            lambda: list(check(dates, 0, len(dates), CpuBudget()))
        ),
        "digits that are no phone number: its search": timed(
            lambda: list(PhoneNumberMatcher(dates.decode(), "US"))
        ),
    }


def timed(call: Callable[[], object], num_calls: int = 5) -> float:
    """Return the median CPU time of a call, in microseconds."""
    times_s = []
    for _ in range(num_calls):
        began_s = time.thread_time()
        call()
        times_s.append(time.thread_time() - began_s)
    return statistics.median(times_s) * 1e6


def build(num_secrets: int = 0, content: str | None = None) -> bytes:
    """Return an encoded request of typical evenkeel request spans."""
    rng = random.Random(20261121)
    message = ExportTraceServiceRequest()
    spans = message.resource_spans.add().scope_spans.add().spans
    for index in range(NUM_SPANS):
        span = spans.add(
            trace_id=rng.randbytes(16),
            span_id=rng.randbytes(8),
            name="chat support-4m",
            kind=2,
            start_time_unix_nano=1_763_600_000_000_000_000 + index,
            end_time_unix_nano=1_763_600_001_000_000_000 + index,
        )
        span.attributes.extend(key_values(record(rng).to_attributes()))
        if content is not None:
            span.attributes.extend(key_values({"input.value": content}))
        if index < num_secrets:
            span.attributes.extend(key_values({"note": "write to ana@example.org"}))
    encoded: bytes = message.SerializeToString()
    return encoded


def record(rng: random.Random) -> RequestRecord:
    return RequestRecord(
        request_id=f"chatcmpl-{rng.randbytes(16).hex()}",
        model="support-4m",
        tenant="acme",
        session_id=f"session-{rng.randrange(1000)}",
        slo_class="chat",
        input_tokens=rng.randrange(4000),
        output_tokens=rng.randrange(400),
        cached_tokens=rng.randrange(400),
        queue_s=rng.random(),
        prefill_s=rng.random(),
        decode_s=rng.random(),
        ttft_s=rng.random(),
        tpot_s=rng.random(),
        itl_p50_s=rng.random(),
        itl_p99_s=rng.random(),
        stall_s=rng.random(),
        e2e_s=rng.random(),
    )


def judge(corpus: Path) -> dict[str, Any]:
    rules = load_rules()
    names = [rule.name for rule in rules.values]
    redactor = TextRedactor(rules.values, Tokens(HASH_KEY.encode(), names))
    return {
        rule: {
            "found": result.num_found,
            "missed": result.num_missed,
            "false": result.num_false,
            "precision": result.precision_ratio,
            "recall": result.recall_ratio,
        }
        for rule, result in score(redactor, load_corpus(corpus)).items()
    }


def judge_disguised() -> dict[str, int]:
    """Return how many secrets are missed in every form, and how many ordinary texts changed."""
    rules = load_rules()
    redactor = TextRedactor(rules.values, Tokens(None, [rule.name for rule in rules.values]))

    def redact(text: str) -> str:
        redacted = redactor.redact(text.encode(), RedactionTally(), may_drop=False)
        return (redacted or b"").decode()

    sent = [
        (private, disguise(text))
        for text, private in PRIVATE.values()
        for disguise in DISGUISES.values()
    ]
    return {
        "sent": len(sent),
        "missed": sum(letters(private) in letters(redact(text)) for private, text in sent),
        "ordinary": len(ORDINARY),
        "changed": sum(redact(text) != text for text in ORDINARY),
    }


if __name__ == "__main__":
    sys.exit(main())
