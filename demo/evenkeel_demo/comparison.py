"""The demo's A/B run: compares two prompt versions with the `evenkeel eval run` command."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from evenkeel_demo.parts import DemoLocation
from evenkeel_demo.traffic import BATCH

NUM_ITEMS = 120
GATES = "accuracy>=-3%, shift_ttft<=+10%"


class EvalProcess:
    """Runs `evenkeel eval run` once, alongside the traffic.

    Attributes:
        result: The run's JSON output, with its exit code; None until it has ended.
        summary: One readable line.
    """

    def __init__(self, place: DemoLocation, dataset: Path) -> None:
        self.result: dict[str, Any] | None = None
        self.summary = "A/B of prompt versions 1 and 2: not started"
        self._place = place
        self._dataset = dataset
        self._process: Process | None = None
        self._output: asyncio.Task[tuple[bytes, bytes]] | None = None

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.result is not None

    async def advance(self) -> None:
        """Start the run on the first call, and collect its result once it has ended."""
        if self._process is None:
            await self._start()
        elif self._output is not None and self._output.done() and self.result is None:
            self._finish(*self._output.result())

    async def _start(self) -> None:
        place, sides = self._place.endpoints, self._dataset / "sides"
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "evenkeel", "eval", "run", str(self._dataset)),
            *("--baseline", str(sides / "full.toml")),
            *("--candidate", str(sides / "short.toml")),
            *("--gate", GATES),
            *("--url", place.runtime),
            *("--otlp-endpoint", place.collector),
            *("--limit", str(NUM_ITEMS)),
            *("--concurrency", "2"),
            # Customers go first.
            *("--slo-class", BATCH),
            "--json",
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        self._output = asyncio.create_task(self._process.communicate())
        self.summary = "A/B of prompt versions 1 and 2: running"

    def _finish(self, output: bytes, errors: bytes) -> None:
        assert self._process is not None
        code = self._process.returncode
        try:
            printed = json.loads(output)
        except (ValueError, RecursionError):
            lines = errors.decode(errors="replace").strip().splitlines()
            printed = {"error": lines[-1] if lines else "it printed nothing"}
        self.result = {"exit_code": code, **printed}
        self.summary = f"A/B of prompt versions 1 and 2: {describe(self.result)}"

    async def close(self) -> None:
        """Stop the run if it is still going."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()
        if self._output is not None:
            await asyncio.gather(self._output, return_exceptions=True)


def describe(result: dict[str, Any]) -> str:
    """Return the verdict of a run in a few words."""
    if "error" in result:
        return f"not measured: {result['error']}"
    word = {0: "may go out", 1: "regressed, do not release"}.get(result["exit_code"], "no verdict")
    return f"{word} (exit code {result['exit_code']})"
