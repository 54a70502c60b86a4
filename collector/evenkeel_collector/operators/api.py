"""The HTTP API for operating the collector: `/api/…` and `/v1/feedback`.

Every route is declared here with its body and response models; `request_checks.py` checks access,
and `problems.py` turns errors into responses. An action is a POST of JSON, which no foreign page
can make a browser send.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from fastapi.routing import APIRoute

from evenkeel.api_page import render_api
from evenkeel_collector.operators import actions, answers, feedback, prompts
from evenkeel_collector.operators.problems import (
    DOCS_PATH,
    FEEDBACK_PATH,
    MEDIA_TYPE,
    ProblemDocument,
    answer_with_problems,
)
from evenkeel_collector.operators.request_checks import ME_PATH, ApiAccess
from evenkeel_collector.operators.service import OperatorService
from evenkeel_collector.ports.access import AccessScope, ForbiddenError, secret_of
from evenkeel_collector.ports.hosts import KnownHosts
from evenkeel_collector.slo.report_text import report_html, report_json, report_markdown

_DESCRIPTION = """\
Reads need a token with the scope `query`, actions `admin`, and feedback `ingest`, sent as
`Authorization: Bearer TOKEN`. Without an access file, no token is needed. A token of one tenant may
use only `/api/me` and `/v1/feedback`. Errors are problem documents (RFC 9457).
"""
_Moment = Annotated[str, Query(max_length=40)]
_REPORTS: Any = {200: {"content": {"text/markdown": {}, "text/html": {}}}}


def is_api_path(path: str) -> bool:
    """Return whether the API handles a path, even if only with 404."""
    return path.startswith("/api/") or path == FEEDBACK_PATH or path in (DOCS_PATH, "/openapi.json")


def build_api(service: OperatorService, hosts: KnownHosts) -> FastAPI:
    """Return the API of a running collector as an ASGI application."""
    app = _declare()
    app.state.service = service
    app.add_middleware(ApiAccess, intake=service.intake, hosts=hosts)
    answer_with_problems(app, service.intake)
    return app


@cache
def openapi() -> dict[str, Any]:
    """Return the OpenAPI document, without a running collector."""
    document = _declare().openapi()
    document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    # Without an access file, no token is needed.
    document["security"] = [{"token": []}, {}]
    for operations in document["paths"].values():
        for operation in operations.values():
            content = operation["responses"]["default"]["content"]
            content[MEDIA_TYPE] = content.pop("application/json")
    return document


def _declare() -> FastAPI:
    app = FastAPI(
        title="evenkeel collector",
        version=version("evenkeel-collector"),
        description=_DESCRIPTION,
        openapi_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
        responses={"default": {"model": ProblemDocument, "description": "Refused"}},
    )
    app.include_router(router)
    return app


def _operation_id(route: APIRoute) -> str:
    return route.name


# Asynchronous, as all that waits for nothing: they must not queue for a thread behind slow reports.
async def _service_of(request: Request) -> OperatorService:
    return cast("OperatorService", request.app.state.service)


async def _token_of(request: Request) -> str:
    return cast("str", request.state.token)


Service = Annotated[OperatorService, Depends(_service_of)]
TokenDigest = Annotated[str, Depends(_token_of)]
router = APIRouter()


@router.get(ME_PATH, response_model=answers.IdentityAnswer)
async def me(request: Request, service: Service) -> Any:
    """Return the token's tenant, and whether the token allows actions."""
    tenant = request.state.tenant
    try:
        service.intake.access.check(secret_of(request.headers), AccessScope.ADMIN)
    except ForbiddenError:
        return {"tenant": tenant, "may_act": False}
    return {"tenant": tenant, "may_act": tenant is None}


@router.get("/api/alerts", response_model=answers.AlertsAnswer)
def alerts(service: Service) -> Any:
    """Return the alert book, as printed by `evenkeel alerts list --json`."""
    return service.alerts()


@router.get("/api/corrections", response_model=answers.CorrectionsAnswer)
def corrections(service: Service) -> Any:
    """Return the corrections of SLOs, including revoked ones."""
    return {"corrections": service.corrections()}


@router.get("/api/audit", response_model=answers.AuditAnswer)
def audit(service: Service) -> Any:
    """Return the audit log, newest first."""
    return {"entries": service.entries()}


@router.get("/api/prompts", response_model=answers.PromptsAnswer)
def list_prompts(service: Service) -> Any:
    """Return the prompt registry (`--prompts-dir`)."""
    return {"prompts": service.prompts()}


@router.get("/api/report", response_model=answers.ReportAnswer, responses=_REPORTS)
def report(
    service: Service,
    begin: Annotated[_Moment, Query(alias="from", description="Start, RFC 3339.")],
    end: Annotated[_Moment, Query(alias="to", description="End, RFC 3339, exclusive.")],
    form: Annotated[
        Literal["json", "markdown", "html"],
        Query(alias="format", description="Form of the report, `json` by default."),
    ] = "json",
) -> Any:
    """Return the SLO report of a time range of up to 400 days."""
    found = service.report(begin, end)
    if form == "markdown":
        return PlainTextResponse(report_markdown(found), media_type="text/markdown")
    return HTMLResponse(report_html(found)) if form == "html" else report_json(found)


@router.post("/api/acknowledge", response_model=answers.AcknowledgedAnswer)
def acknowledge(order: actions.Acknowledge, service: Service, token: TokenDigest) -> Any:
    """Acknowledge the firing alerts of an SLO, which stops repeated notifications."""
    return service.perform("acknowledge", order, token)


@router.post("/api/silence", response_model=answers.SilencedAnswer)
def silence(order: actions.Silencing, service: Service, token: TokenDigest) -> Any:
    """Silence alerts."""
    return service.perform("silence", order, token)


@router.post("/api/end-silence", response_model=answers.EndedAnswer)
def end_silence(order: actions.EndSilence, service: Service, token: TokenDigest) -> Any:
    """End a silence now."""
    return service.perform("end-silence", order, token)


@router.post("/api/replay", response_model=answers.ReplayedAnswer)
def replay(order: actions.Replay, service: Service, token: TokenDigest) -> Any:
    """Retry one failed notification (dead letter), or all of them."""
    return service.perform("replay", order, token)


@router.post("/api/correct", response_model=answers.CorrectedAnswer)
def correct(order: actions.Correct, service: Service, token: TokenDigest) -> Any:
    """Exclude a time range from the error budget."""
    return service.perform("correct", order, token)


@router.post("/api/revoke", response_model=answers.RevokedAnswer)
def revoke(order: actions.Revoke, service: Service, token: TokenDigest) -> Any:
    """Revoke a correction."""
    return service.perform("revoke", order, token)


@router.post("/api/promote", response_model=answers.MovedLabelAnswer)
def promote(order: prompts.Promote, service: Service, token: TokenDigest) -> Any:
    """Move a label to another version of a prompt, after a passing run or with a stated reason."""
    return service.perform("promote", order, token)


@router.post("/api/rollback", response_model=answers.MovedLabelAnswer)
def rollback(order: prompts.Rollback, service: Service, token: TokenDigest) -> Any:
    """Move a label back to its previous version."""
    return service.perform("rollback", order, token)


@router.post("/api/feedback", response_model=answers.JudgedAnswer)
async def judge(order: feedback.Judge, service: Service, token: TokenDigest) -> Any:
    """Rate an answer; stored like feedback from an application."""
    return await service.judge("feedback", order, token)


@router.post("/api/review", response_model=answers.JudgedAnswer)
async def review(order: feedback.Review, service: Service, token: TokenDigest) -> Any:
    """Decide whether a failure joins a golden dataset."""
    return await service.judge("review", order, token)


@router.post(FEEDBACK_PATH, response_model=answers.FeedbackAnswer)
async def keep_feedback(said: feedback.Feedback, request: Request, service: Service) -> Any:
    """Store a user's feedback on an answer in the answer's trace."""
    return await service.keep_feedback(said, request.state.tenant)


@router.get("/openapi.json", include_in_schema=False)
def openapi_document() -> Response:
    """Return the OpenAPI document."""
    return JSONResponse(openapi())


@router.get(DOCS_PATH, include_in_schema=False)
def docs() -> Response:
    """Return the same as a page."""
    page = render_api(openapi())
    return HTMLResponse(page.html, headers=page.headers)
