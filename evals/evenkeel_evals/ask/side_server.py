"""Starts and stops `evenkeel serve` for sides that the run serves itself."""

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

# Loading a model of several gigabytes takes minutes; a wrong flag fails at once.
READY_S = 900.0
HOST = "127.0.0.1"


@contextmanager
def serving(
    sides: Sequence[Side], otlp_endpoint: str | None, tell: Callable[[str], None]
) -> Iterator[list[Side]]:
    """Start the sides' servers for the block and return the sides with their addresses.

    Two sides with the same settings share one server. Leaving the block stops every process, even
    after an error; if this process is killed, Linux stops them.

    Args:
        sides: The sides; those without [serve] are returned unchanged.
        otlp_endpoint: Where the servers send their spans; None disables sending.
        tell: Called with a line before waiting.

    Raises:
        CannotMeasureError: If a server exits or is not ready in time; includes its last output.
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
    """Create a folder for the block; its logs are kept after an error, which names them."""
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
        # The address may contain a password, which a command line would expose to all users.
        environment={"OTEL_SDK_DISABLED": "true"}
        if otlp_endpoint is None
        else {"EVENKEEL_RUNTIME_OTLP_ENDPOINT": otlp_endpoint},
    )


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
