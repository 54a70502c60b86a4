"""Tokens, limits and TLS on every port of a real collector; secrets never reach its disk."""

import hashlib
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import clickhouse_connect
import grpc
import httpx
import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext

from evenkeel.errors import CannotMeasureError, StoreLoginError
from evenkeel.store import Store
from evenkeel_demo.simulate.requests import FleetPlan
from evenkeel_demo.simulate.send import send
from evenkeel_evals.report.spans import send_spans
from tests.fixtures.certificate import make_certificate
from tests.fixtures.collector_process import (
    FRESH,
    CollectorProcess,
    collect_command,
    collector_environment,
    running_collector,
    wait_for,
)
from tests.fixtures.log_payload import agent_event, logs_request
from tests.fixtures.otlp_payload import trace_request
from tests.queries import query

GRPC_METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF = {"content-type": "application/x-protobuf"}
BODY = trace_request(1, {"evenkeel.status": "ok", "evenkeel.tenant": "forged"}).SerializeToString()
DETAILS_KEY = "grpc-status-details-bin"


def token_entry(name: str, scope: str, tenant: str | None = None) -> str:
    digest = hashlib.sha256(name.encode()).hexdigest()
    line = f'[[token]]\nname = "{name}"\nsha256 = "{digest}"\nscopes = ["{scope}"]\n'
    return line + (f'tenant = "{tenant}"\n' if tenant else "")


@dataclass(frozen=True)
class Guarded:
    collector: CollectorProcess
    certificate: Path

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.certificate)

    def post(
        self, secret: str | None, body: bytes = BODY, path: str = "/v1/traces"
    ) -> httpx.Response:
        headers = {**PROTOBUF, **({"authorization": f"Bearer {secret}"} if secret else {})}
        return httpx.post(
            f"{self.collector.http_url}{path}",
            content=body,
            headers=headers,
            verify=self.context,
        )

    def ask(self, sql: str) -> str:
        answer = httpx.post(
            self.collector.query_url,
            params=FRESH,
            content=sql,
            headers={"authorization": "Bearer reader-token"},
            verify=self.context,
        )
        return answer.raise_for_status().text.strip()

    def num_spans(self, service: str) -> int:
        return int(self.ask(f"SELECT count() FROM evenkeel.spans WHERE ServiceName = '{service}'"))

    def channel(self) -> grpc.Channel:
        credentials = grpc.ssl_channel_credentials(self.certificate.read_bytes())
        return grpc.secure_channel(self.collector.grpc_url.removeprefix("https://"), credentials)

    def call(self, secret: str) -> None:
        with self.channel() as channel:
            channel.unary_unary(GRPC_METHOD)(
                BODY, timeout=120, metadata=[("authorization", f"Bearer {secret}")]
            )


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    folder = tmp_path_factory.mktemp("collector")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    make_certificate(certificate, key)
    access = folder / "access.toml"
    access.write_text(
        token_entry("acme-token", "ingest", "acme")
        + token_entry("slow-token", "ingest", "slow")
        + token_entry("fleet-token", "ingest")
        + token_entry("reader-token", "query")
        + "[limits.slow]\nrequests_per_s = 0.001\nrequest_bytes = 1000\n"
    )
    flags = [
        "--access", str(access), "--tls-certificate", str(certificate), "--tls-key", str(key),
    ]  # fmt: skip
    with running_collector(folder, flags) as collector:
        yield Guarded(collector, certificate)


def test_the_same_body_of_two_tenants_is_stored_for_each(guarded: Guarded) -> None:
    body = trace_request(service="twins of two tenants").SerializeToString()
    for secret in ("acme-token", "fleet-token", "acme-token"):
        assert guarded.post(secret, body).status_code == 200
    wait_for(lambda: guarded.num_spans("twins of two tenants") == 2)


def test_senders_need_a_token_that_may_send(guarded: Guarded) -> None:
    answer = guarded.post(None)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert Status.FromString(answer.content).message
    assert guarded.post("wrong").status_code == 401
    assert guarded.post("reader-token").status_code == 403
    assert guarded.post("fleet-token").status_code == 200
    for secret, code in (("wrong", "UNAUTHENTICATED"), ("reader-token", "PERMISSION_DENIED")):
        with pytest.raises(grpc.RpcError) as raised:
            guarded.call(secret)
        assert raised.value.code().name == code
    guarded.call("fleet-token")


def test_our_own_senders_pass_the_token_of_the_standard_variable(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", str(guarded.certificate))
    url = guarded.collector.http_url
    plan = FleetPlan(num_requests=3, start_ns=time.time_ns() - 10**9, duration_s=1, seed=1)
    context = SpanContext(trace_id=1, span_id=2, is_remote=False)
    resource = Resource({"service.name": "guarded evaluation"})
    result = ReadableSpan("evenkeel.evaluation", context, resource=resource, start_time=1)
    refusal = r"HTTP 401 \(token required.*; send a token that may ingest"
    with pytest.raises(CannotMeasureError, match=refusal):
        send(plan, url, is_live=False, shows_progress=False)
    assert "HTTP 401" in str(send_spans([result], url))
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20fleet-token")
    assert send(plan, url, is_live=False, shows_progress=False).num_requests == 3
    assert send_spans([result], url) is None
    wait_for(lambda: guarded.num_spans("guarded evaluation") == 1)


def test_a_grpc_sender_without_a_token_is_refused_before_its_message(guarded: Guarded) -> None:
    refused = threading.Event()

    def messages() -> Iterator[bytes]:
        refused.wait(60)
        yield BODY

    with guarded.channel() as channel, pytest.raises(grpc.RpcError) as raised:
        channel.stream_unary(GRPC_METHOD)(messages(), timeout=30)
    refused.set()
    assert raised.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_log_records_have_the_tenant_of_their_senders_token(guarded: Guarded) -> None:
    claims = {"evenkeel.tenant": "forged"}
    body = logs_request(1, claims, service="guarded", resource=claims).SerializeToString()
    for secret, status in ((None, 401), ("reader-token", 403), ("acme-token", 200)):
        assert guarded.post(secret, body, "/v1/logs").status_code == status
    said = (
        "SELECT LogAttributes['evenkeel.tenant'], ResourceAttributes['evenkeel.tenant']"
        " FROM evenkeel.logs WHERE ServiceName = 'guarded'"
    )
    wait_for(lambda: guarded.ask(said) == "acme\tacme")


def test_plain_text_is_not_answered_where_tls_is_on(guarded: Guarded) -> None:
    url = guarded.collector.http_url.replace("https://", "http://")
    with pytest.raises(httpx.HTTPError):
        httpx.get(f"{url}/healthz")
    grpc_url = guarded.collector.grpc_url.replace("https://", "http://")
    with pytest.raises(httpx.HTTPError):
        httpx.get(grpc_url)
    # What strangers send is not a line in the log each.
    assert "andshake" not in guarded.collector.stderr()


def test_queries_need_a_token_and_stock_clients_send_it_as_a_password(guarded: Guarded) -> None:
    def client(password: str) -> clickhouse_connect.driver.client.Client:
        return clickhouse_connect.get_client(
            host="127.0.0.1", port=urlsplit(guarded.collector.query_url).port or 0, secure=True,
            database="evenkeel", username="any", password=password,
            ca_cert=str(guarded.certificate),
        )  # fmt: skip

    reader = client("reader-token")
    assert reader.query("SELECT 1").result_rows == [(1,)]
    for wrong in ("", "wrong", "acme-token"):
        with pytest.raises(DatabaseError):
            client(wrong)

    # What a tenant's own token sends is that tenant's, whatever the spans say.
    assert guarded.post("acme-token").status_code == 200
    assert guarded.post("fleet-token").status_code == 200
    sql = "SELECT tenant, count() FROM requests GROUP BY tenant ORDER BY tenant"
    wait_for(lambda: ("acme", 1) in reader.query(sql).result_rows)
    # The fleet's token serves many.
    wait_for(lambda: "forged" in [tenant for tenant, _ in reader.query(sql).result_rows])
    reader.close()


def test_a_renewed_certificate_is_used_on_every_port(guarded: Guarded) -> None:
    make_certificate(guarded.certificate, guarded.certificate.with_name("key.pem"))

    def is_used() -> bool:
        try:
            return guarded.post("fleet-token").status_code == 200
        except httpx.ConnectError:
            return False

    # Each client trusts the new one alone.
    wait_for(is_used)
    assert guarded.ask("SELECT 1") == "1"
    guarded.call("fleet-token")


def test_metrics_need_a_token_and_health_does_not(guarded: Guarded) -> None:
    url, verify = guarded.collector.http_url, guarded.context
    assert httpx.get(f"{url}/healthz", verify=verify).status_code == 200
    assert httpx.get(f"{url}/metrics", verify=verify).status_code == 401
    headers = {"authorization": "Bearer reader-token"}
    answer = httpx.get(f"{url}/metrics", verify=verify, headers=headers)
    assert 'reason="unauthenticated"' in answer.text


def test_a_tenant_over_its_rate_is_told_when_to_come_back(guarded: Guarded) -> None:
    assert guarded.post("slow-token").status_code == 200
    answer = guarded.post("slow-token")
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    with pytest.raises(grpc.RpcError) as raised:
        guarded.call("slow-token")
    assert raised.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    details = dict(raised.value.trailing_metadata())[DETAILS_KEY]
    (packed,) = Status.FromString(details).details
    info = RetryInfo()
    assert isinstance(packed, AnyMessage)
    assert packed.Unpack(info)
    assert info.retry_delay.seconds >= 1
    large = trace_request(20).SerializeToString()
    assert guarded.post("slow-token", large).status_code == 413
    assert guarded.post("fleet-token", large).status_code == 200
    records = logs_request(40).SerializeToString()
    assert guarded.post("slow-token", records, "/v1/logs").status_code == 413


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--access", "missing.toml"], "missing.toml (--access) cannot be read"),
        (["--tls-key", "k.pem"], "needs both --tls-certificate and --tls-key"),
        (
            ["--tls-key", "k.pem", "--tls-certificate", "c.pem"],
            "c.pem (--tls-certificate) with k.pem",
        ),
        (["--scrape", "localhost:8000"], "--scrape is 'localhost:8000', expected one such as"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    tmp_path: Path, flags: list[str], message: str
) -> None:
    result = subprocess.run(
        collect_command(tmp_path, *flags),
        capture_output=True, text=True, timeout=300, env=collector_environment(), check=False,
    )  # fmt: skip
    assert result.returncode == 2
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    assert message in lines[0]
    assert list(tmp_path.iterdir()) == []


def test_secrets_are_nowhere_on_the_disk(tmp_path: Path) -> None:
    secret = "ana.secret@example.org"
    body = trace_request(
        3,
        {
            "evenkeel.status": "ok",
            "gen_ai.input.messages": f"write to {secret}",
            "note": f"from {secret}",
            "deep": {"list": [{"mail": secret}]},
        },
    ).SerializeToString()
    with running_collector(tmp_path) as collector:
        answer = httpx.post(f"{collector.http_url}/v1/traces", content=body, headers=PROTOBUF)
        assert answer.status_code == 200
        records = agent_event("claude_code", "user_prompt", prompt=f"mail {secret}")
        records.MergeFrom(logs_request(1, {"note": secret}, body={"to": [secret]}))
        answer = httpx.post(
            f"{collector.http_url}/v1/logs", content=records.SerializeToString(), headers=PROTOBUF
        )
        assert answer.status_code == 200
        wait_for(lambda: collector.rows("SELECT count() FROM spans") == [(3,)])
        wait_for(lambda: collector.rows("SELECT count() FROM logs") == [(2,)])
        (attributes,) = collector.rows("SELECT DISTINCT SpanAttributes FROM spans")[0]
        assert attributes["note"] == "from [email]"
        assert "gen_ai.input.messages" not in attributes
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if secret.encode() in path.read_bytes()] == []


def test_grpc_senders_are_told_to_wait_while_the_log_is_full(tmp_path: Path) -> None:
    # Room for one body, until the store has it.
    (tmp_path / "evenkeel.toml").write_text("[collector]\nmax_log_bytes = 40000\n")
    with running_collector(tmp_path) as collector:
        address = collector.grpc_url.removeprefix("http://")
        with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as raised:
            for number in range(100):
                body = trace_request(500, service=str(number)).SerializeToString()
                channel.unary_unary(GRPC_METHOD)(body, timeout=120)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE
        assert DETAILS_KEY in dict(raised.value.trailing_metadata())


def test_our_own_store_client_reads_through_tls_with_a_token(guarded: Guarded) -> None:
    address = urlsplit(guarded.collector.query_url).netloc
    url = f"https://any:reader-token@{address}/?ca_cert={guarded.certificate}"
    store = Store(url)
    assert len(store.rows(query("count_requests"))) == 1
    store.close()
    with pytest.raises(StoreLoginError, match="unknown token"):
        Store(url.replace("reader-token", "wrong"))
