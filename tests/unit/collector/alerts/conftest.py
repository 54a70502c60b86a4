from collections.abc import Iterator
from pathlib import Path

import pytest

from evenkeel_collector.alerts.book import AlertBook


@pytest.fixture
def book(tmp_path: Path) -> Iterator[AlertBook]:
    """An empty alert book."""
    book = AlertBook(tmp_path / "alerts.db")
    yield book
    book.close()
