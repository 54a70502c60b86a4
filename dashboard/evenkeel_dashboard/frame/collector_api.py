"""Client of the collector's operator API: alerts, silences, corrections, reports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

from evenkeel.errors import CannotMeasureError

TIMEOUT_S = 20.0


class CollectorError(CannotMeasureError):
    """The collector did not answer (status 0), or refused with an HTTP status."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    @property
    def is_refusal(self) -> bool:
        """Whether it does not accept the token; any other answer says nothing about the token."""
        return self.status in (401, 403)


def ask(url: str, name: str, token: str | None, parameters: Mapping[str, str]) -> bytes:
    """Return the collector's answer to a GET of `/api/{name}`.

    Raises:
        CollectorError: If it does not answer, or refuses.
    """
    query = f"?{urlencode(parameters)}" if parameters else ""
    return _send(Request(f"{url}/api/{name}{query}", headers=_headers(token)))


def ask_json(
    url: str, name: str, token: str | None, parameters: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the collector's answer as a JSON object.

    Raises:
        CollectorError: If it does not answer, refuses, or the answer is not a JSON object.
    """
    return _read_object(url, ask(url, name, token, parameters or {}))


def act(url: str, name: str, token: str | None, order: Mapping[str, Any]) -> dict[str, Any]:
    """Run an action at the collector, and return its answer.

    Raises:
        CollectorError: If it does not answer, refuses, or the answer is not a JSON object.
    """
    body = json.dumps(dict(order)).encode()
    headers = {**_headers(token), "content-type": "application/json"}
    request = Request(f"{url}/api/{name}", body, headers)
    return _read_object(url, _send(request))


def _read_object(url: str, answer: bytes) -> dict[str, Any]:
    try:
        found = json.loads(answer)
    except (ValueError, RecursionError) as error:
        raise CollectorError(f"{url} did not answer in JSON: is it a collector?") from error
    if not isinstance(found, dict):
        raise CollectorError(f"{url} did not answer as a collector does: check --collector-url")
    return found


def _headers(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


def _send(request: Request) -> bytes:
    try:
        with urlopen(request, timeout=TIMEOUT_S) as response:
            body: bytes = response.read()
            return body
    except HTTPError as error:
        raise CollectorError(_reason(error), error.code) from error
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise CollectorError(f"no collector answers at {request.full_url}: {reason}") from error


def _reason(error: HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"])
    except (ValueError, RecursionError, KeyError, TypeError, OSError):
        return f"the collector answered {error.code}"
