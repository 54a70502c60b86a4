"""The server's side of speculation: tenant scope, draft counts per request, and the canary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evenkeel_runtime.request.canary import Canary
from evenkeel_runtime.request.trace import EngineRun
from evenkeel_runtime.wire.drafts import add_counts, take_report

# Counters in an engine's state; the rest are gauges.
_ENGINE_COUNTERS = ("errors", "drafting_s", "sampled_watched")


@dataclass(slots=True)
class SpeculationTotals:
    """Speculation counters in the server; they only grow.

    Attributes:
        drafted_tokens: Drafted tokens by source.
        accepted_tokens: Accepted ones by source.
        verify_steps: Verify steps by source.
        engine: The last state of an engine, keyed by the names in
            `evenkeel_runtime.speculation.state`; its counters are those of all engines together.
    """

    drafted_tokens: Counter[str] = field(default_factory=Counter)
    accepted_tokens: Counter[str] = field(default_factory=Counter)
    verify_steps: Counter[str] = field(default_factory=Counter)
    engine: Mapping[str, Any] = field(default_factory=dict)


class SpeculationServer:
    """Tracks speculation in the server; use only on its event loop.

    Args:
        canary: Replays finished requests without drafts.
    """

    def __init__(self, canary: Canary) -> None:
        self.canary = canary
        self.totals = SpeculationTotals()
        self._by_engine: dict[int, Mapping[str, Sequence[int]]] = {}
        self._counters: dict[tuple[int, str], float] = {}

    def start_run(self, run: EngineRun) -> None:
        """Decide whether the canary repeats this request."""
        self.canary.consider(run)

    def record_output(self, run: EngineRun, output: Any) -> None:
        """Take the engine's draft report off an output, restoring the output vLLM produced."""
        if run.canary_tokens is not None:
            self.canary.record_output(run, output)
        report = take_report(output) if hasattr(output, "kv_transfer_params") else None
        if report is None:
            return
        for source, counts in report.counts.items():
            # All sequences of a request count as one request.
            run.drafts_by_source[source] = add_counts(run.drafts_by_source.get(source), counts)
        if report.totals:
            self._by_engine[report.engine_index] = report.totals
            self._sum_up()
        if report.engine is not None:
            self._record_state(report.engine_index, report.engine)

    def _record_state(self, engine_index: int, state: Mapping[str, Any]) -> None:
        summed: dict[str, float] = {}
        for name in _ENGINE_COUNTERS:
            if name in state:
                self._counters[engine_index, name] = state[name]
            found = [value for (_, each), value in self._counters.items() if each == name]
            if found:
                summed[name] = sum(found)
        self.totals.engine = {**state, **summed}

    def _sum_up(self) -> None:
        """Sum the counters of all engines."""
        totals = self.totals
        for counter in (totals.drafted_tokens, totals.accepted_tokens, totals.verify_steps):
            counter.clear()
        for of_engine in self._by_engine.values():
            for source, (drafted, accepted, steps) in of_engine.items():
                totals.drafted_tokens[source] += drafted
                totals.accepted_tokens[source] += accepted
                totals.verify_steps[source] += steps

    def end_run(self, run: EngineRun) -> None:
        """Handle the end of a run."""
        if run.canary_tokens is not None:
            self.canary.enqueue(run)
