"""All boards, in the order of their menu, and the folder of them that Grafana reads."""

from __future__ import annotations

from pathlib import Path

from evenkeel.errors import ConfigurationError
from evenkeel.synced_text import replace_text
from evenkeel_collector.boards.caches import CACHES
from evenkeel_collector.boards.collector_health import COLLECTOR
from evenkeel_collector.boards.engine import ENGINE
from evenkeel_collector.boards.engines import ENGINES
from evenkeel_collector.boards.gpu import GPU
from evenkeel_collector.boards.grafana_json import board_json
from evenkeel_collector.boards.overview import OVERVIEW
from evenkeel_collector.boards.slos import SLOS
from evenkeel_collector.boards.store_quality import QUALITY
from evenkeel_collector.boards.store_requests import REQUESTS

BOARDS = (OVERVIEW, SLOS, ENGINE, ENGINES, CACHES, REQUESTS, QUALITY, COLLECTOR, GPU)


def write_boards(folder: Path, dashboard_url: str, force: bool = False) -> list[Path]:
    """Write every board as `UID.json`, and return the files.

    Args:
        folder: Created if it is missing.
        dashboard_url: Address of the evenkeel dashboard, to which the boards link.
        force: Replace boards in a folder that holds files; others stay as they are.

    Raises:
        ConfigurationError: If the folder holds files and `force` is false, or cannot be written.
    """
    try:
        is_taken = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be read: {error.strerror}") from error
    if is_taken and not folder.is_dir():
        raise ConfigurationError(f"{folder} is a file, expected a folder: choose another --out")
    if is_taken and not force:
        raise ConfigurationError(
            f"{folder} is not empty: choose another --out, or replace the boards in it with --force"
        )
    written = []
    for board in BOARDS:
        path = folder / f"{board.uid}.json"
        replace_text(path, board_json(board, dashboard_url.rstrip("/")))
        written.append(path)
    return written
