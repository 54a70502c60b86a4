"""Dashboard sessions without a browser: they refresh like pages, but draw nothing."""

import contextlib
import threading
import time
from collections.abc import Iterator

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect


class Session:
    """A live page as Streamlit's server sees it.

    Attributes:
        lags_s: Of each refresh, from when it was due until all of it had come.
    """

    def __init__(self, url: str, query: str) -> None:
        self.lags_s: list[float] = []
        self._query = query
        self._connection = connect(
            f"{url.replace('http', 'ws', 1)}/_stcore/stream",
            subprotocols=["streamlit"],  # type: ignore[list-item]
            max_size=None,
        )
        self._thread = threading.Thread(target=self._live, args=(self._connection,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the session."""
        self._connection.close()
        self._thread.join(10)

    def _live(self, connection: ClientConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            connection.send(self._ask())
            timers: dict[str, tuple[float, float]] = {}
            while True:
                # A browser refreshes at its interval, even if the last answer is still missing.
                due = min((at for at, _ in timers.values()), default=float("inf"))
                wait_s = min(60.0, max(0.0, due - time.monotonic()))
                with contextlib.suppress(TimeoutError):
                    self._take(connection.recv(timeout=wait_s), timers)
                for fragment, (at, every_s) in list(timers.items()):
                    if time.monotonic() >= at:
                        connection.send(self._ask(fragment))
                        timers[fragment] = (at + every_s, every_s)

    def _ask(self, fragment: str = "") -> bytes:
        message = BackMsg()
        message.rerun_script.query_string = self._query
        if fragment:
            message.rerun_script.fragment_id = fragment
            message.rerun_script.is_auto_rerun = True
        return message.SerializeToString()

    def _take(self, frame: str | bytes, timers: dict[str, tuple[float, float]]) -> None:
        message = ForwardMsg()
        message.ParseFromString(frame if isinstance(frame, bytes) else frame.encode())
        kind = message.WhichOneof("type")
        if kind == "auto_rerun":
            every_s = message.auto_rerun.interval
            timers[message.auto_rerun.fragment_id] = (time.monotonic() + every_s, every_s)
        elif (
            kind == "script_finished"
            and message.script_finished == ForwardMsg.FINISHED_FRAGMENT_RUN_SUCCESSFULLY
        ):
            # The timer already stands at the next one.
            at, every_s = next(iter(timers.values()))
            self.lags_s.append(time.monotonic() - (at - every_s))


@contextlib.contextmanager
def sessions(url: str, query: str, number: int) -> Iterator[list[Session]]:
    """Run this many refreshing sessions, spread evenly over the refresh interval."""
    opened = []
    try:
        for _ in range(number):
            opened.append(Session(url, query))
            time.sleep(0.7)
        yield opened
    finally:
        for session in opened:
            session.close()
