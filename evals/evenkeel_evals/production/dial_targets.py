"""How a live evaluation dials back: by rolling back a prompt label or shadowing a cache route."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import httpx

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel.prompts.promotion import Reversal, roll_back
from evenkeel.prompts.registry import PromptRegistry
from evenkeel.secret_text import hide_password

TIMEOUT_S = 10.0
# A prompt listing contains all texts.
MAX_ANSWER_BYTES = 32 * 1024 * 1024
SHOWN_CHARS = 300


class PromptLabels(Protocol):
    """The labels of a prompt registry, local or remote."""

    def current(self, prompt: str, label: str) -> str | None:
        """Return the version that a label points to; None if there is no such label."""

    def roll_back(self, prompt: str, label: str, reason: str, by: str) -> str:
        """Point a label back at its previous version; return that version."""


class CollectorLabels:
    """A collector's registry, accessed through the operators' API, which writes the audit.

    Args:
        url: The collector's HTTP port.
        token: A token with the scopes query and admin; None if none is required.
    """

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url.rstrip("/")
        self._token = token

    def current(self, prompt: str, label: str) -> str | None:
        """Return the version that a label means.

        Raises:
            CannotMeasureError: If the collector does not answer.
        """
        listing = _ask("GET", f"{self._url}/api/prompts", self._token)
        try:
            labels = {p["name"]: p["labels"] for p in listing["prompts"]}
            found = labels.get(prompt, {}).get(label)
        except (KeyError, TypeError, AttributeError) as error:
            raise _unreadable(self._url, error) from error
        return None if found is None else str(found)

    def roll_back(self, prompt: str, label: str, reason: str, by: str) -> str:
        """Roll a label back.

        Raises:
            CannotMeasureError: If the collector does not roll it back.
        """
        order = {"prompt": prompt, "label": label, "reason": reason, "by": by}
        done = _ask("POST", f"{self._url}/api/rollback", self._token, order)
        try:
            return str(done["is"])
        except (KeyError, TypeError) as error:
            raise _unreadable(self._url, error) from error


class FolderLabels:
    """A registry on this machine; its history records who moved a label, and why.

    Args:
        folder: The registry's folder.
    """

    def __init__(self, folder: Path) -> None:
        self._registry = PromptRegistry(folder)

    def current(self, prompt: str, label: str) -> str | None:
        """Return the version that a label means.

        Raises:
            CannotMeasureError: If the registry is damaged.
        """
        try:
            return self._registry.labels(prompt).get(label)
        except ConfigurationError as error:
            raise CannotMeasureError(str(error)) from error

    def roll_back(self, prompt: str, label: str, reason: str, by: str) -> str:
        """Roll a label back.

        Raises:
            CannotMeasureError: If there is no previous version.
        """
        try:
            moved = roll_back(self._registry, Reversal(prompt, label, by, reason), time.time_ns())
        except ConfigurationError as error:
            raise CannotMeasureError(str(error)) from error
        return moved.version


def put_into_shadow(url: str, route: str, key: str | None) -> str:
    """Stop a runtime's response cache from serving a route; return its previous mode.

    Raises:
        CannotMeasureError: If the runtime does not accept the change.
    """
    address = str(httpx.URL(f"{url}/v1/evenkeel/cache", params={"route": route, "mode": "shadow"}))
    done = _ask("POST", address, key)
    try:
        if done["mode"] != "shadow":
            raise CannotMeasureError(f"{hide_password(url)}: route {route} is {done['mode']!r:.60}")
        return str(done["was"])
    except (KeyError, TypeError) as error:
        raise _unreadable(url, error) from error


def _ask(method: str, url: str, token: str | None, order: Mapping[str, Any] | None = None) -> Any:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    shown = hide_password(url)
    body = b""
    try:
        with (
            httpx.Client(timeout=TIMEOUT_S, trust_env=False) as client,
            client.stream(method, url, json=order, headers=headers) as response,
        ):
            for part in response.iter_bytes():
                body += part
                if len(body) > MAX_ANSWER_BYTES:
                    raise CannotMeasureError(
                        f"{shown} answered with more than {MAX_ANSWER_BYTES:,} bytes"
                    )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        what = str(error) or type(error).__name__
        raise CannotMeasureError(f"{shown} does not answer: {what}") from error
    if response.status_code != 200:
        said = body[:SHOWN_CHARS].decode("utf-8", "replace")
        raise CannotMeasureError(f"{shown} answered HTTP {response.status_code}: {said}")
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _unreadable(url, error) from error


def _unreadable(url: str, error: Exception) -> CannotMeasureError:
    return CannotMeasureError(
        f"{hide_password(url)} gave an answer that cannot be parsed: {error!r:.100}"
    )
