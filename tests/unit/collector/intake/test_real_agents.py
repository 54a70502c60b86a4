"""What real agents report: each request and tool call once, and nothing of what was said."""

import json
from collections import Counter
from collections.abc import Callable, Mapping

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from pydantic import SecretStr

from evenkeel_collector.intake.begun_requests import BegunRequests
from evenkeel_collector.intake.otlp_json import check_json
from evenkeel_collector.intake.otlp_logs import check_logs_json
from evenkeel_collector.redaction.field_redactor import Redactor
from evenkeel_collector.redaction.field_rules import load_rules
from evenkeel_collector.redaction.frames import LOGS
from tests.fixtures.real_sdks import NAMES, recorded
from tests.unit.collector.intake.test_otlp_logs import spans_of

REDACTOR = Redactor(load_rules(), SecretStr("k" * 64))
# Words of the questions, answers and arguments of tools in the recordings.
SAID = (b"delivery", b"the usual time", b"Paris", b"rains in", b"echo hello")


def codex_requests(tenant_of: Callable[[str], str]) -> list[tuple[Span, Mapping[str, str]]]:
    """Return the requests of a Codex whose events come one by one, each of a tenant by its text."""
    begun = BegunRequests()
    requests: list[tuple[Span, Mapping[str, str]]] = []
    for path, body in recorded("codex_traced"):
        assert path == "/v1/logs"
        document = json.loads(body)
        (of_resource,) = document["resourceLogs"]
        for scope in of_resource["scopeLogs"]:
            for record in scope["logRecords"]:
                alone = {**of_resource, "scopeLogs": [{**scope, "logRecords": [record]}]}
                tenant = {"stringValue": tenant_of(json.dumps(record))}
                named = [{"key": "evenkeel.tenant", "value": tenant}]
                named += of_resource["resource"]["attributes"]
                alone["resource"] = {**of_resource["resource"], "attributes": named}
                checked = check_logs_json(
                    json.dumps({"resourceLogs": [alone]}).encode(), begun=begun
                )
                requests += [
                    (span, attributes)
                    for span, attributes in spans_of(checked.payload)
                    if attributes["gen_ai.operation.name"] == "chat"
                ]
    return requests


def test_codex_requests_have_their_duration_and_place_though_their_events_come_apart() -> None:
    requests = codex_requests(lambda event: "acme")
    assert len(requests) == 2
    for span, attributes in requests:
        duration_s = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9
        assert 0.15 < duration_s < 0.5
        assert attributes["gen_ai.response.time_to_first_chunk"] in ("0.149", "0.15", "0.151")
        assert attributes["gen_ai.usage.reasoning.output_tokens"] == "8"
        assert "evenkeel.clamped.start_unix_nano" not in attributes
        assert span.parent_span_id
    # In the trace of the spans that Codex sends, not one of the conversation's.
    assert {span.trace_id.hex() == requests[0][0].trace_id.hex() for span, _ in requests} == {True}
    assert not requests[0][0].trace_id.hex().startswith("01a2")


def test_the_begin_of_another_tenants_request_says_nothing() -> None:
    requests = codex_requests(lambda event: "acme" if "codex.api_request" in event else "other")
    assert [span.parent_span_id for span, _ in requests] == [b"", b""]
    assert all("evenkeel.clamped.start_unix_nano" in attributes for _, attributes in requests)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_what_was_said_is_kept(name: str) -> None:
    kept: Counter[bytes] = Counter()
    for path, body in recorded(name):
        if path == "/v1/logs":
            checked = check_logs_json(
                body, lambda message: REDACTOR.redact(message, shape=LOGS).payload
            )
        else:
            checked = check_json(body, lambda message: REDACTOR.redact(message).payload)
        assert checked.payload
        kept.update({word: 1 for word in SAID if word in checked.payload})
    assert not kept


def test_the_recordings_are_small_and_name_no_machine() -> None:
    for name in NAMES:
        bodies = b"".join(body for _, body in recorded(name))
        assert len(bodies) < 60_000
        assert b"/tmp/" not in bodies
        assert b"/home/" not in bodies
