"""Sides that a run serves itself: starts `evenkeel serve` with their settings, and ends it."""

from __future__ import annotations

import hashlib
import shutil
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

from evenkeel.processes import Part, Platform
from evenkeel_evals.ask.sides import ServeConfig, Side

# Loading a model of some gigabytes takes minutes; a wrong flag ends the server at once.
READY_S = 900.0
HOST = "127.0.0.1"


@contextmanager
def serving(
    sides: Sequence[Side], otlp_endpoint: str | None, tell: Callable[[str], None]
) -> Iterator[list[Side]]:
    """Return the sides with the addresses of the servers that are started for the block.

    Two sides with the same settings share one server. Leaving the block ends every process, also
    after an error; should this process be killed, Linux ends them.

    Args:
        sides: Those without settings of their own stay as they are.
        otlp_endpoint: Where the servers' spans go; None for nowhere.
        tell: Gets a line before the wait.

    Raises:
        CannotMeasureError: If a server ends or is not ready in time; with what it said last.
    """
    wanted = list(dict.fromkeys(side.serve for side in sides if side.serve is not None))
    if not wanted:
        yield list(sides)
        return
    with _log_folder() as folder, Platform(folder) as platform:
        parts = {config: _part(config, folder, otlp_endpoint) for config in wanted}
        for config, part in parts.items():
            tell(f"starting `evenkeel serve {' '.join(config.arguments)}`")
            platform.start(part)
        for part in parts.values():
            platform.wait_ready(part, READY_S)
        yield [
            side
            if side.serve is None
            else replace(side, url=parts[side.serve].ready_url.removesuffix("/health"))
            for side in sides
        ]


@contextmanager
def _log_folder() -> Iterator[Path]:
    """Make a folder for the block; after an error its logs stay, since the error names them."""
    folder = Path(mkdtemp(prefix="evenkeel-eval-"))
    try:
        yield folder
    except BaseException:
        for path in folder.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
        raise
    shutil.rmtree(folder, ignore_errors=True)


def _part(config: ServeConfig, folder: Path, otlp_endpoint: str | None) -> Part:
    name = f"server-{hashlib.sha256(repr(config).encode()).hexdigest()[:8]}"
    port = _free_port()
    where = ("--host", HOST, "--port", str(port), "--data-dir", str(folder / name))
    return Part(
        name=name,
        arguments=("serve", config.model, *where, *config.flags),
        ready_url=f"http://{HOST}:{port}/health",
        # The address may hold a password, which a command line would show to everybody.
        environment={"OTEL_SDK_DISABLED": "true"}
        if otlp_endpoint is None
        else {"EVENKEEL_RUNTIME_OTLP_ENDPOINT": otlp_endpoint},
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
