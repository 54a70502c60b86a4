"""Reloads tokens and limits when the access file changes."""

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
    """The tokens and limits of the access file, kept current; none without a file.

    Args:
        path: The access file, or None.
        metrics: Counts invalid versions of the file.

    Raises:
        ConfigurationError: If the file is invalid.
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
        """Check the file every second until cancelled."""
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
                f"{path} (--access) no longer has any token, which would open the ports to "
                "everyone; restart the collector if that is intended"
            )
        return content
