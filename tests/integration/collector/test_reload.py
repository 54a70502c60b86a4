"""What a running collector takes over from its files, and what it refuses to."""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from tests.fixtures.collector_process import FRESH, CollectorProcess, running_collector, wait_for
from tests.fixtures.otlp_payload import key_values, trace_request

SLO = """\
apiVersion: openslo/v1
kind: SLO
metadata: {{name: chat}}
spec:
  service: s
  indicator: {{metric: ttft, select: {{model: m}}}}
  objectives: [{{target: 0.9, op: lte, value: {limit}}}]
  timeWindow: [{{duration: 30d, isRolling: true}}]
"""
FILE = "apiVersion: evenkeel/v1\nkind: Alerting\nspec: {interval: 200ms, receivers: []}\n---\n"
PROTOBUF = {"content-type": "application/x-protobuf"}
COUNTS = "SELECT slo, sum(good), sum(bad) FROM evenkeel.slo_counts_1m GROUP BY slo"


def tokens(*names: str) -> str:
    return "".join(
        f'[[token]]\nname = "{name}"\nsha256 = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
        'scopes = ["admin"]\n'
        for name in names
    )


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    folder = tmp_path_factory.mktemp("collector")
    (folder / "access.toml").write_text(tokens("first"))
    (folder / "slos.yaml").write_text(FILE + SLO.format(limit=0.5))
    flags = ["--access", str(folder / "access.toml"), "--slos", str(folder / "slos.yaml")]
    with running_collector(folder, flags) as running:
        yield running


def replace(path: Path, text: str) -> None:
    """Write a file as a careful editor does: a reader sees the old one or the new one."""
    draft = path.with_name(f"{path.name}.draft")
    draft.write_text(text)
    draft.rename(path)


def ask(collector: CollectorProcess, sql: str | bytes, token: str = "first") -> httpx.Response:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.post(collector.query_url, params=FRESH, content=sql, headers=headers)


def send(collector: CollectorProcess, ttft_s: float, token: str = "first") -> None:
    body = trace_request(
        1,
        {
            "evenkeel.status": "ok",
            "gen_ai.request.model": "m",
            "evenkeel.ttft_s": ttft_s,
            "http.response.status_code": 200,
        },
    ).SerializeToString()
    headers = {**PROTOBUF, "authorization": f"Bearer {token}"}
    answer = httpx.post(f"{collector.http_url}/v1/traces", content=body, headers=headers)
    assert answer.status_code == 200


def metric(collector: CollectorProcess, name: str, token: str) -> float:
    headers = {"authorization": f"Bearer {token}"}
    page = httpx.get(f"{collector.http_url}/metrics", headers=headers).text
    (value,) = re.findall(rf"^{name} (\S+)$", page, re.MULTILINE)
    return float(value)


def test_changed_objectives_are_counted_without_a_restart(collector: CollectorProcess) -> None:
    for ttft_s in (0.1, 0.3, 0.7):
        send(collector, ttft_s)
    wait_for(lambda: ask(collector, COUNTS).text == "chat\t2\t1\n")
    answered = ask(collector, "SELECT DISTINCT http_status FROM evenkeel.requests")
    assert answered.text == "200\n"
    replace(collector.data_dir / "slos.yaml", FILE + SLO.format(limit=0.2))
    wait_for(lambda: ask(collector, COUNTS).text == "chat\t1\t2\n")
    send(collector, 0.15)
    wait_for(lambda: ask(collector, COUNTS).text == "chat\t2\t2\n")


def test_metrics_lose_their_secrets_before_the_log(collector: CollectorProcess) -> None:
    message = ExportMetricsServiceRequest()
    resource_metrics = message.resource_metrics.add()
    resource_metrics.resource.attributes.extend(key_values({"owner": "ana@example.org"}))
    gauge = resource_metrics.scope_metrics.add().metrics.add(name="m").gauge
    gauge.data_points.add(
        time_unix_nano=1, as_double=1, attributes=key_values({"user": "bob@example.org"})
    )
    answer = httpx.post(
        f"{collector.http_url}/v1/metrics", content=message.SerializeToString(),
        headers={**PROTOBUF, "authorization": "Bearer first"},
    )  # fmt: skip
    assert answer.status_code == 200
    sql = "SELECT resource_attributes['owner'], attributes['user'] FROM evenkeel.engine_state"
    wait_for(lambda: ask(collector, sql).text == "[email]\t[email]\n")


@pytest.mark.parametrize(
    "request_",
    [
        {"content": b"SELECT '\xff'"},
        {"content": b"SELECT {x:String}", "params": b"param_x=a", "database": b"\xff"},
        {"files": {"query": (None, b"SELECT '\xff'")}},
    ],
    ids=["body", "database", "form"],
)
def test_what_is_no_text_is_the_clients_mistake(
    collector: CollectorProcess, request_: dict[str, object]
) -> None:
    headers = {b"authorization": b"Bearer first"}
    if "database" in request_:
        headers[b"x-clickhouse-database"] = bytes(request_.pop("database"))  # type: ignore[call-overload]
    answer = httpx.post(collector.query_url, headers=headers, **request_)  # type: ignore[arg-type]
    assert 400 <= answer.status_code < 500, answer.text
    assert "Traceback" not in collector.stderr()


def test_tokens_follow_their_file_and_a_wrong_one_never_replaces_it(
    collector: CollectorProcess,
) -> None:
    path: Path = collector.data_dir / "access.toml"
    rejected = "evenkeel_collector_access_files_rejected_total"
    replace(path, tokens("first", "second"))
    wait_for(lambda: ask(collector, "SELECT 1", "second").status_code == 200)
    replace(path, tokens("second"))
    wait_for(lambda: ask(collector, "SELECT 1", "first").status_code == 401)
    for number, wrong in enumerate(("[[token]\n", "", "[[token]]\nname = 'x'\n"), start=1):
        replace(path, wrong)
        wait_for(lambda n=number: metric(collector, rejected, "second") == n)  # type: ignore[misc]
        assert ask(collector, "SELECT 1", "second").status_code == 200
        assert ask(collector, "SELECT 1", "nobody").status_code == 401
    assert collector.stderr().count("file rejected") == 3
    send(collector, 0.1, "second")
