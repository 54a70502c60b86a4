"""The waterfall's rows: indented, repeated siblings in one, each call's tokens once."""

import pytest

from evenkeel_dashboard.draw.appearance import LIGHT
from evenkeel_dashboard.pages.request.span_kinds import SpanKind, kind_of
from evenkeel_dashboard.pages.request.trace_axis import axis_of
from evenkeel_dashboard.pages.request.trace_calls import gap_words, views_of
from evenkeel_dashboard.pages.request.trace_tree import build_trace
from evenkeel_dashboard.pages.request.waterfall import (
    Amounts,
    cost_words,
    folded,
    lay_out,
    shown_data,
    summary,
    title_of,
    tokens_words,
)
from tests.unit.dashboard.pages.trace_spans import span

OUR_STATUS = {"evenkeel.status": "ok"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "support"}


@pytest.mark.parametrize(
    ("name", "attributes", "kind"),
    [
        ("chat support", {**OUR_STATUS, "gen_ai.operation.name": "chat"}, SpanKind.MODEL),
        ("evenkeel.queue", {}, SpanKind.PHASE),
        ("evenkeel.compression", {}, SpanKind.PREPARATION),
        ("ChatCompletion", {"openinference.span.kind": "LLM"}, SpanKind.MODEL),
        ("search", {"openinference.span.kind": "RETRIEVER"}, SpanKind.RETRIEVAL),
        ("prompt", {"openinference.span.kind": "PROMPT"}, SpanKind.TEMPLATE),
        ("ask.workflow", {"traceloop.span.kind": "workflow"}, SpanKind.APPLICATION),
        ("openai.chat", {"llm.request.type": "chat"}, SpanKind.MODEL),
        ("invoke_agent helper", {"gen_ai.operation.name": "invoke_agent"}, SpanKind.AGENT),
        ("execute_tool add", {"gen_ai.operation.name": "execute_tool"}, SpanKind.TOOL),
        ("embeddings e", {"gen_ai.operation.name": "embeddings"}, SpanKind.EMBEDDING),
        ("tools/call add", {"mcp.method.name": "tools/call"}, SpanKind.TOOL),
        ("initialize", {"mcp.method.name": "initialize", "rpc.system": "jsonrpc"}, SpanKind.MCP),
        ("query", {"db.system": "chroma"}, SpanKind.RETRIEVAL),
        ("SELECT", {"db.system.name": "postgresql"}, SpanKind.DATABASE),
        ("POST", {"http.request.method": "POST"}, SpanKind.HTTP),
        ("POST", {"http.method": "POST"}, SpanKind.HTTP),
        ("llm_request", {"gen_ai.latency.e2e": "1.5"}, SpanKind.MODEL),
        (
            "Received Proxy Server Request",
            {"gen_ai.operation.name": "acompletion", "llm.request.type": "acompletion"},
            SpanKind.MODEL,
        ),
        ("ai.streamText.doStream", {"ai.operationId": "ai.streamText.doStream"}, SpanKind.MODEL),
        ("odd", {"gen_ai.operation.name": "something new"}, SpanKind.OTHER),
        ("work", {}, SpanKind.OTHER),
    ],
)
def test_kinds_are_recognised_whoever_names_them(
    name: str, attributes: dict[str, str], kind: SpanKind
) -> None:
    assert kind_of(name, attributes) is kind


def request_row(span_id: str, **fields: object) -> dict[str, object]:
    return {"span_id": span_id, "input_tokens": 100, "output_tokens": 20} | fields


AGENT = [
    span("app", duration=100, name="ask", attributes={"traceloop.span.kind": "workflow"}),
    *(
        span(f"r{i}", "app", i, 1, "retrieve", attributes={"openinference.span.kind": "RETRIEVER"},
             error="timeout" if i == 3 else "")
        for i in range(7)
    ),
    span("call", "app", 20, 60, "chat", role="Client", attributes={**CHAT,
        "gen_ai.usage.input_tokens": "100", "gen_ai.usage.output_tokens": "20",
        "gen_ai.usage.cost": "0.5"}),
    span("post", "call", 21, 58, "POST", role="Client", attributes={"http.method": "POST"}),
    span("served", "post", 25, 50, "chat support", "model", "Server",
         {**CHAT, **OUR_STATUS, "gen_ai.usage.input_tokens": "100"}),
    span("queue", "served", 25, 10, "evenkeel.queue", "model"),
]  # fmt: skip


def test_repeated_siblings_are_one_row_that_opens() -> None:
    rows = lay_out(build_trace(AGENT), [request_row("served")])
    assert [(row.depth, row.size, title_of(row)) for row in rows][:4] == [
        (0, 12, "ask"), (1, 7, "retrieve ×7"), (2, 0, "retrieve"), (2, 0, "retrieve"),
    ]  # fmt: skip
    assert [title_of(row) for row in rows[9:]] == [
        "chat support", "POST", "chat support", "evenkeel.queue",
    ]  # fmt: skip
    group = rows[1]
    assert (group.busy_ns, group.end_ns - group.start_ns) == (7_000_000, 7_000_000)
    assert group.error == "1 failed: timeout"
    assert folded(rows, set()) == [1]
    # The way to a wanted span is open.
    assert folded(rows, {"r3"}) == []


def test_a_calls_tokens_and_cost_count_once() -> None:
    trace = build_trace(AGENT)
    counted = [request_row("served", cost=0.25, currency="EUR")]
    rows = {row.node.id: row for row in lay_out(trace, counted) if row.repeated == 1}
    assert rows["served"].is_request
    assert not rows["served"].is_view
    assert rows["call"].is_view
    assert tokens_words(rows["call"].amounts) == "100 → 20"
    assert cost_words(rows["served"].amounts) == "0.25 EUR"
    said = summary(trace, counted)
    assert said == "12 spans, 2 services, 1 request, 100 → 20 tokens, 0.25 EUR, 1 failed"
    # A store without prices has no cost.
    assert "0.25" not in summary(trace, [request_row("served")])
    assert summary(trace, [request_row("served", cost=None)]).count("tokens") == 1


def test_costs_in_different_currencies_are_not_added() -> None:
    both = Amounts(1, None, 1.0, "EUR").plus(Amounts(1, None, 2.0, "USD"))
    assert both.cost is None
    assert both.input_tokens == 2
    assert both.plus(Amounts(1, None, 3.0, "EUR")).cost is None, "not the last one's alone"


def test_a_trace_says_of_how_many_requests_its_cost_is() -> None:
    priced, unpriced = request_row("a", cost=0.25, currency="EUR"), request_row("b", cost=None)
    trace = build_trace(AGENT)
    assert "0.25 EUR for the 1 with a price" in summary(trace, [priced, unpriced])
    assert "price" not in summary(trace, [priced])


def test_the_three_times_of_a_call_are_shown_and_the_time_between_them_is_named() -> None:
    trace = build_trace([
        span("c", "", 0, 100, "chat", "app", "Client", CHAT),
        span("h", "c", 1, 98, "POST", "app", "Client", {"http.method": "POST"}),
        span("g", "h", 20, 62, "POST /v1", "gate", "Server", {"http.method": "POST"}),
        span("o", "g", 22, 55, "POST", "gate", "Client", {"http.method": "POST"}),
        span("s", "o", 25, 50, "chat support", "model", "Server", {**CHAT, **OUR_STATUS}),
    ])  # fmt: skip
    views = views_of(trace.nodes(), "s", {"s"})
    assert [(v.who, v.node.id, v.is_counted) for v in views] == [
        ("client", "c", False), ("gateway", "g", False), ("server", "s", True),
    ]  # fmt: skip
    assert gap_words(views) == ["network and client: 38 ms", "gateway: 12 ms"]


def test_nested_instrumentations_of_one_call_are_views_of_it() -> None:
    trace = build_trace([
        span("oi", "", 0, 100, "ChatOpenAI", attributes={"openinference.span.kind": "LLM"}),
        span("ol", "oi", 1, 90, "openai.chat", role="Client",
             attributes={"llm.request.type": "chat"}),
    ])  # fmt: skip
    views = views_of(trace.nodes(), "oi", {"ol"})
    assert [(v.who, v.node.id, v.is_counted) for v in views] == [
        ("client", "oi", False), ("client", "ol", True),
    ]  # fmt: skip
    assert gap_words(views) == ["client's own code: 10 ms"]


@pytest.mark.parametrize(
    "spans",
    [
        pytest.param([span("s", role="Server", attributes=OUR_STATUS)], id="traced once"),
        pytest.param([span("a", duration=9, attributes={"openinference.span.kind": "AGENT"}),
            span("s", "a", attributes=OUR_STATUS, role="Server")], id="an agent above it"),
        pytest.param([span("a", duration=9, name="POST /ask", role="Server",
            attributes={"http.method": "POST"}),
            span("s", "a", attributes=OUR_STATUS, role="Server", service="model")],
            id="the application's own endpoint"),
        pytest.param([span("t", duration=9), span("x", "t")], id="not in the trace"),
    ],
)  # fmt: skip
def test_what_is_above_a_call_is_no_view_of_it(spans: list[dict[str, object]]) -> None:
    assert len(views_of(build_trace(spans).nodes(), "s", {"s"})) <= 1


def test_a_long_trace_opens_on_its_first_levels_and_the_way_to_the_request() -> None:
    spans = [span("r", duration=5000)]
    for i in range(900):
        spans.append(span(f"a{i}", "r", i, name=f"step {i}"))
        spans.append(span(f"b{i}", f"a{i}", i, name="x"))
        spans.append(span(f"c{i}", f"b{i}", i, name="y"))
    trace = build_trace(spans)
    rows = lay_out(trace, [])
    assert len(rows) == 2701
    closed = folded(rows, {"c7"})
    assert len(closed) == 899
    data = shown_data(
        axis_of(trace.nodes(), set()), rows, LIGHT, {"c7"}, {"before": "b", "after": "a"}
    )
    assert data["rows"][0][:2] == [0, 2700]
    assert all(0 <= row[5] <= 1 for row in data["rows"])


def test_of_repeated_siblings_only_the_wanted_one_is_open() -> None:
    spans = [span("r", duration=900)]
    for i in range(90):
        spans.append(span(f"a{i}", "r", i, name="turn"))
        spans.append(span(f"b{i}", f"a{i}", i, name="call"))
    rows = lay_out(build_trace(spans), [])
    closed = folded(rows, {"b7"})
    opened = {row.node.id for place, row in enumerate(rows) if row.size and place not in closed}
    assert opened == {"r", "a0", "a7"}  # a0 names the group, too
    assert len(closed) == 89


def test_a_chain_of_thousands_is_laid_out() -> None:
    spans = [span(str(i), str(i - 1) if i else "", i) for i in range(5000)]
    rows = lay_out(build_trace(spans), [])
    assert (rows[0].size, rows[-1].depth) == (4999, 4999)
