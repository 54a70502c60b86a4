"""What the collector provides to components that run inside it, such as SLO evaluation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from evenkeel.slo.file.slo_file import WITHOUT_FILE
from evenkeel.slo.model import Slo
from evenkeel_collector.store.retention import Retention

if TYPE_CHECKING:
    from clickhouse_connect.driver.client import Client
    from prometheus_client import CollectorRegistry


@dataclass(frozen=True, slots=True)
class CollectorContext:
    """A running collector, as available to a component inside it.

    Attributes:
        connect: Returns a new read-write client of the store for the calling thread, which must
            close it. It sees everything acknowledged before.
        make_visible: Waits briefly until the store has everything acknowledged so far.
        data_dir: The collector's existing data folder, for a component's own files.
        slo_file: The SLO file given with `--slos`, or None.
        has_own_store: Whether no other collector can evaluate alerts on this one's store.
        dashboard_url: The dashboard, for links in notifications, or None.
        use_slos: Updates everything else that depends on the SLOs; cheap if nothing changed.
        prompts_dir: The prompt registry whose labels operators may move, or None.
        retention: How long rows of each table are kept.
        metrics: The registry behind `/metrics`: `Counter(name, help, registry=context.metrics)`.
    """

    connect: Callable[[], Client]
    data_dir: Path
    slo_file: Path | None
    dashboard_url: str | None
    metrics: CollectorRegistry
    make_visible: Callable[[], None] = lambda: None
    use_slos: Callable[[Sequence[Slo]], object] = lambda slos: None
    prompts_dir: Path | None = None
    retention: Mapping[str, Retention] = field(default_factory=dict)
    has_own_store: bool = False

    @property
    def evaluated_file(self) -> Path | None:
        """What is evaluated: the SLO file, else the default rules; None if others may do that."""
        return self.slo_file or (WITHOUT_FILE if self.has_own_store else None)
