"""Feedback on answers, stored as spans of the answer's trace.

It is checked, redacted, logged and stored like every other span, whether it comes from an
application (`/v1/feedback`) or from an operator (`/api/feedback`, `/api/review`).
"""

from __future__ import annotations

import hashlib
import json
import time
from typing import Annotated, Any, Literal
from uuid import uuid4

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from evenkeel import spans
from evenkeel_collector.operators.actions import Order, Text, read_model

SERVICE = "evenkeel-feedback"
EVALUATION = "human"

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=8192)]
_Word = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=128)]
_Answer = Annotated[str, Field(max_length=8192)]


def _not_zeros(value: str) -> str:
    if not value.strip("0"):
        raise ValueError("an id of all zeros is invalid")
    return value


TraceId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$"), AfterValidator(_not_zeros)]


class Feedback(BaseModel):
    """Feedback on one answer.

    Attributes:
        trace_id: The answer's trace, 32 hex digits.
        span_id: The request's span, 16 hex digits, if a trace has several.
        score: From 0, bad, to 1, good.
        label: The application's own label, such as `up`.
        comment: Free text.
        corrected: The correct answer.
        author: Who gave the feedback.
        tenant: The request's tenant; overridden by the tenant of the sender's token.
        id: Identifies the feedback; sending the same id again within ten minutes stores it once.
    """

    model_config = ConfigDict(extra="forbid")

    trace_id: TraceId
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


class Judge(Order):
    """Rate an answer, optionally with the correct one."""

    trace_id: TraceId = Field(description="The trace of the answer, 32 hex digits.")
    tenant: str = Field(
        max_length=128, default="", description="The tenant of the request; empty without one."
    )
    score: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="From 0, bad, to 1, good."
    )
    comment: Text = Field(default="", description="Free text.")
    corrected: _Answer = Field(default="", description="What the answer should have been.")

    def to_feedback(self) -> Feedback:
        """Return it as feedback.

        Raises:
            ConfigurationError: If it has no content.
        """
        label = None if self.score is None else "up" if self.score >= 0.5 else "down"
        return _feedback(self, label=label, score=self.score, corrected=self.corrected)


class Review(Order):
    """Decide whether a failure joins a golden dataset, and with which reference answer."""

    trace_id: TraceId = Field(description="The trace of the answer, 32 hex digits.")
    tenant: str = Field(
        max_length=128, default="", description="The tenant of the request; empty without one."
    )
    decision: Literal["accept", "reject"] = Field(
        description="Whether the failure joins the dataset."
    )
    reference: _Answer = Field(default="", description="The correct answer; required to accept.")
    comment: Text = Field(default="", description="Free text.")

    @model_validator(mode="after")
    def _has_reference(self) -> Review:
        if self.decision == "accept" and not self.reference.strip():
            raise ValueError("accepting needs the correct answer")
        return self

    def to_feedback(self) -> Feedback:
        """Return it as feedback.

        Raises:
            ConfigurationError: If it is not valid feedback.
        """
        if self.decision == "accept":
            return _feedback(self, label=spans.REVIEW_ACCEPTED, corrected=self.reference)
        return _feedback(self, label=spans.REVIEW_REJECTED)


def _feedback(order: Judge | Review, **said: Any) -> Feedback:
    said |= {"trace_id": order.trace_id, "author": order.by[:128]}
    said |= {"tenant": order.tenant, "comment": order.comment}
    return read_model(Feedback, {key: value for key, value in said.items() if value != ""})


def identity_of(feedback: Feedback, tenant: str | None) -> bytes | None:
    """Return what is equal for feedback sent again, whatever else it says; None without an id.

    Args:
        feedback: The feedback.
        tenant: That of the sender's token, which overrides the feedback's own.
    """
    if feedback.id is None:
        return None
    whose = feedback.tenant if tenant is None else tenant
    # No OTLP body is a JSON array, so this is never mistaken for one.
    return json.dumps([feedback.trace_id, whose, feedback.id]).encode()


def to_span(feedback: Feedback, now_ns: int | None = None) -> tuple[str, bytes]:
    """Return the id of the feedback's span, and the OTLP request that holds it."""
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


def _set(owner: Any, name: str, value: str | float) -> None:
    attribute = owner.attributes.add()
    attribute.key = name
    if isinstance(value, str):
        attribute.value.string_value = value
    else:
        attribute.value.double_value = value
