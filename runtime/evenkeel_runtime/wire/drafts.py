"""The engine's report to the server on a request's drafts and on speculation as a whole.

It consists of plain numbers in the `kv_transfer_params` of the request's last output, vLLM's only
field that carries a dictionary from the scheduler to the server. The request hook removes it before
vLLM's app sees the output, so clients never do.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

# Key in `kv_transfer_params`, next to those of vLLM's KV connectors.
REPORT_KEY = "evenkeel_speculation"
# Keys in `SamplingParams.extra_args`: the tenant, from whose past answers alone drafts may come and
# who is charged for the request, and False if the request must not have drafts.
TENANT_KEY = "evenkeel_tenant"
SPECULATE_KEY = "evenkeel_speculate"
# The tenant of our own replays; no header can name it.
NO_TENANT = "\0"
# And their priority in vLLM (64 bits, lower first): after whatever control or a client chooses.
LAST_PRIORITY = (1 << 63) - 1
# Its longest draft, if control limits it.
MAX_DRAFT_KEY = "evenkeel_max_draft"
# Drafts of the whole answer: the token ids of an answer, those of other answers to try after it,
# and how much to trust them.
ANSWER_KEY = "evenkeel_draft"
OTHERS_KEY = "evenkeel_draft_others"
TRUST_KEY = "evenkeel_draft_trust"
_TOKEN_BYTES = array("I").itemsize


@dataclass(slots=True)
class DraftCounts:
    """Draft results of one source: element i counts the steps with more than i tokens."""

    drafted: list[int] = field(default_factory=list)
    accepted: list[int] = field(default_factory=list)

    def add(self, drafted: int, accepted: int) -> None:
        """Count one verify step."""
        for _ in range(drafted - len(self.drafted)):
            self.drafted.append(0)
            self.accepted.append(0)
        for position in range(drafted):
            self.drafted[position] += 1
        for position in range(min(accepted, drafted)):
            self.accepted[position] += 1

    @property
    def drafted_tokens(self) -> int:
        """All drafted tokens."""
        return sum(self.drafted)

    @property
    def accepted_tokens(self) -> int:
        """All accepted tokens."""
        return sum(self.accepted)

    @property
    def num_steps(self) -> int:
        """Verify steps that had a draft of this source."""
        return self.drafted[0] if self.drafted else 0


def pack_tokens(tokens: Sequence[int]) -> bytes:
    """Return token ids as bytes: vLLM copies lists in a request's parameters item by item."""
    return array("I", tokens).tobytes()


def unpack_tokens(value: object) -> list[int] | None:
    """Return packed token ids, or a list as it is; None if it is neither."""
    if isinstance(value, bytes) and len(value) % _TOKEN_BYTES == 0:
        return array("I", value).tolist()
    return value if isinstance(value, list) else None


def add_counts(known: DraftCounts | None, more: DraftCounts) -> DraftCounts:
    """Return the sum of both, position by position."""
    if known is None:
        return more
    drafted = zip_longest(known.drafted, more.drafted, fillvalue=0)
    accepted = zip_longest(known.accepted, more.accepted, fillvalue=0)
    return DraftCounts(list(map(sum, drafted)), list(map(sum, accepted)))


@dataclass(frozen=True, slots=True)
class DraftReport:
    """The report in a request's last output.

    Attributes:
        counts: The request's draft results by source.
        engine: The state of speculation, if it changed (`evenkeel_runtime.speculation.state`).
        totals: Drafted tokens, accepted tokens and verify steps of the engine so far, by source.
            Totals and not differences, because the server drops the last output of an aborted
            request.
        engine_index: Index of the engine.
    """

    counts: Mapping[str, DraftCounts]
    engine: Mapping[str, Any] | None = None
    totals: Mapping[str, Sequence[int]] = field(default_factory=dict)
    engine_index: int = 0


def encode_report(report: DraftReport) -> dict[str, Any]:
    """Return the report as plain lists and numbers."""
    encoded: dict[str, Any] = {
        "counts": {source: [c.drafted, c.accepted] for source, c in report.counts.items()},
        "totals": {source: list(numbers) for source, numbers in report.totals.items()},
        "index": report.engine_index,
    }
    return encoded | ({"engine": dict(report.engine)} if report.engine else {})


def take_report(output: Any) -> DraftReport | None:
    """Remove the report from vLLM's output and return it; None if there is none."""
    params = output.kv_transfer_params
    if not params or REPORT_KEY not in params:
        return None
    rest = dict(params)
    data = rest.pop(REPORT_KEY)
    output.kv_transfer_params = rest or None
    counts = {
        source: DraftCounts(list(drafted), list(accepted))
        for source, (drafted, accepted) in data["counts"].items()
    }
    return DraftReport(counts, data.get("engine"), data["totals"], data["index"])
