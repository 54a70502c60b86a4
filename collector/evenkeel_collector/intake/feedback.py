"""`POST /v1/feedback`: what a person says of an answer becomes a span of its trace.

It takes the same way as every other span: checked, redacted, logged, stored.
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Annotated, Any
from uuid import uuid4

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from evenkeel import spans
from evenkeel_collector.intake.canonical import MalformedError

PATH = "/v1/feedback"
MAX_BODY_BYTES = 64 << 10
SERVICE = "evenkeel-feedback"
EVALUATION = "human"

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=8192)]
_Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]


def _not_zeros(value: str) -> str:
    if not value.strip("0"):
        raise ValueError("an id of zeros names nothing")
    return value


class Feedback(BaseModel):
    """One judgement of one answer.

    Attributes:
        trace_id: Of the answer, 32 hex digits.
        span_id: The request's span, 16 hex digits, where a trace has several.
        score: From 0, bad, to 1, good.
        label: In the words of whoever asks, such as `up`.
        comment: Free text.
        corrected: What the answer should have been.
        author: Who says so.
        tenant: Whose request it was; a sender's own token wins.
        id: Of this judgement: sent again with the same one, it stays one.
    """

    model_config = ConfigDict(extra="forbid")

    trace_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$"), AfterValidator(_not_zeros)]
    span_id: Annotated[str, Field(pattern=r"^[0-9a-f]{16}$"), AfterValidator(_not_zeros)] | None = (
        None
    )
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    label: _Word | None = None
    comment: _Text | None = None
    corrected: _Text | None = None
    author: _Word | None = None
    tenant: _Word | None = None
    id: _Word | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Feedback:
        if self.score is None and not (self.label or self.comment or self.corrected):
            raise ValueError("give at least one of score, label, comment and corrected")
        return self


def read_feedback(body: bytes) -> Feedback:
    """Return what a body says.

    Raises:
        MalformedError: If it is no feedback; the message names the field.
    """
    try:
        return Feedback.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "body"
        raise MalformedError(f"{where}: {first['msg']}") from error


def to_span(feedback: Feedback, now_ns: int | None = None) -> tuple[str, bytes]:
    """Return the id of the judgement's span, and the OTLP request that holds it."""
    key = f"{feedback.trace_id} {feedback.id or uuid4().hex}"
    span_id = hashlib.sha256(key.encode()).digest()[:8]
    request = ExportTraceServiceRequest()
    resource_spans = request.resource_spans.add()
    _set(resource_spans.resource, "service.name", SERVICE)
    span = resource_spans.scope_spans.add().spans.add()
    span.trace_id = bytes.fromhex(feedback.trace_id)
    span.span_id = span_id
    if feedback.span_id is not None:
        span.parent_span_id = bytes.fromhex(feedback.span_id)
    span.name = spans.SPAN_FEEDBACK
    span.kind = 1
    span.start_time_unix_nano = span.end_time_unix_nano = now_ns or time.time_ns()
    attributes: dict[str, Any] = {
        spans.EVAL_NAME: EVALUATION,
        spans.EVAL_SCORE: feedback.score,
        spans.EVAL_LABEL: feedback.label,
        spans.EVAL_EXPLANATION: feedback.comment,
        spans.FEEDBACK_CORRECTED: feedback.corrected,
        spans.FEEDBACK_AUTHOR: feedback.author,
        spans.TENANT: feedback.tenant,
    }
    for name, value in attributes.items():
        if value is not None:
            _set(span, name, value)
    return span_id.hex(), request.SerializeToString()


def receipt(feedback: Feedback, span_id: str) -> bytes:
    """Return the answer to a judgement that is on disk."""
    return json.dumps({"trace_id": feedback.trace_id, "feedback_id": span_id}).encode()


def _set(owner: Any, name: str, value: str | float) -> None:
    attribute = owner.attributes.add()
    attribute.key = name
    if isinstance(value, str):
        attribute.value.string_value = value
    else:
        attribute.value.double_value = value
