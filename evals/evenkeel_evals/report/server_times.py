"""Reads the server-side time of a run's requests, by phase, from the store."""

from __future__ import annotations

import time
from collections.abc import Set
from pathlib import Path

from evenkeel.store import Store
from evenkeel_evals.ask.answers import ServerTimes

_HERE = Path(__file__).parent
# Spans are batched: a runtime sends within seconds, the collector inserts within one second.
WAIT_S = 10.0
PAUSE_S = 0.5


def read_server_times(
    url: str, run_id: str, start_ns: int, wanted: Set[str], wait_s: float = WAIT_S
) -> dict[str, ServerTimes]:
    """Return the times by trace id, after waiting a while for the last spans.

    Args:
        url: URL of the store.
        run_id: Id of the run; its requests carry it as their session.
        start_ns: Wall-clock time at which the run began.
        wanted: The expected trace ids.
        wait_s: How long to wait for them, in seconds.

    Raises:
        StoreError: If the store does not answer.
    """
    store = Store(url)
    parameters = {"sessions": [f"{run_id}-A", f"{run_id}-B"], "start_ns": start_ns}
    give_up = time.monotonic() + wait_s
    try:
        while True:
            found = {
                str(row["trace_id"]): ServerTimes(
                    float(row["queue_s"]),
                    float(row["prefill_s"]),
                    float(row["decode_s"]),
                    int(row["output_tokens"]),
                    None if row["engine_s"] is None else float(row["engine_s"]),
                    int(row["num_devices"]),
                    None if row["energy_j"] is None else float(row["energy_j"]),
                )
                for row in store.rows(_HERE / "eval_server_times.sql", parameters)
                if row["trace_id"] in wanted
                and None not in (row["queue_s"], row["prefill_s"], row["decode_s"])
                and row["output_tokens"] is not None
            }
            if len(found) == len(wanted) or time.monotonic() > give_up:
                return found
            time.sleep(PAUSE_S)
    finally:
        store.close()
