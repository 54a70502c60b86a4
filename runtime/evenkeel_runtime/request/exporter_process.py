"""Start the exporter process and feed it through a pipe that never blocks the server."""

from __future__ import annotations

import fcntl
import logging
import os
import subprocess
import sys
import time
from contextlib import suppress

import msgspec

from evenkeel_runtime.wire.frames import FRAME_HEAD, ExporterConfig

logger = logging.getLogger(__name__)

_PIPE_BYTES = 1 << 20
_RESTART_INTERVAL_S = 5.0
# Stop adding frames to a write at this size: a full pipe accepts none of them.
_WRITE_BYTES = 1 << 16


class ExporterProcess:
    """One exporter process at a time; a dead one is replaced, at most every five seconds.

    Args:
        config: The exporter's configuration; its counters survive a restart.
    """

    def __init__(self, config: ExporterConfig) -> None:
        self._config = config
        fds = (config.counters_fd, config.snapshot_fd, config.in_flight_fd)
        self._inherited = tuple(fd for fd in fds if fd >= 0)
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = -1
        self._started_s = float("-inf")
        self.num_restarts = 0

    def start(self) -> None:
        """Start the process.

        Raises:
            OSError: If it cannot be started.
        """
        self._started_s = time.monotonic()
        read_end, write_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evenkeel_runtime.exporter.process"],
                stdin=read_end,
                pass_fds=self._inherited,
            )
        except OSError:
            os.close(write_end)
            raise
        finally:
            os.close(read_end)
        os.set_blocking(write_end, False)
        if hasattr(fcntl, "F_SETPIPE_SZ"):
            # Fails once the user's pipe budget is used up; the default size works too.
            with suppress(OSError):
                fcntl.fcntl(write_end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        self._pipe = write_end
        # Not on the command line: any user of the machine could read the secrets in the headers.
        config = msgspec.json.encode(self._config)
        self._config_left = FRAME_HEAD.pack(len(config)) + config
        self._num_begun = 0

    def write(self, frames: list[bytes]) -> int:
        """Write as many frames as the pipe accepts now, perhaps none; return how many.

        The next call must begin with the first frame that was not accepted. If the pipe has part of
        that frame already, only the rest is written.

        Raises:
            BrokenPipeError: If the process is gone; frames it had accepted may be lost.
        """
        # A pipe to which nothing is written does not tell.
        if self._process is not None and self._process.poll() is not None:
            raise BrokenPipeError
        self._config_left = self._push(self._config_left)
        if self._config_left:
            return 0
        num_taken = 0
        while num_taken < len(frames):
            # Batch the frames: each write wakes the exporter, which costs more than the write
            # itself.
            chunk = _first_of(frames, num_taken)
            data = b"".join(chunk)[self._num_begun :]
            written = self._num_begun + len(data) - len(self._push(data))
            self._num_begun = 0
            for frame in chunk:
                if written < len(frame):
                    self._num_begun = written
                    return num_taken
                written -= len(frame)
                num_taken += 1
        return num_taken

    def _push(self, data: bytes) -> bytes:
        """Write as much as the pipe accepts; return the rest."""
        while data:
            try:
                written = os.write(self._pipe, data)
            except BlockingIOError:
                break
            data = data[written:]
        return data

    def restart(self) -> bool:
        """Replace a dead process unless one was started just now; return whether it was."""
        if time.monotonic() - self._started_s < _RESTART_INTERVAL_S:
            return False
        self._close_pipe()
        if self._process is not None:
            self._process.kill()
            code = self._process.wait()
            logger.warning("the exporter process died, restarting it: exit_code=%d", code)
        self.num_restarts += 1
        self.start()
        return True

    def close(self, timeout_s: float) -> None:
        """Close its input, wait for it to send its queue, and kill it after `timeout_s`."""
        self._close_pipe()
        if self._process is None:
            return
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _close_pipe(self) -> None:
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1


def _first_of(frames: list[bytes], start: int) -> list[bytes]:
    """Return at least one frame, starting at an index, each with its header."""
    chunk: list[bytes] = []
    size = 0
    for place in range(start, len(frames)):
        chunk.append(FRAME_HEAD.pack(len(frames[place])) + frames[place])
        size += len(chunk[-1])
        if size >= _WRITE_BYTES:
            break
    return chunk
