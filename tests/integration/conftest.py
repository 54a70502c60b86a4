"""What integration tests share: one real vLLM server for the whole session."""

from collections.abc import Iterator

import pytest

from tests.integration.otlp_receiver import OtlpReceiver
from tests.integration.served_model import ServedModel, serve


@pytest.fixture(scope="session")
def served_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedModel]:
    """The demo model on a real `evenkeel serve`; its spans go to a receiver in this process."""
    receiver = OtlpReceiver()
    try:
        with serve(tmp_path_factory.mktemp("served"), receiver) as served:
            yield served
    finally:
        receiver.stop()
