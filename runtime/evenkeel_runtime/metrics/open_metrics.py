"""`GET /metrics` as OpenMetrics for clients that ask for it: with exemplars that lead to traces.

vLLM's own page is always in Prometheus' text format, which has no exemplars.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest

MEDIA_TYPE = CONTENT_TYPE_LATEST
_ASKED_FOR = "application/openmetrics-text"


def write_page(registry: CollectorRegistry) -> bytes:
    """Return all metrics in OpenMetrics' format, their names as they are.

    prometheus_client's default for names, "underscores", also takes the colon of `vllm:` for a
    character that OpenMetrics does not allow, in samples but not in their TYPE lines.
    """
    write: Any = generate_latest
    if "escaping" not in inspect.signature(write).parameters:
        page: bytes = write(registry)
    else:
        page = write(registry, escaping="allow-utf-8")
    return page


def is_accepted(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the headers of a connection ask for OpenMetrics' format."""
    return any(
        name == b"accept" and _ASKED_FOR in value.decode("latin-1") for name, value in headers
    )
