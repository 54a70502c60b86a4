"""Generated sessions as the spans that reach a collector, and the sessions found of them.

Nobody sends our header. Each case has a third of the sessions, by their number:

- attribute: an application's own spans. Each turn and the tools after it are a trace, and its
  request names the session with one of seven attributes. Every second tool and agent names it too,
  the others have only their turn's trace.
- trace: the same spans, nobody names anything, one trace for all of the session.
- served: requests in our server, named by an agent's header; tools and agents are the agent's
  spans, in the turn's trace, which alone ties them to it.

A sub-agent's requests and tools are in the trace of the turn that called it.
"""

import io
import time
import uuid
from collections.abc import Sequence
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.session_replay import Session
from evenkeel_collector.log.segment_format import encode_segment
from evenkeel_collector.store.held_requests import request_columns
from evenkeel_collector.store.storage import Storage, insert_segment
from evenkeel_dashboard.sessions.work import Work, WorkKind
from tests.fixtures.otlp_payload import key_values

CASES = ("attribute", "trace", "served")
ATTRIBUTES = (
    "gen_ai.conversation.id", "session.id", "langfuse.session.id",
    "traceloop.association.properties.session_id", "langsmith.trace.session_id",
    "langsmith.metadata.session_id", "mlflow.trace.session",
)  # fmt: skip
_SESSIONS_IN_A_SEGMENT = 20


def case_of(session: Session) -> str:
    """Return how the session can be found."""
    return CASES[session.number % len(CASES)]


def send(storage: Storage, client: Any, sessions: Sequence[Session]) -> dict[str, int]:
    """Insert the sessions' spans; return the true session of each span."""
    true_of: dict[str, int] = {}
    # Nothing ends in the future.
    last_ns = max(work.end_ns for session in sessions for work in session.works)
    shift_ns = time.time_ns() - last_ns - 3_600_000_000_000
    for first in range(0, len(sessions), _SESSIONS_IN_A_SEGMENT):
        body = ExportTraceServiceRequest()
        spans = body.resource_spans.add().scope_spans.add().spans
        for session in sessions[first : first + _SESSIONS_IN_A_SEGMENT]:
            _add(spans, session, shift_ns, true_of)
        segment = io.BytesIO(encode_segment("bench", time.time_ns(), [body.SerializeToString()]))
        insert_segment(client, storage.insert_settings, uuid.uuid4().hex, segment)
    # What clients trace waits until it is known to be the only record of its call.
    columns = ", ".join(name for name, _ in request_columns(client))
    client.command(f"INSERT INTO requests ({columns}) SELECT {columns} FROM held_requests")
    client.command("TRUNCATE TABLE held_requests")
    return true_of


def _add(spans: Any, session: Session, shift_ns: int, true_of: dict[str, int]) -> None:
    case, name = case_of(session), f"session-{session.number}"
    key = ATTRIBUTES[session.number // len(CASES) % len(ATTRIBUTES)]
    trace = uuid.uuid4().bytes
    ordered = sorted(session.works, key=lambda work: work.start_ns)
    for place, work in enumerate(ordered):
        is_request = work.kind is WorkKind.REQUEST
        if is_request and not work.parent_id and case != "trace":
            trace = uuid.uuid4().bytes
        attributes = _served(work, name) if is_request and case == "served" else _traced(work)
        if case == "attribute" and (is_request or place % 2):
            attributes[key] = name
        spans.add(
            trace_id=trace,
            span_id=bytes.fromhex(work.id),
            parent_span_id=bytes.fromhex(work.parent_id),
            name=work.name,
            kind=3,
            start_time_unix_nano=work.start_ns + shift_ns,
            end_time_unix_nano=work.end_ns + shift_ns,
            attributes=key_values(attributes),
        )
        true_of[work.id] = session.number


def _served(work: Work, session: str) -> dict[str, Any]:
    return {
        "evenkeel.status": "ok",
        "evenkeel.request.id": work.request_id,
        "evenkeel.e2e_s": work.seconds,
        "evenkeel.session.source": "header",
        "evenkeel.parent_span_id": "f" * 16,
        "gen_ai.request.model": work.name,
        "gen_ai.conversation.id": session,
    }


def _traced(work: Work) -> dict[str, Any]:
    if work.kind is WorkKind.REQUEST:
        return {"gen_ai.operation.name": "chat", "gen_ai.request.model": work.name}
    if work.kind is WorkKind.TOOL:
        return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": work.name}
    return {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": work.name}


def read_back(client: Any) -> dict[str, str]:
    """Return the session of each span that is in one, as the views list them."""
    keys = client.query("SELECT tenant, session_id FROM sessions").result_rows
    found: dict[str, str] = {}
    query = (
        "SELECT span_id FROM session_turns(session_id = {session:String}, tenant = {tenant:String})"
    )
    for tenant, session in keys:
        parameters = {"session": session, "tenant": tenant}
        for (span,) in client.query(query, parameters=parameters).result_rows:
            # A span in two sessions is in neither.
            found[span] = "" if span in found else session
    return {span: session for span, session in found.items() if session}
