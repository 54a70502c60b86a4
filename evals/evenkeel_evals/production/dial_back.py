"""Dials back a prompt label or a cache route that is shown to have made production worse.

By default it is a dry run that only reports what it would do. Actions are recorded in the live
evaluation's journal, so a restart does not repeat them, and in the collector's or cache's audit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evenkeel.errors import CannotMeasureError
from evenkeel_evals.production.dial_targets import PromptLabels, put_into_shadow
from evenkeel_evals.production.live import LiveRun, Row
from evenkeel_evals.production.live_config import DialBack, LiveConfig
from evenkeel_evals.production.live_estimate import LiveEstimate, Scored, estimate
from evenkeel_evals.scorers.base import Label

SERVED_BY_CACHE = ("exact", "semantic")

# Puts a route of the cache at a URL into shadow mode; returns its previous mode.
Shadow = Callable[[str, str, str | None], str]


@dataclass(frozen=True, slots=True)
class Dialled:
    """One quality drop and the action taken.

    Attributes:
        target: What is dialled back, such as `support@production`.
        gate: The violated gate.
        subject: The prompt version or cache route that dropped.
        is_dry_run: Whether no action was taken.
        to: The new state: the previous version, or `shadow`; None if nothing was done.
        evidence: The evidence, as readable text.
        at_ns: Unix time in nanoseconds.
    """

    target: str
    gate: str
    subject: str
    is_dry_run: bool
    to: str | None
    evidence: str
    at_ns: int

    def describe(self) -> str:
        """Return one line for a reader."""
        if self.is_dry_run:
            said = (
                f"would roll {self.target} back from {self.subject} (dry run; pass --act to do it)"
            )
        else:
            said = f"rolled {self.target} back from {self.subject} to {self.to}"
        return f"dial back: {said}: {self.gate} does not hold, {self.evidence}"


class Dials:
    """The dial-backs of one live evaluation.

    Args:
        config: The live evaluation that defines them.
        live: The windows and earlier actions.
        labels: The prompt labels.
        key: API key for runtimes; None for none.
        acts: Whether to act; otherwise a dry run.
        shadow: Puts a cache route into shadow mode.
        clock_ns: Wall clock in Unix nanoseconds.
    """

    def __init__(
        self,
        config: LiveConfig,
        live: LiveRun,
        labels: PromptLabels,
        key: str | None,
        acts: bool,
        shadow: Shadow = put_into_shadow,
        clock_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._config = config
        self._live = live
        self._labels = labels
        self._key = key
        self._acts = acts
        self._shadow = shadow
        self._clock_ns = clock_ns
        self._done = [Dialled(**record) for record in live.dialled]
        self.num_dropped = 0

    def look(self) -> Iterator[Dialled | str]:
        """Yield each new drop, dialled back if allowed, or a message on why that failed.

        Failed actions are retried at the next look.
        """
        for dial in self._config.dial_backs:
            try:
                yield from self._look(dial)
            except CannotMeasureError as error:
                yield f"dial back: {dial.target} could not be rolled back: {error}"

    def _look(self, dial: DialBack) -> Iterator[Dialled | str]:
        dropped = self._dropped(dial)
        if not dropped:
            return
        if dial.prompt is None:
            (subject, found), *_ = dropped.items()
        else:
            current = self._labels.current(dial.prompt, dial.label)
            if current is None or current not in dropped:
                # The label was already moved, or does not point to what dropped.
                return
            subject, found = current, dropped[current]
        self.num_dropped += 1
        since_ns = self._since_ns(dial)
        of_dial = [d for d in self._done if (d.target, d.gate) == (dial.target, dial.gate)]
        is_said = any(d.is_dry_run and d.subject == subject and d.at_ns > since_ns for d in of_dial)
        # Whichever gate restored it: otherwise, several would go back further with each look.
        if any((d.target, d.to) == (dial.target, subject) for d in self._done):
            if not is_said:
                self._record(dial, subject, found, None)
                yield (
                    f"dial back: {dial.target} was rolled back to {subject} before, and that does "
                    f"not hold {dial.gate} either: unchanged; needs a manual decision"
                )
        elif self._acts:
            yield self._record(dial, subject, found, self._set_back(dial, found))
        elif not is_said:
            yield self._record(dial, subject, found, None)

    def _dropped(self, dial: DialBack) -> dict[str, LiveEstimate]:
        """Return what violates the gate, by version or route, since the last action."""
        since_ns = self._since_ns(dial)
        rows: dict[str, list[Scored]] = {}
        for number, window in enumerate(self._live.windows):
            # Earlier requests, and those during the rollback, say nothing about the current state.
            for row in window.rows if window.from_ns >= since_ns else ():
                subject = _subject(dial, row) if row.scorer == dial.scorer else None
                if subject is not None:
                    is_right = None if row.label == Label.UNSCORED else row.label == Label.RIGHT
                    rows.setdefault(subject, []).append(Scored(number, row.probability, is_right))
        found = {name: estimate(dial.scorer, scored, dial.least) for name, scored in rows.items()}
        return {name: result for name, result in found.items() if result.is_drifting}

    def _since_ns(self, dial: DialBack) -> int:
        """Return when it was last dialled back; 0 if never."""
        acts = [d for d in self._done if (d.target, d.gate) == (dial.target, dial.gate)]
        return max((d.at_ns for d in acts if not d.is_dry_run), default=0)

    def _set_back(self, dial: DialBack, found: LiveEstimate) -> str:
        by = f"evenkeel eval live {self._config.name}"
        if dial.prompt is None:
            assert dial.url is not None and dial.cache_route is not None
            self._shadow(dial.url, dial.cache_route, self._key)
            return "shadow"
        reason = f"{dial.gate} does not hold in production: {found.describe()}"
        return self._labels.roll_back(dial.prompt, dial.label, reason[:2_000], by)

    def _record(self, dial: DialBack, subject: str, found: LiveEstimate, to: str | None) -> Dialled:
        dialled = Dialled(
            target=dial.target,
            gate=dial.gate,
            subject=subject,
            is_dry_run=to is None,
            to=to,
            evidence=found.describe(),
            at_ns=self._clock_ns(),
        )
        self._live.record_dialled(asdict(dialled))
        self._done.append(dialled)
        return dialled


def _subject(dial: DialBack, row: Row) -> str | None:
    """Return the prompt version or cache route that a row belongs to, or None."""
    if dial.prompt is not None:
        return row.prompt_version if row.prompt_name == dial.prompt else None
    is_served = row.route == dial.cache_route and row.response_cache in SERVED_BY_CACHE
    return dial.cache_route if is_served else None


def to_records(looked: Sequence[Dialled | str]) -> list[dict[str, Any]]:
    """Return the dial-backs, and messages about failed ones, as JSON."""
    return [asdict(d) if isinstance(d, Dialled) else {"error": d} for d in looked]
