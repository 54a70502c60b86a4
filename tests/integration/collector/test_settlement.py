"""Settling clients' requests on the real store: errors in the middle, late servers, tenants."""

import io
import time
import uuid
from typing import Any

import pytest
from clickhouse_connect.driver.exceptions import ClickHouseError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel_collector.log.segment_format import encode_segment
from evenkeel_collector.store.call_settlement import CallSettlement
from evenkeel_collector.store.settler import Settler
from evenkeel_collector.store.storage import Storage, insert_segment
from evenkeel_collector.telemetry.metrics import SelfMetrics
from tests.fixtures.otlp_payload import key_values

S = 10**9
SUMS = (
    "SELECT sum(num_requests), sum(num_ok), sum(input_tokens), sum(output_tokens), sum(cost)"
    " FROM requests_"
)
CLIENT = {
    "gen_ai.operation.name": "chat", "gen_ai.request.model": "support",
    "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20, "llm.cost.total": 0.25,
    "gen_ai.conversation.id": "s",
}  # fmt: skip
SERVER = {
    "evenkeel.status": "ok", "gen_ai.request.model": "support", "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 20, "gen_ai.conversation.id": "s",
}  # fmt: skip


def settler(storage: Storage, hold_s: float = 0.0) -> Settler:
    return Settler(storage, SelfMetrics(), hold_s)


def send(
    storage: Storage, client: Any, attributes: dict[str, Any], trace: str,
    span: bytes = b"c" * 8, parent: bytes = b"", ago_s: float = 60,
) -> None:  # fmt: skip
    """Store a span, as its log segment would be."""
    body = ExportTraceServiceRequest()
    begin_ns = int((time.time() - ago_s) * S)
    body.resource_spans.add().scope_spans.add().spans.add(
        trace_id=trace.encode().ljust(16, b"."), span_id=span, parent_span_id=parent, kind=3,
        name="chat", start_time_unix_nano=begin_ns, end_time_unix_nano=begin_ns + S,
        attributes=key_values(attributes),
    )  # fmt: skip
    segment = encode_segment("test", time.time_ns(), [body.SerializeToString()])
    insert_segment(client, storage.insert_settings, uuid.uuid4().hex, io.BytesIO(segment))


def counted(client: Any) -> list[tuple[str, str]]:
    rows = client.query("SELECT unhex(trace_id), source FROM requests ORDER BY ALL").result_rows
    return [(trace.rstrip("."), source) for trace, source in rows]


def sums(client: Any, width: str = "1m") -> tuple[float, ...]:
    return tuple(client.query(SUMS + width).first_row)


def test_what_the_store_refused_to_count_is_counted_by_the_next_try(
    storage: Storage, client: Any
) -> None:
    settling = settler(storage)
    send(storage, client, CLIENT, "refused")
    client.command("ALTER TABLE requests ADD CONSTRAINT nothing CHECK model = ''")
    with pytest.raises(ClickHouseError):
        settling.settle(client)
    client.command("ALTER TABLE requests DROP CONSTRAINT nothing")
    send(storage, client, CLIENT, "next")
    for _ in range(2):
        settling.settle(client)
    assert counted(client) == [("next", "gen_ai"), ("refused", "gen_ai")]
    assert sums(client) == (2, 2, 200, 40, 0.5)


def test_what_another_collector_left_unfinished_is_counted_once(
    storage: Storage, client: Any
) -> None:
    send(storage, client, CLIENT, "left")
    client.command("ALTER TABLE requests ADD CONSTRAINT nothing CHECK model = ''")
    with pytest.raises(ClickHouseError):
        settler(storage).settle(client)
    client.command("ALTER TABLE requests DROP CONSTRAINT nothing")
    for trace in ("left", "more"):
        if trace == "more":
            send(storage, client, CLIENT, trace)
        settler(storage).settle(client)
    assert counted(client) == [("left", "gen_ai"), ("more", "gen_ai")]
    assert sums(client, "1h") == (2, 2, 200, 40, 0.5)


@pytest.mark.parametrize("has_trace", [True, False], ids=["by its trace", "by its answer's id"])
def test_a_servers_record_that_comes_after_the_hold_replaces_the_clients(
    storage: Storage, client: Any, has_trace: bool
) -> None:
    send(storage, client, CLIENT | {"gen_ai.response.id": "chatcmpl-late"}, "late")
    settler(storage).settle(client)
    assert counted(client) == [("late", "gen_ai")]
    served = SERVER | {"evenkeel.request.id": "r" if has_trace else "chatcmpl-late"}
    trace = "late" if has_trace else "other"
    send(storage, client, served, trace, b"s" * 8, b"c" * 8 if has_trace else b"")
    # A call that is alone stays.
    send(storage, client, CLIENT, "alone")
    for _ in range(2):
        settler(storage).settle(client)
    assert counted(client) == sorted([("alone", "gen_ai"), (trace, "evenkeel")])
    for width in ("1m", "1h"):
        assert sums(client, width) == (2, 2, 200, 40, 0.25)
    columns = "num_requests, num_ok, input_tokens, output_tokens, cost"
    session = client.query(f"SELECT {columns} FROM sessions WHERE session_id = 's'").result_rows
    assert [tuple(row) for row in session] == [(2, 2, 200, 40, 0.25)]


def test_a_withdrawal_that_was_cut_off_is_finished_once(storage: Storage, client: Any) -> None:
    send(storage, client, CLIENT, "cut")
    settler(storage).settle(client)
    send(storage, client, SERVER | {"evenkeel.request.id": "r"}, "cut", b"s" * 8, b"c" * 8)
    client.command("ALTER TABLE session_parts ADD CONSTRAINT nothing CHECK kind = ''")
    with pytest.raises(ClickHouseError):
        settler(storage).settle(client)
    client.command("ALTER TABLE session_parts DROP CONSTRAINT nothing")
    for _ in range(2):
        settler(storage).settle(client)
    assert counted(client) == [("cut", "evenkeel")]
    assert sums(client) == (1, 1, 100, 20, 0)


def test_an_answers_id_of_another_tenant_changes_nothing(storage: Storage, client: Any) -> None:
    mine = {"gen_ai.response.id": "1", "evenkeel.tenant": "acme"}
    send(storage, client, CLIENT | mine, "mine")
    served = {"evenkeel.request.id": "1", "evenkeel.tenant": "other"}
    send(storage, client, SERVER | served, "theirs", b"s" * 8)
    for _ in range(2):
        settler(storage).settle(client)
    assert counted(client) == [("mine", "gen_ai"), ("theirs", "evenkeel")]


def test_an_old_record_is_settled_by_the_records_of_its_time(storage: Storage, client: Any) -> None:
    send(storage, client, CLIENT, "old", ago_s=40 * 86_400)
    served = SERVER | {"evenkeel.request.id": "r"}
    send(storage, client, served, "old", b"s" * 8, b"c" * 8, ago_s=40 * 86_400 - 200)
    settler(storage).settle(client)
    assert counted(client) == [("old", "evenkeel")]


@pytest.mark.parametrize("comes_first", [True, False], ids=["before", "after"])
def test_another_tenants_spans_of_the_same_trace_take_no_request(
    storage: Storage, client: Any, comes_first: bool
) -> None:
    def mine() -> None:
        for span in (b"c" * 8, b"d" * 8):
            send(storage, client, CLIENT | {"evenkeel.tenant": "acme"}, "shared", span)

    def theirs() -> None:
        other = {"evenkeel.tenant": "other"}
        send(storage, client, SERVER | other | {"evenkeel.request.id": "r"}, "shared", b"c" * 8)
        send(storage, client, CLIENT | other, "shared", b"c" * 8)
        send(storage, client, other, "shared", b"d" * 8, b"c" * 8)

    for sending in (theirs, mine) if comes_first else (mine, theirs):
        sending()
        settler(storage).settle(client)
    settler(storage).settle(client)
    rows = "SELECT ifNull(tenant, ''), span_id FROM requests ORDER BY ALL"
    found = client.query(rows).result_rows
    assert [tuple(row) for row in found] == [
        ("acme", "63" * 8), ("acme", "64" * 8), ("other", "63" * 8),
    ]  # fmt: skip
    for width in ("1m", "1h"):
        (num,) = client.query(
            f"SELECT sum(num_requests) FROM requests_{width} WHERE tenant = 'acme'"
        ).first_row
        assert num == 2


def test_what_an_earlier_version_decided_is_not_counted_again(
    storage: Storage, client: Any
) -> None:
    send(storage, client, CLIENT | {"evenkeel.tenant": "acme"}, "old")
    settler(storage).settle(client)
    client.command(
        "ALTER TABLE settled_requests UPDATE tenant = NULL WHERE 1 SETTINGS mutations_sync = 1"
    )
    settler(storage).settle(client)
    assert counted(client) == [("old", "gen_ai")]
    assert sums(client) == (1, 1, 100, 20, 0.25)
    # It is still taken back if the server's record comes.
    served = SERVER | {"evenkeel.request.id": "r", "evenkeel.tenant": "acme"}
    send(storage, client, served, "old", b"s" * 8, b"c" * 8)
    for _ in range(2):
        settler(storage).settle(client)
    assert counted(client) == [("old", "evenkeel")]
    assert sums(client) == (1, 1, 100, 20, 0)


@pytest.mark.parametrize("server_ago_s", [3 * 3600, 60 - 3 * 3600], ids=["behind", "ahead"])
def test_clocks_that_are_hours_apart_make_no_second_request(
    storage: Storage, client: Any, server_ago_s: float
) -> None:
    send(storage, client, CLIENT, "clocks")
    served = SERVER | {"evenkeel.request.id": "r"}
    send(storage, client, served, "clocks", b"s" * 8, b"c" * 8, ago_s=server_ago_s)
    settler(storage).settle(client)
    assert counted(client) == [("clocks", "evenkeel")]


def test_the_end_settles_what_is_held_in_batches(
    storage: Storage, client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evenkeel_collector.store.settler.MAX_BATCH", 2)
    # What a busy machine does not settle within seconds, the next start would.
    for limit in ("REST_S", "IN_HAND_S"):
        monkeypatch.setattr(f"evenkeel_collector.store.call_settlement.{limit}", 300.0)
    metrics = SelfMetrics()
    settlement = CallSettlement(storage, metrics, hold_s=3600)
    for number in range(5):
        send(storage, client, CLIENT, f"held{number}", b"client-%d" % number)
        metrics.segments_stored.inc()
    settlement.close()
    assert [trace for trace, _ in counted(client)] == [f"held{number}" for number in range(5)]
