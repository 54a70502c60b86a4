"""Facts about the bad sessions of an SLO: how many there were, and which were the worst."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from evenkeel.slo.model import SESSIONS, Metric, Slo
from evenkeel.slo.query import Span, session_parameters, slo_parts
from evenkeel_collector.slo.store import SloStore

EXEMPLARS = Path(__file__).parent / "slo_session_exemplars.sql"
_MOST_EXEMPLARS = 3


def session_facts(
    slo: Slo, span: Span, store: SloStore, dashboard_url: str | None
) -> Iterator[tuple[str, str | None]]:
    """Yield facts by key.

    Raises:
        StoreError: If the store is unavailable or rejects a query.
    """
    parts = [part for part in slo_parts(slo) if part.indicator.metric in SESSIONS]
    rows = store.read(EXEMPLARS, {**session_parameters(parts, span), "limit_rows": _MOST_EXEMPLARS})
    if rows:
        yield "bad_sessions", f"{rows[0]['num_bad']:g} of {rows[0]['num_events']:g}"
    bad = [row for row in rows if row["bad"]]
    yield "example_sessions", "\n".join(_exemplar(row, dashboard_url) for row in bad)


def _exemplar(row: Mapping[str, Any], dashboard_url: str | None) -> str:
    text = f"{row['session_id']} ({session_words(row)})"
    if dashboard_url is None:
        return text
    query = {"session_id": row["session_id"], "of": row["tenant"]}
    return f"{text} {dashboard_url.rstrip('/')}/sessions?{urlencode(query)}"


def session_words(row: Mapping[str, Any]) -> str:
    """Return how a session went, such as `ok, 95.2 s, 12 turns, 4 tools`."""
    facts = [row["last_status"]]
    if row["metric"] == Metric.SESSION_E2E:
        facts.append(f"{row['value']:.1f} s")
    facts += [f"{row['num_requests']} turns", f"{row['num_tools']} tools"]
    if row["num_evicted"]:
        facts.append(f"{row['num_evicted']} with a recomputed prefix")
    return ", ".join(facts)
