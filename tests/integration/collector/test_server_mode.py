"""The collector in front of a ClickHouse server, also one that goes away under load."""

import io
import threading
import time
from fractions import Fraction
from pathlib import Path

import httpx
import pytest

from evenkeel.slo.model import Indicator, Metric, Slo
from evenkeel_collector.log.segment_format import encode_segment
from evenkeel_collector.store.storage import insert_segment, open_server
from tests.fixtures.clickhouse_server import ClickHouseServer, clickhouse_server
from tests.fixtures.collector_process import running_collector, wait_for
from tests.fixtures.otlp_payload import trace_request
from tests.fixtures.served_model import free_port

PROTOBUF = {"content-type": "application/x-protobuf"}
SPANS_A_REQUEST = 40
COUNTS = (
    "SELECT (SELECT count() FROM spans), (SELECT count() FROM requests),"
    " (SELECT sum(num_requests) FROM requests_1m)"
)


@pytest.fixture
def port() -> int:
    return free_port()


def wait_for_exactly(server: ClickHouseServer, num_spans: int) -> None:
    wait_for(lambda: server.rows(COUNTS) == [(num_spans,) * 3])


def test_what_a_server_has_is_complete_and_single_after_it_was_killed_under_load(
    tmp_path: Path, port: int
) -> None:
    acknowledged = 0
    is_stopping = threading.Event()

    def make_body() -> bytes:
        attributes = {"evenkeel.status": "ok", "gen_ai.request.model": "m"}
        return trace_request(SPANS_A_REQUEST, attributes).SerializeToString()

    def send(url: str) -> None:
        nonlocal acknowledged
        with httpx.Client(timeout=120) as client:
            while not is_stopping.is_set():
                answer = client.post(f"{url}/v1/traces", content=make_body(), headers=PROTOBUF)
                assert answer.status_code == 200
                acknowledged += SPANS_A_REQUEST
                time.sleep(0.005)

    def wait_for_more(num_requests: int) -> None:
        wanted = acknowledged + num_requests * SPANS_A_REQUEST
        wait_for(lambda: acknowledged >= wanted)

    with clickhouse_server(port, tmp_path / "server") as server:
        flags = ["--clickhouse", server.url]
        with running_collector(tmp_path / "data", flags) as collector:
            assert collector.query_url == server.url
            sender = threading.Thread(target=send, args=(collector.http_url,))
            sender.start()
            for num_requests in (40, 15, 25):
                wait_for_more(num_requests)
                server.kill()
                # Senders notice nothing: what they send waits in the log.
                wait_for_more(15)
                server.start()
            is_stopping.set()
            sender.join()
            wait_for_exactly(server, acknowledged)
        assert server.rows("SELECT max(number) FROM schema_migrations")[0][0] >= 31
        # A second collector finds the tables, and a name of its own.
        with running_collector(tmp_path / "other", flags) as collector:
            answer = httpx.post(
                f"{collector.http_url}/v1/traces", content=make_body(), headers=PROTOBUF
            )
            assert answer.status_code == 200
            wait_for_exactly(server, acknowledged + SPANS_A_REQUEST)


def test_a_segment_is_known_again_whatever_became_of_the_server_and_the_views(
    tmp_path: Path, port: int
) -> None:
    body = trace_request(5, {"evenkeel.status": "ok", "gen_ai.request.model": "m"})
    segment = encode_segment("one", 1_795_168_800_000_000_000, [body.SerializeToString()])
    with clickhouse_server(port, tmp_path / "server") as server:
        # Opening makes the views and changes the queries of most.
        storage = open_server(server.url)

        def insert() -> list[tuple[int, ...]]:
            client = storage.connect()
            insert_segment(client, storage.insert_settings, "one", io.BytesIO(segment))
            client.close()
            return server.rows(COUNTS)

        assert insert() == [(5, 5, 5)]
        server.kill()
        server.start()
        assert insert() == [(5, 5, 5)]
        judged = Indicator(Metric.TTFT, 0.5, {"model": "m"})
        slow = Slo("slow", "slow", judged, Fraction(9, 10), Fraction(86_400), ())
        assert storage.rollups.use([slow])
        assert insert() == [(5, 5, 5)]
        # A process that was killed between renaming a view away and back.
        client = storage.connect()
        client.command("RENAME TABLE spans_to_requests TO spans_to_requests__changed")
        client.close()
        storage = open_server(server.url)
        assert insert() == [(5, 5, 5)]
        segment = encode_segment("two", 1_795_168_800_000_000_001, [body.SerializeToString()])
        client = storage.connect()
        insert_segment(client, storage.insert_settings, "two", io.BytesIO(segment))
        client.close()
        assert server.rows(COUNTS) == [(10, 10, 10)]
