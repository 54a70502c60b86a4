"""What the collector provides to components that run inside it, such as SLO evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.slo.model import Slo

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True, slots=True)
class CollectorContext:
    """A running collector, as seen by a component inside it.

    Attributes:
        connect: Returns a new client of the store, for the calling thread alone, that may read
            and write; close it in the same thread. It sees what was acknowledged before.
        make_visible: Waits until the store has what was acknowledged just before, as long as that
            takes a moment.
        data_dir: The collector's folder, which exists; a part keeps its own files in it.
        slo_file: The SLO file given with `--slos`, or None.
        dashboard_url: Where people look, for links in notifications, or None.
        use_slos: Lets what else depends on the SLOs follow the file in force; costs nothing where
            it did not change.
        prompts_dir: The prompt registry whose labels operators may move, or None.
        metrics: What `/metrics` shows: `Counter(name, help, registry=context.metrics)`.
    """

    connect: Callable[[], Client]
    data_dir: Path
    slo_file: Path | None
    dashboard_url: str | None
    metrics: CollectorRegistry
    make_visible: Callable[[], None] = lambda: None
    use_slos: Callable[[Sequence[Slo]], object] = lambda slos: None
    prompts_dir: Path | None = None
