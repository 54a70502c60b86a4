"""The provider's id of an answer is kept when the answer is removed."""

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import SecretStr

from evenkeel_collector.redaction.field_redactor import Redactor
from evenkeel_collector.redaction.field_rules import load_rules
from tests.fixtures.otlp_payload import trace_request

KEY = SecretStr("k" * 64)


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        pytest.param('{"id":"chatcmpl-9f-A_1","choices":[]}', "chatcmpl-9f-A_1", id="chat"),
        pytest.param('{"id": "resp_1", "output": [{"id": "msg_2"}]}', "resp_1", id="responses"),
        pytest.param(
            '{"id": ["langchain"], "data": {"id": "chatcmpl-7"}}', "chatcmpl-7", id="LangChain"
        ),
        pytest.param(
            '{"text": "\\\\"id\\\\": \\\\"msg_1\\\\""}', None, id="text that looks like it"
        ),
        pytest.param('{"id": "call_1"}', None, id="another id"),
        pytest.param("It is done.", None, id="text"),
    ],
)
def test_only_the_id_of_an_answer_is_kept(answer: str, kept: str | None) -> None:
    message = trace_request(1, attributes={"output.value": answer})
    encoded = Redactor(load_rules(), KEY).redact(message).payload
    (span,) = ExportTraceServiceRequest.FromString(encoded).resource_spans[0].scope_spans[0].spans
    found = {pair.key: pair.value.string_value for pair in span.attributes}
    assert "output.value" not in found
    assert found.get("llm.response.id") == kept
