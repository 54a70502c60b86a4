"""One embedded store for the SLO tests of a module, emptied before each."""

from collections.abc import Iterator
from typing import Any

import pytest

from evenkeel_collector.store.storage import Storage
from tests.fixtures.new_store import open_new_store


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storage]:
    storage = open_new_store(tmp_path_factory.mktemp("store"))
    yield storage
    storage.close()


@pytest.fixture
def client(storage: Storage) -> Iterator[Any]:
    client = storage.connect()
    for table in (
        "requests",
        "slo_status",
        "alert_history",
        "eval_results",
        "engine_state",
        "spans",
        "session_parts",
        "session_tools",
        "session_traces",
    ):
        client.command(f"TRUNCATE TABLE {table}")
    yield client
    client.close()
