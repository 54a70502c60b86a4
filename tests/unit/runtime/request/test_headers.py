"""What callers write in headers, well or badly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel_runtime.request.headers import parse_trace_parent, read_headers
from evenkeel_runtime.wire.caller import Caller, TraceParent

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
PARENT = TraceParent(bytes.fromhex(TRACE), bytes.fromhex(SPAN), 1)


def headers(**pairs: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in pairs.items()]


def test_every_header_is_read() -> None:
    read = read_headers(
        headers(
            x_evenkeel_tenant="acme",
            x_evenkeel_session="s-1",
            x_evenkeel_prompt="support/answer@12",
            x_evenkeel_slo_class="batch",
            x_evenkeel_route="checkout",
            traceparent=f"00-{TRACE}-{SPAN}-01",
            tracestate="a=1",
            accept="*/*",
        )
    )
    assert read == Caller("acme", "s-1", "batch", "checkout", "support/answer", "12", PARENT, "a=1")


def test_a_request_without_our_headers_has_an_unknown_caller() -> None:
    assert read_headers(headers(accept="*/*")) == Caller()


@pytest.mark.parametrize(
    ("pairs", "malformed"),
    [
        pytest.param({"x_evenkeel_tenant": ""}, "x-evenkeel-tenant", id="empty"),
        pytest.param({"x_evenkeel_tenant": "a" * 257}, "x-evenkeel-tenant", id="too long"),
        pytest.param({"x_evenkeel_tenant": "a\tb"}, "x-evenkeel-tenant", id="control character"),
        pytest.param({"x_evenkeel_prompt": "name"}, "x-evenkeel-prompt", id="no version"),
        pytest.param({"x_evenkeel_prompt": "@3"}, "x-evenkeel-prompt", id="no name"),
        pytest.param({"x_evenkeel_prompt": "name@"}, "x-evenkeel-prompt", id="empty version"),
        pytest.param({"traceparent": "x"}, "traceparent", id="not a traceparent"),
    ],
)
def test_a_malformed_header_is_named_and_ignored(pairs: dict[str, str], malformed: str) -> None:
    read = read_headers(headers(**pairs, x_evenkeel_route="kept"))
    assert read == Caller(route="kept", unreadable=(malformed,))


@pytest.mark.parametrize(
    ("second", "knowledge"),
    [
        pytest.param("prices@7", ("docs@1", "prices@7"), id="another source"),
        pytest.param("docs@2", None, id="another version of the same"),
        pytest.param("", None, id="none"),
    ],
)
def test_sources_may_have_a_header_each(second: str, knowledge: tuple[str, ...] | None) -> None:
    name = b"x-evenkeel-knowledge"
    read = read_headers([(name, b"docs@1"), (b"accept", b"*/*"), (name, second.encode())])
    assert read.knowledge == knowledge


@pytest.mark.parametrize(
    ("value", "knowledge"),
    [
        pytest.param("prices@7, docs@2026-11-24", ("docs@2026-11-24", "prices@7"), id="sorted"),
        pytest.param("docs@1,docs@1", ("docs@1",), id="one twice"),
        pytest.param("docs@1, docs@2", None, id="two versions of one"),
        pytest.param("docs", None, id="no version"),
        pytest.param("docs@1,", None, id="an empty item"),
        pytest.param("docs@" + "1" * 300, None, id="too long"),
    ],
)
def test_knowledge_is_sorted_and_unknown_if_it_cannot_be_read(
    value: str, knowledge: tuple[str, ...] | None
) -> None:
    unreadable = ("x-evenkeel-knowledge",) if knowledge is None else ()
    read = read_headers(headers(x_evenkeel_knowledge=value))
    assert read == Caller(knowledge=knowledge, unreadable=unreadable)


@pytest.mark.parametrize(
    ("pairs", "session", "malformed"),
    [
        ({"x_session_id": "a"}, "a", ()),
        ({"x_claude_code_session_id": "a"}, "a", ()),
        ({"session_id": "a"}, "a", ()),
        ({"x_session_affinity": "a"}, "a", ()),
        ({"x_session_affinity": "d", "session_id": "c", "x_session_id": "a"}, "a", ()),
        ({"x_session_id": "a", "x_evenkeel_session": "ours"}, "ours", ()),
        ({"x_session_id": "a" * 10_000}, None, ("x-session-id",)),
        ({"x_session_id": "a" * 10_000, "session_id": "b"}, "b", ("x-session-id",)),
    ],
)
def test_a_session_is_found_in_the_headers_that_agents_send(
    pairs: dict[str, str], session: str | None, malformed: tuple[str, ...]
) -> None:
    read = read_headers(headers(**pairs))
    assert (read.session_id, read.unreadable) == (session, malformed)


def test_bytes_that_are_not_utf8_are_malformed() -> None:
    assert read_headers([(b"x-evenkeel-tenant", b"\xff")]).unreadable == ("x-evenkeel-tenant",)


def test_the_first_of_two_values_counts() -> None:
    twice = [(b"x-evenkeel-tenant", b"a"), (b"x-evenkeel-tenant", b"b")]
    assert read_headers(twice).tenant == "a"


def test_trace_state_may_be_split_and_needs_a_parent() -> None:
    split = [(b"tracestate", b"a=1"), (b"tracestate", b"b=2")]
    parent = (b"traceparent", f"00-{TRACE}-{SPAN}-01".encode())
    assert read_headers([parent, *split]).trace_state == "a=1,b=2"
    assert read_headers(split).trace_state == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(f"00-{TRACE}-{SPAN}-01", PARENT, id="the example of W3C Trace Context"),
        pytest.param(f"cc-{TRACE}-{SPAN}-01-more", PARENT, id="a later version with more"),
        pytest.param(f"00-{TRACE}-{SPAN}-01-more", None, id="version 00 with more"),
        pytest.param(f"ff-{TRACE}-{SPAN}-01", None, id="the forbidden version"),
        pytest.param(f"00-{'0' * 32}-{SPAN}-01", None, id="an empty trace id"),
        pytest.param(f"00-{TRACE}-{'0' * 16}-01", None, id="an empty span id"),
        pytest.param(f"00-{TRACE.upper()}-{SPAN}-01", None, id="upper case"),
        pytest.param(f"00-{TRACE}-{SPAN}-01\n", None, id="a line end"),
    ],
)
def test_trace_parents(value: str, expected: TraceParent | None) -> None:
    assert parse_trace_parent(value) == expected


NAMES = [
    b"x-evenkeel-tenant",
    b"x-evenkeel-session",
    b"x-session-id",
    b"session-id",
    b"x-evenkeel-prompt",
    b"x-evenkeel-slo-class",
    b"x-evenkeel-route",
    b"x-evenkeel-knowledge",
    b"traceparent",
    b"tracestate",
    b"other",
]


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.binary(max_size=600))))
def test_no_header_can_fail_a_request(raw: list[tuple[bytes, bytes]]) -> None:
    caller = read_headers(raw)
    texts = [caller.tenant, caller.session_id, caller.slo_class, caller.route, caller.prompt_name]
    assert all(text is None or 0 < len(text) <= 256 for text in texts)


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=8, max_size=8), st.integers(0, 255))
def test_a_trace_parent_survives_the_header(trace: bytes, span: bytes, flags: int) -> None:
    parsed = parse_trace_parent(f"00-{trace.hex()}-{span.hex()}-{flags:02x}")
    assert parsed == (TraceParent(trace, span, flags) if any(trace) and any(span) else None)
