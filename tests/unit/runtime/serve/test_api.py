"""The pages keep to their own OpenAPI document, whatever they are asked."""

from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from evenkeel_runtime.request.why import WhyClient
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.serve.api import make_api
from tests.unit.runtime.response_cache.questions import SERVING
from tests.unit.runtime.serve.pages_client import make_client

CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
]
CACHE = ResponseCache(SERVING, MemoryBackend(1 << 20), None, AuditLog(None))
API = make_api()


async def app(scope: Any, receive: Any, send: Any) -> None:
    engine = SimpleNamespace(cache=SimpleNamespace(cache=CACHE))
    await API({**scope, "state": {"engine": engine, "api_keys": []}}, receive, send)


SCHEMA = schemathesis.openapi.from_dict(API.openapi())
SCHEMA.app = app


@SCHEMA.parametrize()
@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
def test_each_page_answers_as_its_document_says(case: Any) -> None:
    case.call_and_validate(checks=CHECKS)


async def test_why_an_explanation_is_missing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    # An address that ZeroMQ cannot connect to: the exporter is as good as gone.
    with closing(WhyClient("nowhere://")) as client:
        pages = make_client(hook=SimpleNamespace(why=client))
        answer = await pages.get("/why/r-1")
    assert answer.status_code == 503
    assert "no answer from the exporter process" in caplog.text
    assert "Invalid argument" in caplog.text
