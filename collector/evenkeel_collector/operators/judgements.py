"""What people say of answers through the operators' API; it is stored as feedback is."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from evenkeel.spans import REVIEW_ACCEPTED, REVIEW_REJECTED
from evenkeel_collector.intake.feedback import Feedback, read_feedback
from evenkeel_collector.operators.actions import Order, Text

TraceId = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Tenant = Annotated[str, Field(max_length=128)]


class Judge(Order):
    """Say whether an answer was good, and what it should have been."""

    trace_id: TraceId
    tenant: Tenant = ""
    score: Annotated[float, Field(ge=0, le=1)] | None = None
    comment: Text = ""
    corrected: Annotated[str, Field(max_length=8_192)] = ""


class Review(Order):
    """Say whether a failure becomes an item of a golden dataset, and with which reference."""

    trace_id: TraceId
    tenant: Tenant = ""
    decision: Literal["accept", "reject"]
    reference: Annotated[str, Field(max_length=8_192)] = ""
    comment: Text = ""

    @model_validator(mode="after")
    def _has_reference(self) -> Review:
        if self.decision == "accept" and not self.reference.strip():
            raise ValueError("to accept, say what the answer should be")
        return self


JudgementOrder = Judge | Review
JUDGEMENTS: dict[str, type[Judge] | type[Review]] = {"feedback": Judge, "review": Review}


def feedback_of(order: JudgementOrder) -> Feedback:
    """Return what the order says, as feedback.

    Raises:
        MalformedError: If it says nothing.
    """
    said: dict[str, Any] = {
        "trace_id": order.trace_id,
        "author": order.by[:128],
        "tenant": order.tenant or None,
        "comment": order.comment or None,
    }
    if isinstance(order, Review):
        is_accepted = order.decision == "accept"
        said["label"] = REVIEW_ACCEPTED if is_accepted else REVIEW_REJECTED
        said["corrected"] = order.reference if is_accepted else None
    else:
        said["score"] = order.score
        said["label"] = None if order.score is None else "up" if order.score >= 0.5 else "down"
        said["corrected"] = order.corrected or None
    return read_feedback(json.dumps(said).encode())
