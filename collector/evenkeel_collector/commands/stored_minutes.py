"""Per-minute event counts of SLOs over the last days, ready to replay."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.errors import ConfigurationError
from evenkeel.times import MINUTE_NS
from evenkeel_collector.commands.slo_arguments import add_store_url
from evenkeel_collector.commands.slo_correct import read_corrections

if TYPE_CHECKING:
    from evenkeel.slo.burn_rates import Counts
    from evenkeel.slo.model import Slo
    from evenkeel.slo.query import Span
    from evenkeel_collector.slo.backtest_score import Incident
    from evenkeel_collector.slo.corrections import Correction
    from evenkeel_collector.slo.history import RowReader

_MOST_DAYS = 400


@dataclass(frozen=True, slots=True)
class StoredMinutes:
    """The stored history of one SLO.

    Attributes:
        slo: The SLO.
        minutes: Its events by Unix minute, without maintenance.
        incidents: Incidents marked for it.
        until: The first minute that has not ended.
        allowed: What the range may cost, if it is a budget in money.
    """

    slo: Slo
    minutes: dict[int, Counts]
    incidents: list[Incident]
    until: int
    allowed: float | None


def add_store_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--url` and `--data-dir`."""
    add_store_url(parser)
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="the collector's data folder, to apply its corrections (also EVENKEEL_DATA_DIR)",
    )


def check_days(days: int) -> None:
    """Check a number of days.

    Raises:
        ConfigurationError: If it is not between 1 and 400.
    """
    if not 1 <= days <= _MOST_DAYS:
        raise ConfigurationError(f"--days is {days}, expected 1 to {_MOST_DAYS}")


def last_days(days: int) -> str:
    """Return the range in words: "last day", "last 30 days"."""
    return "last day" if days == 1 else f"last {days} days"


def stored_minutes(
    url: str, data_dir: Path | None, days: int, slos: Sequence[Slo]
) -> Iterator[StoredMinutes]:
    """Yield the stored requests of the last days, counted per minute, for one SLO after another.

    A grouped SLO is counted for each of its groups.

    Args:
        url: The store.
        data_dir: The collector's folder, for its corrections; None: the setting's.
        days: How far back.
        slos: Which SLOs.

    Raises:
        ConfigurationError: If an SLO's slices are not of a minute.
        StoreError: If the store does not answer.
    """
    from time import time_ns

    from evenkeel.slo.groups import with_groups
    from evenkeel.slo.query import Span
    from evenkeel.store import Store

    to_ns = time_ns() // MINUTE_NS * MINUTE_NS
    span = Span(to_ns - days * 86400 * 10**9, to_ns)
    in_force = read_corrections(data_dir)
    store = Store(url)
    try:
        for slo in with_groups(slos, store.rows, to_ns, to_ns - span.from_ns):
            yield minutes_of(store, slo, span, in_force)
    finally:
        store.close()


def minutes_of(
    store: RowReader, slo: Slo, span: Span, in_force: Sequence[Correction] = ()
) -> StoredMinutes:
    """Return an SLO's events in a span of whole minutes.

    Raises:
        ConfigurationError: If its slices are not of a minute.
        StoreError: If the store does not answer.
    """
    from evenkeel_collector.slo.backtest_score import Incident
    from evenkeel_collector.slo.corrections import CorrectionReason, corrections_of
    from evenkeel_collector.slo.history import count_buckets
    from evenkeel_collector.slo.report import money_for

    if slo.slicing is not None and slo.slicing.length_s != 60:
        raise ConfigurationError(
            f"SLO {slo.name!r}: slices of {float(slo.slicing.length_s):g} s cannot be "
            "replayed on minutes; use timeSliceWindow 1m"
        )
    ours = corrections_of(slo.name, in_force)
    incidents = [
        Incident(c.comment or c.id, c.from_ns // MINUTE_NS, c.until_ns // MINUTE_NS)
        for c in ours
        if c.reason == CorrectionReason.INCIDENT
        and c.until_ns > span.from_ns
        and c.from_ns < span.to_ns
    ]
    # Incidents are what the SLO should alert on, so only maintenance is left out.
    others = [c for c in ours if c.reason != CorrectionReason.INCIDENT]
    minutes = count_buckets(store, slo, span, MINUTE_NS, others)
    allowed = None if slo.indicator.budget is None else money_for(slo, span)
    return StoredMinutes(slo, minutes, incidents, span.to_ns // MINUTE_NS, allowed)
