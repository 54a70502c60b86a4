"""Sessions on the real store: from spans to the rows of `sessions` and `session_turns`."""

import io
import time
import uuid
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from bench.session_replay import generate_all
from bench.session_spans import read_back, send
from evenkeel.store import read_query
from evenkeel_collector.log.segment_format import encode_segment
from evenkeel_collector.store.held_requests import request_columns
from evenkeel_collector.store.storage import Storage, insert_segment
from evenkeel_dashboard.sessions.ledger import account
from evenkeel_dashboard.sessions.work import works_of
from tests.fixtures.otlp_payload import key_values
from tests.queries import query

S = 10**9
BEGIN = (time.time_ns() // S - 7200) * S
TRACE, OTHER_TRACE, UNKNOWN_TRACE = b"1" * 16, b"2" * 16, b"3" * 16


@pytest.fixture
def store(storage: Storage, client: Any) -> "Sessions":
    return Sessions(storage, client)


class Sessions:
    """A store to send spans to, times in seconds since BEGIN."""

    def __init__(self, storage: Storage, client: Any) -> None:
        self._storage, self.client = storage, client
        self._clear()

    def _clear(self) -> None:
        self._body = ExportTraceServiceRequest()
        self._spans = self._body.resource_spans.add().scope_spans.add().spans

    def add(
        self,
        start_s: float,
        end_s: float,
        attributes: dict[str, Any],
        trace: bytes | None = None,
        name: str = "a span",
        kind: int = 3,
        **more: Any,
    ) -> bytes:
        """Add a span, to be sent with the next ones; return its id."""
        span_id = uuid.uuid4().bytes[:8]
        self._spans.add(
            trace_id=uuid.uuid4().bytes if trace is None else trace,
            span_id=span_id,
            name=name,
            kind=kind,
            start_time_unix_nano=BEGIN + round(start_s * S),
            end_time_unix_nano=BEGIN + round(end_s * S),
            attributes=key_values(attributes),
            **more,
        )
        return span_id

    def request(
        self,
        start_s: float,
        end_s: float,
        session: str | None = None,
        source: str | None = None,
        trace: bytes | None = None,
        **more: Any,
    ) -> bytes:
        """Add one of our own requests; a trace means that the caller began it."""
        attributes = {
            "evenkeel.status": "ok",
            "evenkeel.request.id": uuid.uuid4().hex,
            "gen_ai.request.model": "m",
            "evenkeel.e2e_s": end_s - start_s,
            **{f"evenkeel.{key}": value for key, value in more.items()},
        }
        if session is not None:
            attributes["gen_ai.conversation.id"] = session
        if source is not None:
            attributes["evenkeel.session.source"] = source
        if trace is not None:
            attributes["evenkeel.parent_span_id"] = "f" * 16
        return self.add(start_s, end_s, attributes, trace, "chat m")

    def tool(self, start_s: float, end_s: float, trace: bytes, **more: Any) -> bytes:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "grep", **more}
        return self.add(start_s, end_s, attributes, trace, "execute_tool grep")

    def send(self) -> None:
        """Insert what was added, twice with one token, as after a lost acknowledgement."""
        name = uuid.uuid4().hex
        body = self._body.SerializeToString()
        for _ in range(2):
            segment = io.BytesIO(encode_segment("test", time.time_ns(), [body]))
            insert_segment(self.client, self._storage.insert_settings, name, segment)
        # What clients trace waits until it is known to be the only record of its call.
        columns = ", ".join(name for name, _ in request_columns(self.client))
        self.client.command(f"INSERT INTO requests ({columns}) SELECT {columns} FROM held_requests")
        self.client.command("TRUNCATE TABLE held_requests")
        self._clear()

    def rows(self, columns: str = "*") -> list[dict[str, Any]]:
        query = f"SELECT {columns} FROM sessions ORDER BY tenant, session_id"
        return list(self.client.query(query).named_results())

    def turns(self, session: str, tenant: str = "") -> list[dict[str, Any]]:
        query = (
            "SELECT * FROM session_turns(session_id = {session:String}, tenant = {tenant:String})"
            " ORDER BY start"
        )
        parameters = {"session": session, "tenant": tenant}
        return list(self.client.query(query, parameters=parameters).named_results())


def test_a_session_of_turns_and_a_tool_that_has_only_the_trace(store: Sessions) -> None:
    store.request(0, 2, "s", "header", TRACE, queue_s=0.5, prefill_s=0.5, decode_s=0.8)
    store.tool(2, 4.5, TRACE)
    store.send()
    # Late, and in another segment.
    store.request(
        5, 8, "s", "header", TRACE, prefill_s=2.0, decode_s=1.0, **{"prefix.recompute_s": 1.5}
    )
    store.send()
    (row,) = store.rows()
    assert (row["session_id"], row["session_source"]) == ("s", "header")
    assert (row["num_requests"], row["num_tools"], row["num_evicted"]) == (2, 1, 1)
    assert (row["e2e_s"], row["model_s"], row["tool_s"], row["client_s"]) == (8.0, 5.0, 2.5, 0.5)
    assert row["recompute_s"] == 1.5
    assert row["ledger"] == pytest.approx({
        "model.queue": 0.5, "model.prefill": 1.0, "model.recompute": 1.5, "model.decode": 1.8,
        "model.other": 0.2, "tool": 2.5, "client": 0.5,
    })  # fmt: skip
    assert not row["is_open"]
    assert row["last_status"] == "ok"
    found = account(works_of(store.turns("s")))
    assert found is not None
    assert found.seconds["tool.grep"] == pytest.approx(2.5)
    assert found.seconds["model.recompute"] == pytest.approx(1.5)
    assert found.e2e_s == pytest.approx(row["e2e_s"])


def test_time_is_counted_once(store: Sessions) -> None:
    store.request(0, 4, "s", "header", TRACE, decode_s=4.0)
    store.request(1, 5, "s", "header", TRACE, decode_s=4.0)
    store.tool(3, 7, TRACE)
    store.tool(6, 8, TRACE)
    store.send()
    (row,) = store.rows("e2e_s, model_s, tool_s, client_s, ledger")
    assert (row["e2e_s"], row["model_s"], row["tool_s"], row["client_s"]) == (8.0, 5.0, 3.0, 0.0)
    assert sum(row["ledger"].values()) == pytest.approx(8.0)


def test_a_tool_that_its_server_traces_as_well_is_called_once(store: Sessions) -> None:
    store.request(0, 4, "s", "header", TRACE, decode_s=4.0)
    called = store.tool(4, 7, TRACE)
    served = {"gen_ai.operation.name": "execute_tool", "mcp.method.name": "tools/call"}
    store.add(4.5, 6.5, served, TRACE, "tools/call grep", kind=2, parent_span_id=called)
    store.send()
    (row,) = store.rows("num_tools, tool_s")
    assert (row["num_tools"], row["tool_s"]) == (1, 3.0)


def test_a_session_is_found_by_each_of_its_models(store: Sessions) -> None:
    for place, model in enumerate(("haiku", "sonnet")):
        store.add(
            place, place + 1,
            {"evenkeel.status": "ok", "gen_ai.request.model": model, "evenkeel.e2e_s": 1.0,
             "evenkeel.request.id": model, "gen_ai.conversation.id": "agent"},
            name=f"chat {model}",
        )  # fmt: skip
    store.send()
    asked = {
        "from_ms": BEGIN // 10**6 - 60_000, "to_ms": BEGIN // 10**6 + 60_000, "tenant": "",
        "slo_class": "", "route": "", "outcome": "", "order_by": "end", "most": 10, "limit": 10,
        "offset": 0,
    }  # fmt: skip

    def found(model: str) -> list[str]:
        sql = read_query(query("session_keys"))
        (row,) = store.client.query(sql, parameters=asked | {"model": model}).named_results()
        return list(row["session_ids"])

    assert found("") == found("haiku") == found("sonnet") == ["agent"]
    assert found("opus") == []
    # As an earlier version wrote it.
    store.client.command(
        "ALTER TABLE session_parts UPDATE models = [] WHERE 1 SETTINGS mutations_sync = 1"
    )
    assert (found("sonnet"), found("haiku")) == (["agent"], [])


def test_one_id_of_two_tenants_is_two_sessions(store: Sessions) -> None:
    store.request(0, 1, "s", "header", tenant="a")
    store.request(5, 9, "s", "header", tenant="b")
    store.send()
    assert [(row["tenant"], row["e2e_s"]) for row in store.rows()] == [("a", 1.0), ("b", 4.0)]
    assert len(store.turns("s", "a")) == 1
    assert store.turns("s", "c") == []


def test_a_trace_is_in_the_session_that_names_it(store: Sessions) -> None:
    """The application names the session, the server knows only the trace."""
    store.request(0, 2, TRACE.hex(), "trace", TRACE)
    store.add(
        0, 2.5, {"gen_ai.operation.name": "invoke_agent", "session.id": "app"}, TRACE, "agent"
    )
    store.request(0, 1, OTHER_TRACE.hex(), "trace", OTHER_TRACE)
    store.tool(1, 3, OTHER_TRACE)
    store.tool(0, 9, UNKNOWN_TRACE)
    store.send()
    rows = store.rows("session_id, session_source, num_requests, num_tools, num_agents, e2e_s")
    assert [tuple(row.values()) for row in rows] == [
        (OTHER_TRACE.hex(), "trace", 1, 1, 0, 3.0),
        ("app", "attribute", 1, 0, 1, 2.0),
    ]
    assert [turn["kind"] for turn in store.turns("app")] == ["request", "agent"]
    assert [turn["kind"] for turn in store.turns(OTHER_TRACE.hex())] == ["request", "tool"]


def test_what_has_only_a_trace_is_in_one_of_the_sessions_that_name_it(store: Sessions) -> None:
    """A main agent and a sub-agent with a session of its own share a trace."""
    for tenant in ("a", "b"):
        store.request(0, 2, "main", "header", TRACE, tenant=tenant)
        store.request(3, 4, "sub", "header", TRACE, tenant=tenant)
        store.tool(8, 9, TRACE, **{"evenkeel.tenant": tenant})
    store.tool(9, 12, TRACE)
    store.request(12, 14, TRACE.hex(), "trace", TRACE)
    store.send()
    rows = store.rows("tenant, session_id, num_requests, num_tools, e2e_s")
    assert [tuple(row.values()) for row in rows] == [
        ("a", "main", 2, 2, 14.0), ("a", "sub", 1, 0, 1.0),
        ("b", "main", 1, 1, 9.0), ("b", "sub", 1, 0, 1.0),
    ]  # fmt: skip
    for row in rows:
        turns = store.turns(row["session_id"], row["tenant"])
        found = account(works_of(turns))
        assert found is not None
        assert found.e2e_s == pytest.approx(row["e2e_s"])
        kinds = [turn["kind"] for turn in turns]
        assert (kinds.count("request"), kinds.count("tool")) == (
            row["num_requests"], row["num_tools"],
        )  # fmt: skip


def test_another_tenants_trace_joins_nothing(store: Sessions) -> None:
    store.request(0, 2, "s", "header", TRACE, tenant="a")
    store.tool(2, 4, TRACE, **{"evenkeel.tenant": "b"})
    store.send()
    (row,) = store.rows("tenant, num_tools")
    assert tuple(row.values()) == ("a", 0)
    assert len(store.turns("s", "a")) == 1


def test_tools_that_know_their_session_but_no_tenant_are_in_its_only_tenants(
    store: Sessions,
) -> None:
    said = {"gen_ai.conversation.id": "s"}
    store.request(0, 2, "s", "header", TRACE, tenant="a")
    store.tool(2, 4, OTHER_TRACE, **said)
    # Only its trace, which a tool without a tenant names too.
    store.tool(4, 5, OTHER_TRACE)
    # The same of a session of two tenants, and of one with requests of none.
    for tenant in ("a", "b"):
        store.request(0, 1, "two", "header", tenant=tenant)
    store.request(0, 1, "none", "header")
    store.request(0, 1, "none", "header", tenant="a")
    for session in ("two", "none"):
        store.tool(1, 2, UNKNOWN_TRACE, **{"gen_ai.conversation.id": session})
    store.send()
    rows = store.rows("tenant, session_id, num_requests, num_tools, tool_s")
    assert [tuple(row.values()) for row in rows] == [
        ("", "none", 1, 1, 1.0), ("a", "none", 1, 0, 0.0), ("a", "s", 1, 2, 3.0),
        ("a", "two", 1, 0, 0.0), ("b", "two", 1, 0, 0.0),
    ]  # fmt: skip
    assert [turn["kind"] for turn in store.turns("s", "a")] == ["request", "tool", "tool"]
    assert [turn["kind"] for turn in store.turns("two", "a")] == ["request"]
    assert [turn["kind"] for turn in store.turns("none")] == ["request", "tool"]


@pytest.mark.parametrize(
    ("attributes", "session", "source"),
    [
        ({"gen_ai.conversation.id": "x"}, "x", "attribute"),
        ({"session.id": "x"}, "x", "attribute"),
        ({"langfuse.session.id": "x"}, "x", "attribute"),
        ({"traceloop.association.properties.session_id": "x"}, "x", "attribute"),
        ({"traceloop.association.properties.conversation_id": "x"}, "x", "attribute"),
        ({"langsmith.trace.session_id": "x"}, "x", "attribute"),
        ({"mlflow.trace.session": "x"}, "x", "attribute"),
        ({}, TRACE.hex(), "trace"),
    ],
)
def test_requests_of_others(
    store: Sessions, attributes: dict[str, str], session: str, source: str
) -> None:
    client = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", **attributes}
    store.add(0, 2, client, TRACE)
    store.tool(2, 3, TRACE)
    store.send()
    (row,) = store.rows("session_id, session_source, num_requests, num_tools")
    assert tuple(row.values()) == (session, source, 1, 1)
    assert [turn["kind"] for turn in store.turns(session)] == ["request", "tool"]
    sources = store.client.query("SELECT session_source FROM requests").result_rows
    assert sources == [(source,)]


def test_generated_sessions_are_found_whole(storage: Storage, store: Sessions) -> None:
    turns = [
        {"t": 30.0 * at, "in": 5000, "api": 2.0, "think": 20.0, "stop": "tool_use"}
        for at in range(6)
    ]
    turns.insert(3, {"subagent": {"t": 60.0}})
    sessions = list(generate_all([turns], 9))
    true_of = send(storage, store.client, sessions)
    found = read_back(store.client)
    assert found.keys() == true_of.keys()
    pairs = {(number, found[span]) for span, number in true_of.items()}
    assert len(pairs) == len(sessions) == len(set(found.values()))


def test_an_id_of_10_kilobytes_is_replaced_by_its_hash(store: Sessions) -> None:
    client = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
    for start_s in (0, 5):
        store.add(start_s, start_s + 1, {**client, "session.id": "x" * 10_000})
    store.add(0, 1, {**client, "session.id": "x" * 9_999 + "y"})
    store.send()
    rows = store.rows("session_id, num_requests")
    assert sorted(row["num_requests"] for row in rows) == [1, 2]
    assert all(row["session_id"].startswith("long-") for row in rows)


def test_our_own_request_with_a_long_id_is_in_the_session_of_its_tools(store: Sessions) -> None:
    for session in ("x" * 256, "x" * 257):
        store.request(0, 2, session, "header")
        store.tool(2, 4, uuid.uuid4().bytes, **{"gen_ai.conversation.id": session})
    store.send()
    rows = store.rows("session_id, num_requests, num_tools")
    assert [(row["num_requests"], row["num_tools"]) for row in rows] == [(1, 1), (1, 1)]
    assert [len(row["session_id"]) for row in rows] == [len("long-") + 32, 256]


def test_a_session_is_open_until_half_an_hour_has_passed(store: Sessions) -> None:
    now_s = (time.time_ns() - BEGIN) / S
    # The view `sessions` ends a session after this long.
    open_s = 1800
    store.request(now_s - open_s - 30, now_s - open_s - 20, "over", "header")
    store.request(now_s - open_s + 290, now_s - open_s + 300, "open", "header")
    store.send()
    found = {row["session_id"]: bool(row["is_open"]) for row in store.rows()}
    assert found == {"over": False, "open": True}


def test_requests_without_a_session_are_in_none(store: Sessions) -> None:
    store.request(0, 1)
    store.send()
    assert store.rows() == []
    assert store.client.query("SELECT session_source FROM requests").result_rows == [(None,)]
