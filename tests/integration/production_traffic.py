"""Requests with prompts and answers in a real collector, as `evenkeel serve` would send them."""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from evenkeel.spans import RequestRecord
from tests.integration.collector_process import CollectorProcess, running_collector, wait_for
from tests.integration.otlp_payload import trace_request

PROTOBUF = {"content-type": "application/x-protobuf"}
AGO_S = 300


@contextmanager
def storing_content(folder: Path) -> Iterator[CollectorProcess]:
    """Run a collector that keeps prompts and answers of every tenant."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "evenkeel.toml").write_text('[redaction]\ncontent_tenants = ["*"]\n')
    with running_collector(folder) as collector:
        yield collector


def messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def send(
    collector: CollectorProcess,
    turns: Sequence[tuple[str, str | None]],
    tenant: str = "acme",
    prompt_version: str = "1",
) -> list[str]:
    """Store a request for each question and answer, some minutes ago; return their traces.

    An answer of None is a request whose content was not recorded.
    """
    before = collector.rows("SELECT count() FROM requests")[0][0]
    start_ns = time.time_ns() - AGO_S * 1_000_000_000
    traces = []
    for number, (question, answer) in enumerate(turns):
        record = RequestRecord(
            request_id=f"r{number}",
            model="support",
            tenant=tenant,
            prompt_name="support",
            prompt_version=prompt_version,
            e2e_s=0.01,
            ttft_s=0.005,
            output_tokens=3,
            input_messages=None if answer is None else messages("user", question),
            output_messages=None if answer is None else messages("assistant", answer),
        )
        begin_ns = start_ns + number * 1_000_000
        body = trace_request(
            1, record.to_attributes(), "chat support", "evenkeel-runtime", begin_ns
        )
        traces.append(body.resource_spans[0].scope_spans[0].spans[0].trace_id.hex())
        answered = httpx.post(
            f"{collector.http_url}/v1/traces", content=body.SerializeToString(), headers=PROTOBUF
        )
        assert answered.status_code == 200, answered.text
    wanted = before + len(turns)
    wait_for(lambda: collector.rows("SELECT count() FROM requests") == [(wanted,)])
    return traces
