"""Runs a dataset's Python assertions, with time and memory limits and no access to our keys."""

from __future__ import annotations

import json
import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from evenkeel.errors import ConfigurationError
from evenkeel_evals.dataset.dataset import Item
from evenkeel_evals.scorers.base import Context, LateCheck, Score

TIMEOUT_S = 10.0
MAX_REPLY_BYTES = 1_000_000


class PythonChecks:
    """Runs the check functions in a dataset's files; use it as a context manager.

    They run in one separate process, which is killed if a check takes too long. Its environment
    holds nothing of ours, so no keys; otherwise it has the user's permissions.

    Args:
        folder: The dataset's folder.
        timeout_s: Timeout per check, in seconds.
    """

    def __init__(self, folder: Path, timeout_s: float = TIMEOUT_S) -> None:
        self._folder = folder.resolve()
        self._timeout_s = timeout_s
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end()

    def find(self, check: LateCheck) -> Path:
        """Return the file of a check.

        Raises:
            ConfigurationError: If it is not in the dataset's folder.
        """
        name = check.what.rpartition(":")[0]
        try:
            path = (self._folder / name).resolve()
            is_there = path.is_file() and path.is_relative_to(self._folder)
        except (OSError, ValueError):
            # Half a surrogate pair or a zero byte: not a possible file name.
            is_there = False
        if not is_there:
            raise ConfigurationError(
                f"{name!r:.80}, a Python assertion, is missing from {self._folder}"
            )
        return path

    def run(self, check: LateCheck, item: Item, answer: str, context: Context) -> Score:
        """Return a check's score of an answer; unscored if the check fails to run.

        Raises:
            ConfigurationError: If its file is not in the dataset's folder.
        """
        request = {
            "file": str(self.find(check)),
            "function": check.what.rpartition(":")[2],
            "answer": answer,
            "context": _context(check, item, context),
        }
        line = self._ask(json.dumps(request).encode() + b"\n")
        try:
            reply = json.loads(line)
        except (ValueError, RecursionError):
            return Score.unscored(
                f"python: {check.what} took over {self._timeout_s:g} s, or crashed"
            )
        if "error" in reply:
            return Score.unscored(f"python: {check.what}: {reply['error']}")
        return read_result(reply["result"])

    def _ask(self, request: bytes) -> bytes:
        if self._process is None or self._process.poll() is not None:
            self._end()
            worker = Path(__file__).with_name("python_worker.py")
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(worker)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={"PATH": os.defpath, "PYTHONUTF8": "1"},
                start_new_session=True,
            )
        process = self._process
        assert process.stdin is not None and process.stdout is not None
        timer = threading.Timer(self._timeout_s, _kill, [process])
        timer.start()
        give_up_s = time.monotonic() + self._timeout_s
        try:
            process.stdin.write(request)
            process.stdin.flush()
            line = _read_line(process.stdout.fileno(), give_up_s)
        except OSError:
            line = b""
        finally:
            timer.cancel()
        if not line.endswith(b"\n"):
            self._end()
            return b""
        return line

    def _end(self) -> None:
        if self._process is None:
            return
        _kill(self._process)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        self._process.wait()
        self._process = None


def _read_line(fd: int, give_up_s: float) -> bytes:
    """Return what the pipe holds up to the end of a line; what there is if that does not come.

    A process that the check started may keep the pipe open after the worker's end.
    """
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    line = b""
    while not line.endswith(b"\n") and len(line) < MAX_REPLY_BYTES:
        left_s = give_up_s - time.monotonic()
        piece = os.read(fd, MAX_REPLY_BYTES) if waiting.poll(max(0.0, left_s * 1000)) else b""
        if not piece:
            break
        line += piece
    return line


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _context(check: LateCheck, item: Item, context: Context) -> dict[str, Any]:
    reference = json.loads(check.detail)
    known = reference if isinstance(reference, dict) else {}
    return {
        "reference": reference,
        "vars": known.get("vars") or {},
        "prompt": known.get("prompt") or item.messages[-1].content,
        "messages": [{"role": m.role, "content": m.content} for m in item.messages],
        "ttft_s": context.ttft_s,
        "e2e_s": context.e2e_s,
        "input_tokens": context.input_tokens,
        "output_tokens": context.output_tokens,
    }


def read_result(result: Any) -> Score:
    """Convert a check function's result to a score.

    The result may be true or false; a number, right if above 0; or an object with `pass`,
    `score` and `reason`. Anything else is unscored.
    """
    reason: str | None = None
    if isinstance(result, Mapping):
        if result.get("reason") is not None:
            reason = str(result["reason"])[:200]
        passed = result.get("pass", result.get("pass_"))
        result = passed if isinstance(passed, bool) else result.get("score")
    if isinstance(result, bool):
        return Score.of(result, reason)
    # An int may be too large for a float, and is finite.
    if isinstance(result, int) or (isinstance(result, float) and math.isfinite(result)):
        return Score.of(result > 0, reason)
    return Score.unscored(
        "python: returned neither true, false, a number nor an object with a pass field"
    )
