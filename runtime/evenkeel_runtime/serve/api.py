"""Our own pages as one FastAPI app, and the access rule for them.

Pages that expose requests, tenants or load require the server's API key if one is set (`--api-key`,
VLLM_API_KEY). The metrics are open, like vLLM's own, and so are the pages that describe the API.
vLLM checks keys itself, but our pages are answered before that check.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl

from fastapi import APIRouter, Depends, FastAPI, Header, HTTPException, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.security import HTTPBearer
from prometheus_client import REGISTRY
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, model_validator
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Route

from evenkeel.api_page import render_api
from evenkeel.spans import HEADER_TENANT
from evenkeel_runtime.control.service import ControlService, ControlState
from evenkeel_runtime.metrics import open_metrics
from evenkeel_runtime.request.headers import read_headers
from evenkeel_runtime.request.why import NoAnswerError, RequestExplanation, WhyClient
from evenkeel_runtime.response_cache.backend import BackendError
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.deletions import Deletions
from evenkeel_runtime.response_cache.route_modes import FixedModeError, UnknownRouteError
from evenkeel_runtime.response_cache.settings_file import HitMode
from evenkeel_runtime.response_cache.state import CacheState, describe

logger = logging.getLogger(__name__)

METRICS_PATH = "/metrics"
_CACHE_PATH = "/v1/evenkeel/cache"
_PROBLEM = "application/problem+json"
_MAX_ID_CHARS = 1024
_CHALLENGE = {"www-authenticate": "Bearer"}


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request was refused or failed (RFC 9457)."""

    title: str
    status: int
    detail: str
    type: str = "about:blank"


def _has_key(headers: Iterable[tuple[bytes, bytes]], api_keys: Sequence[str]) -> bool:
    """Whether the first `Authorization` header names one of the keys, as vLLM reads it."""
    values = (value for name, value in headers if name == b"authorization")
    scheme, _, token = next(values, b"").decode("latin-1").partition(" ")
    given = hashlib.sha256(token.encode()).digest()
    is_known = False
    for key in api_keys:
        # Compare every key in constant time, so that timing does not leak them.
        is_known |= hmac.compare_digest(given, hashlib.sha256(key.encode()).digest())
    return scheme.lower() == "bearer" and is_known


# Only documents the scheme; keys are read the way vLLM reads them.
_BEARER = HTTPBearer(auto_error=False, description="One of the server's API keys, if any are set.")


async def require_key(request: Request, _: Annotated[object, Depends(_BEARER)]) -> None:
    """Reject callers without a valid API key, if the server has any."""
    api_keys = request.state.api_keys
    if api_keys and not _has_key(request.scope["headers"], api_keys):
        raise HTTPException(
            401, "an API key is required; send the header Authorization: Bearer KEY", _CHALLENGE
        )


async def _find_control(request: Request) -> ControlService:
    service = getattr(request.state.engine, "control", None)
    if not isinstance(service, ControlService):
        raise HTTPException(
            404, "control is not enabled on this server; start it with --control-file"
        )
    return service


async def _find_why(request: Request) -> WhyClient:
    client = getattr(getattr(request.state.engine, "hook", None), "why", None)
    if not isinstance(client, WhyClient):
        raise HTTPException(404, "engine steps are not recorded on this server")
    return client


async def _find_cache(request: Request) -> ResponseCache:
    cached = getattr(request.state.engine, "cache", None)
    if cached is None:
        raise HTTPException(
            404, "the response cache is not enabled on this server; start it with --cache"
        )
    cache: ResponseCache = cached.cache
    return cache


async def _find_tenant(
    request: Request,
    _: Annotated[
        str | None,
        Header(
            alias=HEADER_TENANT,
            description="Show only this tenant's requests; without it, all are shown.",
        ),
    ] = None,
) -> str | None:
    caller = read_headers(request.scope["headers"])
    if HEADER_TENANT in caller.unreadable:
        # Without a tenant, all requests are shown.
        raise HTTPException(400, f"{HEADER_TENANT} cannot be read")
    return caller.tenant


async def _refuse_browsers(request: Request) -> None:
    # Any web page can make a browser send a POST without a body, and a DELETE if the server allows
    # all origins, as vLLM does by default; `Origin` then names the page.
    if "origin" in request.headers:
        raise HTTPException(403, "requests from browser pages are not allowed")


async def _refuse_ambiguous(request: Request) -> None:
    # Of the scope: the URL is put together from headers that the client chose.
    raw = request.scope["query_string"]
    try:
        query = raw.decode("utf-8")
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
    except ValueError as error:
        raise HTTPException(400, f"invalid query: {error}"[:200]) from error
    if len(dict(pairs)) < len(pairs):
        raise HTTPException(400, "a query parameter appears twice")


class _Parameters(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModeChange(_Parameters):
    """The mode to set for a cache route."""

    route: str = Field(description="A route from the cache file, or `*`.")
    mode: Literal["shadow", "serve"] = Field(
        description="`shadow` serves nothing; `serve` restores the mode set in the cache file."
    )


class Deletion(_Parameters):
    """Which cached answers to delete: exactly one selection."""

    tenant: str | None = Field(
        default=None, description="A tenant's; empty for requests without a tenant."
    )
    subject: str | None = Field(
        default=None, description="Of the tenant's answers, those of one end user."
    )
    route: str | None = Field(
        default=None, description="A route's, or those under `*` in the cache file."
    )
    prompt: str | None = Field(
        default=None, description="A prompt's: `name`, or `name@version` for one version."
    )
    knowledge: str | None = Field(
        default=None, description="A source's: `name`, or `name@version` for one version."
    )
    all: Literal["true"] | None = Field(default=None, description="`true` deletes every answer.")

    @model_validator(mode="after")
    def _is_one(self) -> Deletion:
        selected = self.model_dump(exclude={"subject"}, exclude_none=True)
        if len(selected) != 1:
            raise ValueError("expected one of tenant, route, prompt, knowledge, all=true")
        if self.subject is not None and self.tenant is None:
            raise ValueError("subject needs the tenant")
        return self


@dataclass(frozen=True, slots=True)
class ModeChanged:
    """A route's mode now and before the change.

    Attributes:
        route: The route; `*` for all.
        mode: The mode now.
        was: The mode before.
    """

    route: str
    mode: HitMode
    was: HitMode


@dataclass(frozen=True, slots=True)
class Deleted:
    """The answers that were deleted.

    Attributes:
        deleted: How many.
    """

    deleted: int


class _OpenMetrics(Response):
    media_type = open_metrics.MEDIA_TYPE


_open = APIRouter()
_keyed = APIRouter(dependencies=[Depends(require_key)])


@_keyed.get("/control")
async def show_control(service: Annotated[ControlService, Depends(_find_control)]) -> ControlState:
    """Show the current state of control: mode, limits, capacity and waiting requests."""
    return service.describe()


@_keyed.get("/why/{request_id:path}", response_model_exclude_unset=True)
async def explain_request(
    request_id: Annotated[str, Path(description="The response id.")],
    client: Annotated[WhyClient, Depends(_find_why)],
    tenant: Annotated[str | None, Depends(_find_tenant)],
) -> RequestExplanation:
    """Explain where the time of a recent request went; 404 after 1.5 s if it is unknown."""
    try:
        found = await client.ask(request_id[:_MAX_ID_CHARS], tenant)
    except NoAnswerError as error:
        logger.warning("no answer from the exporter process error=%s", error)
        raise HTTPException(503, "the exporter process is not responding; try again") from error
    if found is None:
        raise HTTPException(
            404, f"no finished request {request_id[:_MAX_ID_CHARS]!r} among the recent ones"
        )
    return RequestExplanation(**found)


@_keyed.get(_CACHE_PATH)
async def show_cache(cache: Annotated[ResponseCache, Depends(_find_cache)]) -> CacheState:
    """Show the state of the response cache and its evidence."""
    return await describe(cache)


@_keyed.delete(_CACHE_PATH, dependencies=[Depends(_refuse_browsers), Depends(_refuse_ambiguous)])
async def delete_answers(
    wanted: Annotated[Deletion, Query()], cache: Annotated[ResponseCache, Depends(_find_cache)]
) -> Deleted:
    """Delete the cached answers of a tenant, end user, route, prompt or source, or all of them."""
    try:
        return Deleted(await _delete(cache.deletions, wanted))
    except BackendError as error:
        raise HTTPException(
            503, f"the answers may not have been deleted; try again: {error}"
        ) from error


async def _delete(deletions: Deletions, wanted: Deletion) -> int:
    if wanted.tenant is not None:
        if wanted.subject is not None:
            return await deletions.delete_subject(wanted.tenant, wanted.subject)
        return await deletions.delete_tenant(wanted.tenant)
    if wanted.route is not None:
        return await deletions.flush("route", wanted.route)
    if wanted.prompt is not None:
        return await deletions.flush("prompt", wanted.prompt)
    if wanted.knowledge is not None:
        return await deletions.flush("knowledge", wanted.knowledge)
    return await deletions.flush("all")


@_keyed.post(_CACHE_PATH, dependencies=[Depends(_refuse_browsers), Depends(_refuse_ambiguous)])
async def set_mode(
    wanted: Annotated[ModeChange, Query()], cache: Annotated[ResponseCache, Depends(_find_cache)]
) -> ModeChanged:
    """Put a cache route into shadow mode, or restore the mode set in the cache file."""
    try:
        before, now = cache.modes.set(wanted.route, HitMode(wanted.mode))
    except UnknownRouteError as error:
        raise HTTPException(404, str(error)) from error
    except FixedModeError as error:
        raise HTTPException(409, str(error)) from error
    return ModeChanged(wanted.route, now, before)


@_open.get(METRICS_PATH, response_class=_OpenMetrics)
async def show_metrics() -> Response:
    """Show all metrics as OpenMetrics, with exemplars; for any other `Accept`, vLLM answers."""
    return _OpenMetrics(open_metrics.write_page(REGISTRY))


@_open.get("/v1/evenkeel/openapi.json", include_in_schema=False)
async def show_document(request: Request) -> JSONResponse:
    """Show the OpenAPI document of these pages."""
    return JSONResponse(request.app.openapi())


@_open.get("/v1/evenkeel/docs", include_in_schema=False)
async def show_reference(request: Request) -> HTMLResponse:
    """Show the same document as a page, which needs nothing from elsewhere."""
    page = render_api(request.app.openapi())
    return HTMLResponse(page.html, headers=page.headers)


def make_api() -> FastAPI:
    """Return the app; `make_api().openapi()` returns its document without a server.

    A request's `state` must hold vLLM's `engine` client and the server's `api_keys`.
    """
    content = {_PROBLEM: {"schema": TypeAdapter(Problem).json_schema()}}
    api = FastAPI(
        title="evenkeel runtime",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        responses={"default": {"description": "Refused or failed.", "content": content}},
        generate_unique_id_function=lambda route: route.name,
    )
    api.include_router(_open)
    api.include_router(_keyed)
    api.exception_handler(StarletteHTTPException)(_answer_refusal)
    api.exception_handler(RequestValidationError)(_answer_invalid)
    api.exception_handler(Exception)(_answer_failure)
    return api


def list_paths(api: FastAPI) -> list[str]:
    """Return the paths of the app's pages, with parameters in braces."""
    return [route.path for route in api.routes if isinstance(route, Route)]


async def _answer_refusal(request: Request, error: StarletteHTTPException) -> Response:
    if error.status_code == 405:
        # Starlette reports the methods of the path's first route only.
        methods = _find_methods(request)
        allow = {"allow": ", ".join(("HEAD", "OPTIONS", *methods))}
        return _answer_problem(405, f"expected {' or '.join(methods)}", allow)
    return _answer_problem(error.status_code, error.detail, dict(error.headers or {}))


def _find_methods(request: Request) -> list[str]:
    path = request.scope["path"]
    routes = (route for route in request.app.routes if isinstance(route, Route))
    return [
        method
        for route in routes
        if route.path_regex.match(path)
        for method in sorted(route.methods or ())
    ]


async def _answer_invalid(_: Request, error: RequestValidationError) -> Response:
    first: dict[str, Any] = error.errors()[0]
    given = first["input"]
    value = f" (value {given[:100]!r})" if isinstance(given, str) else ""
    return _answer_problem(400, f"{first['loc'][-1]}: {first['msg']}{value}")


async def _answer_failure(_: Request, error: Exception) -> Response:
    return _answer_problem(500, f"{type(error).__name__}; see the server's log")


def _answer_problem(
    status: int, detail: str, headers: dict[str, str] | None = None
) -> JSONResponse:
    problem = Problem(HTTPStatus(status).phrase, status, detail)
    return JSONResponse(asdict(problem), status, headers, media_type=_PROBLEM)
