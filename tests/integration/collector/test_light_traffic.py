"""Requests that come one by one: stored when somebody looks, and not one by one."""

import time
from pathlib import Path

import clickhouse_connect

from tests.fixtures.collector_process import (
    PROTOBUF,
    CollectorProcess,
    figure,
    post,
    running_unread_collector,
    wait_for,
)
from tests.fixtures.otlp_payload import trace_request

REQUEST = {"evenkeel.status": "ok", "gen_ai.request.model": "m"}
ROLLED = "SELECT sum(num_requests) FROM requests_1m"


def send(collector: CollectorProcess) -> None:
    body = trace_request(1, REQUEST).SerializeToString()
    assert post(collector, body, PROTOBUF).status_code == 200


def num_segments(collector: CollectorProcess) -> float:
    return figure(collector, "evenkeel_collector_segments_stored_total")


def test_what_nobody_reads_is_stored_at_once_for_the_first_who_asks(tmp_path: Path) -> None:
    with running_unread_collector(tmp_path) as collector:
        begin_s = time.monotonic()
        for _ in range(4):
            send(collector)
            time.sleep(0.6)
        stored = num_segments(collector)
        assert stored == 0 or time.monotonic() - begin_s > 20, "nobody has asked"
        wait_for(lambda: collector.rows(ROLLED) == [(4,)])
        wait_for(lambda: num_segments(collector) >= 1)
        stored = num_segments(collector)
        assert stored == 1 or time.monotonic() - begin_s > 20, "each was an insert of its own"


def test_a_query_that_asks_for_everything_sees_what_was_sent_just_before(tmp_path: Path) -> None:
    with running_unread_collector(tmp_path) as collector, collector.client() as client:
        usual = clickhouse_connect.get_client(dsn=collector.query_url, database="evenkeel")

        def num_seen() -> int:
            return int(client.query(ROLLED).first_row[0])

        for number in range(1, 6):
            send(collector)
            begin_s = time.monotonic()
            # No reader waits longer than 2 s.
            assert num_seen() == number or time.monotonic() - begin_s > 2
            # A reader waits once for a slow insert, so it must be over before the next.
            wait_for(lambda number=number: num_segments(collector) == number)  # type: ignore[misc]
        send(collector)
        seen = usual.query(ROLLED).first_row[0]
        # Sealed after `begin_s`, the last segment had no rest of 2.1 s.
        assert seen == 5 or time.monotonic() - begin_s > 2.1, "so soon after the last insert"
        usual.close()
