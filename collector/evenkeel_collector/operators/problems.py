"""Errors of the operators' API as problem documents (RFC 9457)."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, cast

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from evenkeel.errors import EvenkeelError, StoreError, UnusableFileError
from evenkeel_collector.intake.intake import REFUSALS, Intake, message_of, response_headers
from evenkeel_collector.intake.otlp_body import MalformedError
from evenkeel_collector.operators.actions import first_mistake
from evenkeel_collector.ports.access import UnauthenticatedError

FEEDBACK_PATH = "/v1/feedback"
DOCS_PATH = "/docs"
TRANSPORT = "http"
MEDIA_TYPE = "application/problem+json"


class ProblemDocument(BaseModel):
    """Why a request was refused. `error` repeats `detail`, for clients that read that name."""

    type: str = Field(default="about:blank", description="Always `about:blank`.")
    title: str = Field(description="The status code's phrase.")
    status: int = Field(description="The HTTP status code.")
    detail: str = Field(description="What was wrong and what to do, in one line.")
    error: str = Field(description="The same as `detail`.")


def problem(status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """Return a problem document as a response."""
    document = ProblemDocument(
        title=HTTPStatus(status).phrase, status=status, detail=detail, error=detail
    )
    return JSONResponse(document.model_dump(), status, headers, MEDIA_TYPE)


def refuse(intake: Intake, path: str, error: Exception) -> JSONResponse:
    """Return the response to a failed request; refused feedback is counted as on OTLP."""
    if type(error) in REFUSALS:
        headers = response_headers(error)
        if path == FEEDBACK_PATH:
            intake.count_rejected(TRANSPORT, error)
        elif path == DOCS_PATH and isinstance(error, UnauthenticatedError):
            # Browsers ask for a password, which may be a token.
            headers["www-authenticate"] = 'Basic realm="evenkeel"'
        return problem(REFUSALS[type(error)].status, message_of(error), headers)
    is_ours = isinstance(error, StoreError | UnusableFileError)
    return problem(503 if is_ours else 400, message_of(error))


def answer_with_problems(app: FastAPI, intake: Intake) -> None:
    """Make an app answer every error with a problem document."""

    def refused(request: Request, error: Exception) -> JSONResponse:
        return refuse(intake, request.scope["path"], error)

    def invalid(request: Request, error: Exception) -> JSONResponse:
        # Without "body" or "query" in front of the field.
        mistakes = [
            {**e, "loc": e["loc"][1:]} for e in cast("RequestValidationError", error).errors()
        ]
        return refused(request, MalformedError(first_mistake(mistakes)))

    def unanswered(request: Request, error: Exception) -> JSONResponse:
        known = cast("HTTPException", error)
        if known.status_code == 400:
            # A body that is not text, which FastAPI cannot parse.
            return refused(request, MalformedError(known.detail))
        detail = {
            404: f"no endpoint at {request.scope['path'][:100]}; GET /docs lists all endpoints",
            405: f"{request.scope['path']} does not support {request.method}",
        }.get(known.status_code, known.detail)
        return problem(known.status_code, message_of(Exception(detail)), known.headers)

    def failed(request: Request, error: Exception) -> JSONResponse:
        return problem(500, "internal error; see the collector's log")

    handlers: dict[type[Exception], Any] = {kind: refused for kind in (*REFUSALS, EvenkeelError)}
    handlers |= {RequestValidationError: invalid, HTTPException: unanswered, Exception: failed}
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)
