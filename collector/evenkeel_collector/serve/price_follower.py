"""Prices new requests by the price file, and follows its changes."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from pathlib import Path

from evenkeel.errors import ConfigurationError, StoreError
from evenkeel.prices.price_file import PriceFile, read_price_file
from evenkeel.watched_file import WatchedFile
from evenkeel_collector.store.pricing import StoredPrices
from evenkeel_collector.telemetry.metrics import SelfMetrics

logger = logging.getLogger(__name__)

POLL_S = 1.0


class PriceFollower:
    """The price file in use; without one, only costs that senders state count.

    Args:
        path: The price file, or None.
        metrics: Counts invalid versions of the file.

    Raises:
        ConfigurationError: If the file is invalid.
    """

    def __init__(self, path: Path | None, metrics: SelfMetrics) -> None:
        self._metrics = metrics
        read = partial(read_price_file, flag="--prices")
        self._file = (
            None
            if path is None
            else WatchedFile(path, read, logger, metrics.price_files_rejected.inc)
        )
        self._stored: StoredPrices | None = None
        self._waiting: PriceFile | None = None

    def start(self, stored: StoredPrices) -> None:
        """Put the prices in force.

        Raises:
            ConfigurationError: If the store has costs in another currency.
            StoreError: If the store is unreachable or refuses.
        """
        self._stored = stored
        stored.use(None if self._file is None else self._file.current)

    async def follow(self) -> None:
        """Check the file every second until cancelled."""
        while self._file is not None:
            await asyncio.sleep(POLL_S)
            content = self._file.reload()
            if content is not None:
                self._waiting = content
            if self._waiting is not None and self._stored is not None:
                await asyncio.to_thread(self._use, self._stored, self._waiting)

    def _use(self, stored: StoredPrices, content: PriceFile) -> None:
        """Put new prices in force; if the store is unreachable, the next look tries again."""
        try:
            stored.use(content)
        except ConfigurationError as error:
            self._metrics.price_files_rejected.inc()
            logger.warning("file rejected, still using the previous version error=%s", error)
        except StoreError as error:
            logger.warning("prices not changed yet error=%s", error)
            return
        self._waiting = None
