"""What integration tests share: an embedded store per module, and two real vLLM servers."""

from collections.abc import Iterator
from typing import Any

import pytest

from evenkeel_collector.store.storage import Storage
from tests.fixtures.equipped_server import EquippedServer, run_equipped_server
from tests.fixtures.new_store import open_new_store
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.served_model import WITH_TOOLS, ServedModel, serve


@pytest.fixture(scope="session")
def served_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    """The demo model on a real `evenkeel serve`; its spans go to a receiver in this process."""
    receiver = OtlpReceiver()
    try:
        folder = tmp_path_factory.mktemp("served")
        stall = {"EVENKEEL_RUNTIME_STALL_AFTER_S": "1"}
        with serve(folder, receiver, *WITH_TOOLS, settings=stall) as served:
            yield served
    finally:
        receiver.stop()


@pytest.fixture(scope="session")
def equipped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EquippedServer]:
    """The demo model on an `evenkeel serve` with a response cache, drafts and compression."""
    receiver = OtlpReceiver()
    try:
        with run_equipped_server(tmp_path_factory.mktemp("equipped"), receiver) as server:
            yield server
    finally:
        receiver.stop()


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    """An embedded store in this process, set up already."""
    storage = open_new_store(tmp_path_factory.mktemp("storage") / "store")
    yield storage
    storage.close()


@pytest.fixture
def client(storage: Storage) -> Iterator[Any]:
    """A client of the module's store, which is emptied first."""
    client = storage.connect()
    filled = client.query(
        "SELECT name FROM system.tables WHERE database = currentDatabase() AND total_rows > 0"
        " AND engine LIKE '%MergeTree' AND name != 'schema_migrations'"
    )
    for (table,) in filled.result_rows:
        client.command(f"TRUNCATE TABLE {table}")
    yield client
    client.close()
