"""Lets tokens and limits follow their file while the collector runs."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel.watched_file import WatchedFile
from evenkeel_collector.ports.access import Access, AccessFile, read_access_file
from evenkeel_collector.ports.tenant_limits import TenantMeter
from evenkeel_collector.telemetry.metrics import SelfMetrics

logger = logging.getLogger(__name__)

POLL_S = 1.0


class AccessControl:
    """Tokens and limits, as the file says them now; without a file, none.

    Args:
        path: The access file, or None.
        metrics: Where wrong versions of it are counted.

    Raises:
        ConfigurationError: If the file is wrong.
    """

    def __init__(self, path: Path | None, metrics: SelfMetrics) -> None:
        self._file = (
            None
            if path is None
            else WatchedFile(path, self._read, logger, metrics.access_files_rejected.inc)
        )
        content = AccessFile() if self._file is None else self._file.current
        self.access = Access(content.token)
        self.meter = TenantMeter(content.limits)

    async def follow(self) -> None:
        """Look at the file every second, until cancelled."""
        while self._file is not None:
            await asyncio.sleep(POLL_S)
            content = self._file.reload()
            if content is not None:
                self.access.use(content.token)
                self.meter.use(content.limits)

    def _read(self, path: Path) -> AccessFile:
        content = read_access_file(path)
        is_guarded = hasattr(self, "access") and not self.access.is_open
        if is_guarded and not content.token:
            raise ConfigurationError(
                f"{path} (--access) has no token any more: that would open the ports to everybody; "
                "restart the collector if you mean it"
            )
        return content
