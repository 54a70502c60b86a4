"""Sets back what made production worse, once it is shown to be: a prompt's label, a cache's route.

Without being told to act it only says what it would do. What it did is in the live evaluation's
journal, so a restart does not do it again, and in the audit of the collector or the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evenkeel.errors import CannotMeasureError
from evenkeel_evals.production.dial_targets import Labels, put_into_shadow
from evenkeel_evals.production.live import LiveRun, Row
from evenkeel_evals.production.live_config import DialBack, LiveConfig
from evenkeel_evals.production.live_estimate import LiveEstimate, Scored, estimate
from evenkeel_evals.scorers.base import Label

SERVED_BY_CACHE = ("exact", "semantic")

# Puts a route of the cache at a URL into shadow; returns its mode before.
Shadow = Callable[[str, str, str | None], str]


@dataclass(frozen=True, slots=True)
class Dialled:
    """One drop and what came of it.

    Attributes:
        target: What is set back, such as `support@production`.
        gate: The gate that does not hold.
        subject: The prompt's version, or the cache's route, that dropped.
        is_dry_run: Whether nothing was done.
        to: What holds since: the version before, or `shadow`; None where nothing was done.
        evidence: What was seen, for a reader.
        at_ns: When.
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
        config: Has them.
        live: The windows, and what was done before.
        labels: Where prompts' labels are.
        key: API key of runtimes; None for none.
        acts: Whether anything is done; else it is only said.
        shadow: Puts a cache's route into shadow.
        clock_ns: Wall clock, Unix nanoseconds.
    """

    def __init__(
        self,
        config: LiveConfig,
        live: LiveRun,
        labels: Labels,
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
        """Give each drop that is new, set back if it may be, or a line on why it could not be.

        What could not be done is tried again at the next look.
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
                # Somebody has moved it already, or what dropped is not behind this label.
                return
            subject, found = current, dropped[current]
        self.num_dropped += 1
        since_ns = self._since_ns(dial)
        of_dial = [d for d in self._done if (d.target, d.gate) == (dial.target, dial.gate)]
        is_said = any(d.is_dry_run and d.subject == subject and d.at_ns > since_ns for d in of_dial)
        if any(d.to == subject for d in of_dial):
            if not is_said:
                self._record(dial, subject, found, None)
                yield (
                    f"dial back: {dial.target} was rolled back to {subject} before, and that does "
                    f"not hold {dial.gate} either: left as it is; a person has to look"
                )
        elif self._acts:
            yield self._record(dial, subject, found, self._set_back(dial, found))
        elif not is_said:
            yield self._record(dial, subject, found, None)

    def _dropped(self, dial: DialBack) -> dict[str, LiveEstimate]:
        """Return what does not hold the gate, by version or route, since the last act."""
        since_ns = self._since_ns(dial)
        rows: dict[str, list[Scored]] = {}
        for number, window in enumerate(self._live.windows):
            # What came in before, or while it was set back, says nothing of what holds since.
            for row in window.rows if window.from_ns >= since_ns else ():
                subject = _subject(dial, row) if row.scorer == dial.scorer else None
                if subject is not None:
                    is_right = None if row.label == Label.UNSCORED else row.label == Label.RIGHT
                    rows.setdefault(subject, []).append(Scored(number, row.probability, is_right))
        found = {name: estimate(dial.scorer, scored, dial.least) for name, scored in rows.items()}
        return {name: result for name, result in found.items() if result.is_drifting}

    def _since_ns(self, dial: DialBack) -> int:
        """Return when it was last set back; 0 for never."""
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
    """Return what a row says something of: a prompt's version, or a cache's route; else None."""
    if dial.prompt is not None:
        return row.prompt_version if row.prompt_name == dial.prompt else None
    is_served = row.route == dial.cache_route and row.response_cache in SERVED_BY_CACHE
    return dial.cache_route if is_served else None


def to_records(looked: Sequence[Dialled | str]) -> list[dict[str, Any]]:
    """Return what was looked at as JSON."""
    return [asdict(d) if isinstance(d, Dialled) else {"error": d} for d in looked]
