"""Segments that a store with little memory, or with refused data in them, cannot take at once."""

from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
from clickhouse_connect.driver.exceptions import DatabaseError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evenkeel_collector.log.segment_format import read_bodies
from evenkeel_collector.log.write_ahead_log import WriteAheadLog
from evenkeel_collector.store import inserter
from evenkeel_collector.store.inserter import Inserter
from evenkeel_collector.store.rollups import InsertGate
from evenkeel_collector.telemetry.metrics import SelfMetrics
from tests.fixtures.otlp_payload import trace_request

CHECK_COPY = "evenkeel_check."


class SmallStore:
    """A store that has memory for so many spans at once, and refuses some by their names."""

    def __init__(self, room: int, refused: str = "", *, has_copy: bool = True) -> None:
        self.room = room
        self.stored: list[str] = []
        self.num_inserts = 0
        self._refused = refused
        self._has_copy = has_copy

    def command(self, sql: str) -> None:
        if not self._has_copy:
            raise DatabaseError("not allowed", code=497)

    def query(self, sql: str, parameters: dict[str, str]) -> Any:
        return SimpleNamespace(result_rows=[])

    def raw_insert(self, table: str, insert_block: IO[bytes], **_: object) -> None:
        names = [
            span.name
            for body in read_bodies(insert_block.read(), "segment")
            for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
        ]
        is_copy = table.startswith(CHECK_COPY)
        self.num_inserts += not is_copy
        if len(names) > self.room:
            raise DatabaseError("no memory", code=241)
        if self._refused in names:
            raise DatabaseError("cannot parse", code=436)
        if not is_copy:
            self.stored += names

    def close(self) -> None:
        pass


def run(folder: Path, store: SmallStore, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Insert a segment of spans named 0 to 9; return whether the log is then empty."""
    monkeypatch.setattr(inserter, "FIRST_RETRY_S", 0.001)
    monkeypatch.setattr(inserter, "MAX_RETRY_S", 0.01)
    request = trace_request(10)
    for number, span in enumerate(request.resource_spans[0].scope_spans[0].spans):
        span.name = str(number)
    log = WriteAheadLog(folder / "log", "node")
    log.append(request.SerializeToString(), 10).result()
    log.close()
    storage: Any = SimpleNamespace(
        connect=lambda: store, embedded_path=None, insert_settings={}, gate=InsertGate()
    )
    return Inserter(log, storage, SelfMetrics(), max_memory_failures=2).close(60.0)


@pytest.mark.parametrize("refused", [str(number) for number in range(10)])
def test_a_refused_span_of_a_segment_that_is_too_large_is_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    store = SmallStore(3, refused)
    assert run(tmp_path, store, monkeypatch)
    assert sorted(store.stored) == [name for name in "0123456789" if name != refused]
    assert len(list((tmp_path / "log" / "quarantine").glob("*.sealed"))) == 1


@pytest.mark.parametrize("room", [9, 5, 3, 1])
def test_a_segment_that_fits_the_copy_of_the_tables_only_is_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    class RoomyCopy(SmallStore):
        def raw_insert(self, table: str, insert_block: IO[bytes], **settings: object) -> None:
            self.room = 10 if table.startswith(CHECK_COPY) else room
            super().raw_insert(table, insert_block, **settings)

    store = RoomyCopy(room)
    assert run(tmp_path, store, monkeypatch)
    assert store.stored == list("0123456789")


def test_a_store_that_allows_no_copy_gets_the_segment_once_it_has_memory_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Recovering(SmallStore):
        def raw_insert(self, table: str, insert_block: IO[bytes], **settings: object) -> None:
            if self.num_inserts == 5:
                self.room = 10
            super().raw_insert(table, insert_block, **settings)

    store = Recovering(0, has_copy=False)
    assert run(tmp_path, store, monkeypatch)
    assert store.stored == list("0123456789")
