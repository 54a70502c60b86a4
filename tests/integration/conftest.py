"""What integration tests share: two real vLLM servers, each for the whole session."""

from collections.abc import Iterator

import pytest

from tests.fixtures.equipped_server import EquippedServer, run_equipped_server
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
