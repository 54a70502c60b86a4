"""The HTTP application: Streamlit, its start pages, and the sign-in cookie.

Streamlit finds `app` in this file, and runs it (`evenkeel dashboard`).
"""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from streamlit.starlette import App

from evenkeel_dashboard.frame.sign_in_cookie import LASTS_S
from evenkeel_dashboard.frame.signing_in import sessions
from evenkeel_dashboard.frame.start_page import start_page
from evenkeel_dashboard.pages import PAGES, Page

_LONGEST_TICKET = 200


def _start(page: Page) -> Route:
    body = start_page(page.title, page.path)

    async def show(_request: Request) -> Response:
        return HTMLResponse(body, headers={"cache-control": "no-cache"})

    return Route(f"/{page.path}", show, methods=["GET", "HEAD"])


async def _keep_signed_in(request: Request) -> Response:
    """Exchange a ticket for the cookie that keeps the browser signed in."""
    ticket = b""
    async for chunk in request.stream():
        ticket += chunk
        if len(ticket) > _LONGEST_TICKET:
            return Response(status_code=413)
    value = sessions().redeem(ticket.decode("ascii", "replace"))
    if value is None:
        return Response(status_code=403)
    answer = Response(status_code=204)
    answer.set_cookie(
        sessions().cookie,
        value,
        max_age=LASTS_S,
        httponly=True,
        samesite="strict",
        secure="https" in (request.url.scheme, request.headers.get("x-forwarded-proto")),
    )
    return answer


app = App(
    Path(__file__).with_name("app.py"),
    routes=[
        *(_start(page) for page in PAGES),
        Route("/session", _keep_signed_in, methods=["POST"]),
    ],
)
