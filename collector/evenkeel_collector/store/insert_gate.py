"""Lets inserts of requests pass, or holds them back while the rollups are counted anew."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator


class InsertGate:
    """Any number of inserts at once, or one that closes the gate, alone."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._is_closed = False

    @contextlib.contextmanager
    def inserting(self) -> Iterator[None]:
        """Wait while the gate is closed; it does not close before the block ends."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._num_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_inside -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Close the gate, and wait until nobody is inside."""
        with self._changed:
            self._changed.wait_for(lambda: not self._is_closed)
            self._is_closed = True
            self._changed.wait_for(lambda: not self._num_inside)
        try:
            yield
        finally:
            with self._changed:
                self._is_closed = False
                self._changed.notify_all()
