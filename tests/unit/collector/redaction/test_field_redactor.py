"""Redaction of whole OTLP requests: where it looks, what it leaves, and what it costs nobody."""

import copy
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import SecretStr

from evenkeel.errors import ConfigurationError
from evenkeel.request_record import RequestRecord
from evenkeel.settings import load
from evenkeel.spans import TENANT
from evenkeel_collector.redaction.field_redactor import MAX_KNOWN_NAMES, Redactor
from evenkeel_collector.redaction.field_rules import load_rules
from evenkeel_collector.redaction.repeated_fields import MAX_DELETIONS
from evenkeel_collector.redaction.settings import RedactionSettings
from tests.fixtures.otlp_payload import key_values
from tests.unit.collector.redaction.redaction_requests import (
    CONTENT,
    KEY,
    REDACTOR,
    RULES,
    SECRET,
    attributes_of,
    only_span,
    request,
)


def typical_span() -> dict[str, Any]:
    record = RequestRecord(
        request_id="chatcmpl-8f3f6f0a9c1b4d7e8f3f6f0a9c1b4d7e",
        model="support-4m",
        tenant="acme",
        session_id="s-77",
        input_tokens=128,
        output_tokens=64,
        ttft_s=0.21,
        emission_time_s=[0.21, 0.24],
        emission_tokens=[1, 1],
    )
    return dict(record.to_attributes())


def test_a_request_without_secrets_is_returned_as_it_was_encoded() -> None:
    message = request(typical_span(), name="chat support-4m")
    before = message.SerializeToString()
    redacted = REDACTOR.redact(message)
    assert redacted.payload == before
    assert redacted.counts == {}


PLACES: dict[str, Any] = {
    "span attribute": lambda m: only_span(m).attributes.extend(key_values({"note": SECRET})),
    "span name": lambda m: setattr(only_span(m), "name", f"mail {SECRET}"),
    "status message": lambda m: setattr(only_span(m).status, "message", f"no {SECRET}"),
    "event attribute": lambda m: only_span(m).events.add(attributes=key_values({"x": SECRET})),
    "event name": lambda m: only_span(m).events.add(name=f"sent {SECRET}"),
    "link attribute": lambda m: only_span(m).links.add(attributes=key_values({"x": SECRET})),
    "resource attribute": lambda m: m.resource_spans[0].resource.attributes.extend(
        key_values({"x": SECRET})
    ),
    "scope attribute": lambda m: (
        m.resource_spans[0].scope_spans[0].scope.attributes.extend(key_values({"x": SECRET}))
    ),
    "scope name": lambda m: setattr(m.resource_spans[0].scope_spans[0].scope, "name", SECRET),
    "schema url": lambda m: setattr(m.resource_spans[0], "schema_url", f"x {SECRET}"),
    "array element": lambda m: only_span(m).attributes.extend(key_values({"x": ["a", SECRET]})),
    "map value": lambda m: only_span(m).attributes.extend(key_values({"x": {"y": {"z": SECRET}}})),
    "map key": lambda m: only_span(m).attributes.extend(key_values({"x": {SECRET: 1}})),
    "attribute name": lambda m: only_span(m).attributes.extend(key_values({SECRET: 1})),
    "bytes": lambda m: only_span(m).attributes.extend(
        key_values({"x": b"\xff\x00 " + SECRET.encode() + b" \xfe"})
    ),
    "unknown field": lambda m: only_span(m).MergeFromString(
        b"\xfa\x7f" + bytes([len(SECRET)]) + SECRET.encode()
    ),
    "unknown field of the request": lambda m: m.MergeFromString(
        b"\xfa\x7f" + bytes([len(SECRET)]) + SECRET.encode()
    ),
    "unknown group": lambda m: only_span(m).MergeFromString(
        b"\xfb\x7f\x0a" + bytes([len(SECRET)]) + SECRET.encode() + b"\xfc\x7f"
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_secret_is_found_wherever_a_request_has_text(place: str) -> None:
    message = request({"kept": "yes", **typical_span()})
    PLACES[place](message)
    assert SECRET.encode() in message.SerializeToString()
    redacted = REDACTOR.redact(message)
    assert SECRET.encode() not in redacted.payload
    assert redacted.payload == message.SerializeToString()
    assert attributes_of(only_span(message))["kept"].string_value == "yes"
    if not place.startswith("unknown"):
        assert redacted.counts == {"email": 1}
    again = REDACTOR.redact(message)
    assert again.counts == {}
    assert again.payload == redacted.payload


@pytest.mark.parametrize(
    "name",
    [
        "authorization",
        "http.request.header.authorization",
        "HTTP.Request.Header.Proxy-Authorization",
        "api_key",
        "apiKey",
        "openai-api-key",
        "http.request.header.x-api-key",
        "password",
        "db.password",
        "userPassword",
        "cookie",
        "http.request.header.cookie",
        "http.response.header.set-cookie",
        "http.response.header.set_cookie",
        "aws.secret_access_key",
        "client_secret",
        "token",
        "oauth.token",
        "accessToken",
        "csrf_token",
        "card_number",
    ],
)
def test_the_name_alone_makes_a_value_secret(name: str) -> None:
    for value in ("tiny", 1234, ["a", "b"], {"x": "y"}, b"\x00"):
        message = request({name: value})
        redacted = REDACTOR.redact(message)
        (result,) = only_span(message).attributes
        assert result.value.string_value.startswith("[")
        assert sum(redacted.counts.values()) == 1
        assert REDACTOR.redact(message).counts == {}


@pytest.mark.parametrize(
    "name",
    [
        "gen_ai.usage.input_tokens",
        "gen_ai.request.max_tokens",
        "evenkeel.emission_tokens",
        "evenkeel.drafted_tokens",
        "llm.token_count.prompt",
        "evenkeel.prompt.name",
        "evenkeel.prompt.version",
        "gen_ai.prompt.name",
        "session.id",
        "http.request.method",
        "tokenizer",
        "secretary",
    ],
)
def test_a_name_that_only_sounds_secret_is_left(name: str) -> None:
    message = request({name: "plain"})
    assert REDACTOR.redact(message).counts == {}
    assert attributes_of(only_span(message))[name].string_value == "plain"


CONTENT_NAMES = [
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.system_instructions",
    "gen_ai.prompt",
    "gen_ai.prompt.0.content",
    "gen_ai.completion",
    "gen_ai.completion.0.content",
    "gen_ai.tool.call.arguments",
    "llm.prompts",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "input.value",
    "output.value",
    "llm.input_messages.0.message.content",
    "llm.output_messages.0.message.content",
    "retrieval.documents.0.document.content",
    "llm.prompt_template.variables",
    # LiteLLM's raw requests and answers, of any provider.
    "llm.openai.messages",
    "llm.anthropic.content",
    "llm.vertex_ai.contents",
    "llm.azure.choices",
    "llm.openai.input",
    "llm.bedrock.stringified_raw_response",
    "ai.response.reasoning",
    "ai.values",
    "spring.ai.chat.client.user.text",
    "input-json",
]
EVENT_NAMES = ["gen_ai.content.prompt", "gen_ai.content.completion", "gen_ai.user.message"]


@pytest.mark.parametrize("name", CONTENT_NAMES)
def test_content_goes_unless_the_tenants_content_is_stored(name: str) -> None:
    message = request({name: CONTENT, "kept": 1})
    redacted = REDACTOR.redact(message)
    assert list(attributes_of(only_span(message))) == ["kept"]
    assert redacted.counts == {"content": 1}

    storing = Redactor(RULES, KEY, ["acme"])
    message = request({name: CONTENT, TENANT: "acme"})
    assert storing.redact(message).counts == {}
    assert attributes_of(only_span(message))[name].string_value == CONTENT


@pytest.mark.parametrize(
    "name",
    [
        "llm.token_count.prompt", "llm.token_count.completion", "llm.cost.prompt",
        "llm.cost.completion_details.output", "llm.cost.prompt_details.input",
        "llm.openai.model", "ai.response.finishReason", "gen_ai.tool.description",
    ],
)  # fmt: skip
def test_what_is_named_like_content_and_is_none_stays(name: str) -> None:
    message = request({name: 5})
    REDACTOR.redact(message)
    assert list(attributes_of(only_span(message))) == [name]


@pytest.mark.parametrize("name", [*EVENT_NAMES, "gen_ai.choice"])
def test_events_that_carry_content_go_and_the_others_stay(name: str) -> None:
    message = request()
    only_span(message).events.add(name="first")
    only_span(message).events.add(name=name, attributes=key_values({"content": CONTENT}))
    only_span(message).events.add(name="last")
    REDACTOR.redact(message)
    assert [event.name for event in only_span(message).events] == ["first", "last"]


TENANT_CASES = {
    "the span's own tenant": (dict(span="acme"), True),
    "another tenant": (dict(span="other"), False),
    "no tenant at all": (dict(), False),
    "the resource's tenant": (dict(resource="acme"), True),
    "the span's tenant before the resource's": (dict(span="other", resource="acme"), False),
    "the token's tenant": (dict(token="acme"), True),
    "the token's tenant before what a span claims": (dict(token="other", span="acme"), False),
}


@pytest.mark.parametrize("case", TENANT_CASES)
def test_whose_content_is_stored(case: str) -> None:
    tenants, is_stored = TENANT_CASES[case]
    message = request({"input.value": CONTENT})
    if "span" in tenants:
        only_span(message).attributes.extend(key_values({TENANT: tenants["span"]}))
    if "resource" in tenants:
        resource = message.resource_spans[0].resource
        resource.attributes.extend(key_values({TENANT: tenants["resource"]}))
    Redactor(RULES, KEY, ["acme"]).redact(message, tenants.get("token"))
    assert ("input.value" in attributes_of(only_span(message))) is is_stored


def test_one_tenants_content_is_stored_and_its_neighbours_is_not() -> None:
    message = request({"input.value": CONTENT, TENANT: "acme"})
    spans = message.resource_spans[0].scope_spans[0].spans
    spans.add(attributes=key_values({"input.value": CONTENT, TENANT: "other"}))
    Redactor(RULES, KEY, ["acme"]).redact(message)
    assert [len(span.attributes) for span in spans] == [2, 1]


def test_secrets_within_stored_content_are_still_replaced() -> None:
    message = request({"input.value": f"I am {SECRET}", TENANT: "acme"})
    Redactor(RULES, KEY, ["*"]).redact(message)
    assert attributes_of(only_span(message))["input.value"].string_value.startswith("I am [email:")


def test_only_spans_with_something_to_redact_change() -> None:
    message = ExportTraceServiceRequest()
    for r in range(3):
        resource_spans = message.resource_spans.add()
        for _ in range(2):
            scope_spans = resource_spans.scope_spans.add()
            for _ in range(70):  # lengths of one and of two bytes
                scope_spans.spans.add(name="chat", attributes=key_values(typical_span()))
        resource_spans.scope_spans[1].spans[r * 30].attributes.extend(key_values({"to": SECRET}))
    before = copy.deepcopy(message)
    assert REDACTOR.redact(message).counts == {"email": 3}
    for r in range(3):
        before.resource_spans[r].scope_spans[1].spans[r * 30].CopyFrom(
            message.resource_spans[r].scope_spans[1].spans[r * 30]
        )
    assert message == before


def test_many_attributes_are_removed_and_the_rest_keep_their_order() -> None:
    names = {f"gen_ai.prompt.{i}.content": CONTENT for i in range(2 * MAX_DELETIONS)}
    message = request({"first": 1, **names, "last": 2})
    assert REDACTOR.redact(message).counts == {"content": 2 * MAX_DELETIONS}
    assert list(attributes_of(only_span(message))) == ["first", "last"]


def test_invented_names_do_not_fill_the_memory() -> None:
    redactor = Redactor(RULES, KEY)
    message = request({f"n{i}": 1 for i in range(2 * MAX_KNOWN_NAMES)} | {"x" * 5000: SECRET})
    redactor.redact(message)
    assert len(redactor._names) <= MAX_KNOWN_NAMES


def nest(message: ExportTraceServiceRequest, depth: int) -> None:
    value = only_span(message).attributes.add(key="deep").value
    for _ in range(depth):
        value = value.array_value.values.add()
    value.string_value = SECRET


def test_a_secret_is_found_as_deep_as_protobuf_reads() -> None:
    message = request()
    nest(message, 46)  # two messages a level, upb reads 100
    redacted = REDACTOR.redact(ExportTraceServiceRequest.FromString(message.SerializeToString()))
    assert redacted.counts == {"email": 1}


def test_what_is_nested_deeper_than_can_be_read_back_goes() -> None:
    message = request({"kept": 1})
    nest(message, 300)
    assert REDACTOR.redact(message).counts == {"too_deep": 1}
    assert list(attributes_of(only_span(message))) == ["kept"]


def test_a_dropping_rule_removes_the_attribute_around_the_secret(tmp_path: Any) -> None:
    path = tmp_path / "rules.toml"
    path.write_text('[value.email]\naction = "drop"\n[key.cookie]\naction = "drop"\n')
    redactor = Redactor(load_rules(path), KEY)
    attributes = {"a": SECRET, "b": ["x", SECRET], "c": {"d": SECRET, "e": 1}, "cookie": 1, "f": 2}
    message = request(attributes, name=f"to {SECRET}")
    redactor.redact(message)
    left = attributes_of(only_span(message))
    assert list(left) == ["c", "f"]
    assert [pair.key for pair in left["c"].kvlist_value.values] == ["e"]
    assert only_span(message).name == "to [email]"


def test_a_short_key_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigurationError, match="9 bytes, expected at least 16") as caught:
        Redactor(RULES, SecretStr("short-key"))
    assert "short-key" not in str(caught.value)


def test_settings_come_from_the_environment_and_mask_the_key() -> None:
    environment = {
        "EVENKEEL_REDACTION_HASH_KEY": KEY.get_secret_value(),
        "EVENKEEL_REDACTION_CONTENT_TENANTS": "acme, beta",
    }
    loaded = load(RedactionSettings, {}, environment)
    assert loaded.settings.content_tenants == ("acme", "beta")
    assert KEY.get_secret_value() not in loaded.describe()
    message = request({"input.value": CONTENT, TENANT: "beta"})
    assert loaded.settings.build().redact(message).counts == {}
