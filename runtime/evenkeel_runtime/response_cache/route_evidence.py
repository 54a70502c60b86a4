"""The evidence of all routes: found, changed, recorded and kept over restarts."""

from __future__ import annotations

import logging
from collections.abc import Callable, ItemsView
from pathlib import Path

from evenkeel.embedding import hash_model
from evenkeel.error_guard import ErrorGuard
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.counts import CacheCounts
from evenkeel_runtime.response_cache.evidence_file import WEIGHTS_CHANGED, EvidenceFile
from evenkeel_runtime.response_cache.hit_class import HitClass
from evenkeel_runtime.response_cache.serve_control import ControlChange, ServeControl
from evenkeel_runtime.response_cache.settings_file import CachePolicy, RoutePolicy

logger = logging.getLogger(__name__)

# A server that is killed loses the verdicts of this time.
_SAVE_EVERY_S = 5.0


class Controls:
    """The evidence by route.

    Args:
        counts: Counts changes and errors.
        audit: Records changes.
        clock: Unix time in seconds.

    Attributes:
        data_dir: The folder of the evidence; None keeps none.
        labels: The file of labels; None is the one in that folder.
        file: The evidence of earlier runs; None until loaded.
    """

    def __init__(self, counts: CacheCounts, audit: AuditLog, clock: Callable[[], float]) -> None:
        self.data_dir: Path | None = None
        self.labels: Path | None = None
        self.file: EvidenceFile | None = None
        self._by_route: dict[str, ServeControl] = {}
        self._counts = counts
        self._audit = audit
        self._clock = clock
        self._saved_at_s = 0.0
        self._unsaved = ErrorGuard(
            logger.warning, "cannot save the cache's evidence: %s", expected=OSError
        )

    def items(self) -> ItemsView[str, ServeControl]:
        """Return the routes asked so far, with their evidence."""
        return self._by_route.items()

    def find(self, policy: RoutePolicy) -> ServeControl:
        """Return the evidence of a route."""
        control = self._by_route.get(policy.route)
        if control is None:
            file = self.file
            control = ServeControl(policy) if file is None else file.open_control(policy)
            self._by_route[policy.route] = control
        return control

    def configure(self, policy: CachePolicy) -> None:
        """Apply a changed file."""
        for route, control in self._by_route.items():
            find_labels = (lambda _: {}) if self.file is None else self.file.count_labels
            change = control.configure(policy.find_route(route), find_labels)
            if change is not None:
                self._record_change(change)

    def record(
        self, policy: RoutePolicy, hit: HitClass, is_wrong: bool, replayed_at: float | None
    ) -> ControlChange | None:
        """Add one verdict, as `ServeControl.record` does; return the resulting change, if any."""
        change = self.find(policy).record(hit, is_wrong, replayed_at)
        if change is not None:
            self._record_change(change)
        # The clock may have been set back.
        if change is not None or abs(self._clock() - self._saved_at_s) >= _SAVE_EVERY_S:
            self.save()
        return change

    def record_unjudged(self, policy: RoutePolicy, hit: HitClass, replayed_at: float) -> None:
        """Count a served hit whose replay failed, as `ServeControl.record_unjudged` does."""
        change = self.find(policy).record_unjudged(hit, replayed_at)
        if change is not None:
            self._record_change(change)
            self.save()

    def load(self, model: str) -> None:
        """Load the evidence of earlier runs with these weights, and labels.

        Raises:
            OSError: If the embedding model's files cannot be read.
        """
        if self.data_dir is None:
            return
        self.file = EvidenceFile(self.data_dir, hash_model(), model, self.labels)
        for name, reason in self.file.discarded.items():
            self._audit.write("evidence_discarded", file=name, reason=reason)

    def start_over(self, model: str) -> None:
        """Discard all evidence but labels: other weights answer from now on."""
        if self._by_route:
            name = None if self.file is None else self.file.name
            self._audit.write("evidence_discarded", file=name, reason=WEIGHTS_CHANGED)
        self._by_route.clear()
        if self.file is not None:
            self.file.start_over(model)

    def save(self) -> None:
        """Write the evidence, if it is kept; errors are counted and logged once."""
        self._saved_at_s = self._clock()
        if self.file is None or not self._by_route:
            return
        try:
            self.file.write(self.file.encode(self._by_route))
        except OSError as error:
            self._counts.errors["evidence"] += 1
            self._unsaved.record(error)

    def _record_change(self, change: ControlChange) -> None:
        self._counts.changes[change.reason] += 1
        logger.info("cache route %s: %s", change.route, change.describe())
        self._audit.write(
            "control",
            route=change.route,
            kind=change.kind,
            before=change.before,
            after=change.after,
            reason=change.reason,
            bound=change.bound,
            limit=change.limit,
            seen=change.seen,
            wrong=change.wrong,
        )
