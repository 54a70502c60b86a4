"""Reads from the store what the servers recorded of a run's requests."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from evenkeel.errors import StoreError
from evenkeel_evals.ask.answers import AnsweredPair, ServerTimes
from evenkeel_evals.ask.recorded_run import RecordedRun
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.report.server_times import read_server_times
from evenkeel_evals.verdict.latency_split import trace_ids


def record_server_times(
    settings: EvalSettings, recorded: RecordedRun, pairs: Sequence[AnsweredPair]
) -> None:
    """Record the times and engine seconds of the pairs' requests that were not asked for yet.

    Without a store nothing is recorded. What the store lacks is named on standard error, and asked
    for again if the same command is repeated.
    """
    url = settings.store_address("")
    wanted = trace_ids(pairs) - recorded.times_asked
    if not url or (not wanted and recorded.server_times is not None):
        return
    assert recorded.beginning is not None
    found: dict[str, ServerTimes] = {}
    try:
        beginning = recorded.beginning
        found = read_server_times(url, beginning.run_id, beginning.start_ns, wanted)
        if len(found) < len(wanted):
            print(
                f"evenkeel: {settings.store_url} has the spans of {len(found)} of "
                f"{len(wanted)} requests; "
                "latency is split by cause over those only",
                file=sys.stderr,
            )
    except StoreError as error:
        print(f"evenkeel: latency is not split by cause: {error}", file=sys.stderr)
    recorded.record_server_times(found, wanted)
