"""Decides which requests keep their detail, so that estimates over the detail stay unbiased.

Every request keeps its row. The detail (emission series, step timelines) is kept for requests
that failed or missed an objective, and for the others with a known probability. That
probability is stored on the row, whether the detail is kept or not:

    sample_weight        requests that this row stands for: 1, unless the sender sampled its traces
    detail_probability   P(detail kept | row), 1 where it always is

A sum over all requests is estimated from the rows that have the detail, each counted
sample_weight / detail_probability times (Horvitz and Thompson 1952). The decision depends on the
request alone, and its randomness comes from the trace id: all collectors decide alike, and so does
any other sampler that follows OpenTelemetry's probability sampling (tracestate `ot=th`, `ot=rv`).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from evenkeel import spans
from evenkeel.errors import ConfigurationError
from evenkeel.request_record import REQUEST_FIELDS
from evenkeel_collector.redaction.repeated_fields import remove

DETAIL_PROBABILITY = "evenkeel.detail_probability"
DETAIL_DECISION = "evenkeel.detail_decision"
# Attributes and events that are detail.
DETAIL_PREFIXES = ("evenkeel.emission_", "evenkeel.step")

# OTel: randomness R and rejection threshold T are 56-bit integers; a trace is kept if R >= T, so
# P = (2^56 - T) / 2^56 (specification, trace/tracestate-probability-sampling).
SCALE = 1 << 56
NUM_HEX_DIGITS = 14
TRACE_ID_BYTES = 16

# Columns of `requests` that an objective may judge or select by.
ATTRIBUTE_OF_COLUMN: Mapping[str, str] = {
    name: REQUEST_FIELDS[name].attribute
    for name in (
        *("ttft_s", "tpot_s", "itl_p50_s", "itl_p99_s", "stall_s", "e2e_s", "queue_s"),
        *("model", "tenant", "slo_class", "route", "prompt_name", "prompt_version"),
    )
}


class SamplingReason(StrEnum):
    """Why the detail of a request was kept or not."""

    STATUS = "status"  # it did not end well
    OBJECTIVE = "objective"  # it missed an objective
    PROBABILITY = "probability"  # chance kept it
    DROPPED = "dropped"  # chance did not
    UNTRACED = "untraced"  # no valid trace id, hence no chance to draw from: kept


@dataclass(frozen=True, slots=True)
class LatencyObjective:
    """A latency threshold, missed by requests slower than `max_s`.

    Attributes:
        column: The judged column of `requests`: `ttft_s`, `tpot_s`, `itl_p99_s`, ….
        max_s: Seconds up to and including which a request is good.
        select: Column → the value it must have; empty judges every request.
    """

    column: str
    max_s: float
    select: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampledRequest:
    """The input of a sampling decision.

    Attributes:
        trace_id: 16 bytes.
        trace_state: W3C tracestate, possibly empty.
        attributes: The request span's text and number attributes.
    """

    trace_id: bytes
    trace_state: str
    attributes: Mapping[str, str | float]


@dataclass(frozen=True, slots=True)
class SamplingDecision:
    """The sampling decision for a request's detail.

    Attributes:
        reason: Why the detail is kept or dropped.
        detail_probability: P(detail kept | row), known before the draw: from 0 to 1.
        sample_weight: 1 / P(row), from the sender's own sampling.
    """

    reason: SamplingReason
    detail_probability: float
    sample_weight: float

    @property
    def is_kept(self) -> bool:
        """Whether the detail is kept."""
        return self.reason is not SamplingReason.DROPPED


class Sampler:
    """Decides by status, by objectives, and with a probability for the rest.

    Args:
        probability: Probability, 0 to 1, of keeping the detail of a request that succeeded and met
            its objectives; with 0 nothing can be estimated about these.
        objectives: Thresholds whose misses are always kept.
        bad_statuses: HTTP statuses that are always kept, however the request ended.

    Raises:
        ConfigurationError: If the probability is out of range, or an objective's column unknown.
    """

    def __init__(
        self,
        probability: float,
        objectives: Sequence[LatencyObjective] = (),
        bad_statuses: Iterable[int] = (),
    ) -> None:
        if not 0 <= probability <= 1:  # also NaN
            raise ConfigurationError(
                f"sampling: detail probability is {probability}, expected a fraction from 0 to 1"
            )
        for objective in objectives:
            for column in (objective.column, *objective.select):
                if column not in ATTRIBUTE_OF_COLUMN:
                    raise ConfigurationError(
                        f"sampling: no objective can use column {column!r}; "
                        f"known: {', '.join(ATTRIBUTE_OF_COLUMN)}"
                    )
        self._probability = probability
        self.threshold = threshold_of(probability)
        self._objectives = [
            (
                ATTRIBUTE_OF_COLUMN[objective.column],
                objective.max_s,
                [(ATTRIBUTE_OF_COLUMN[c], value) for c, value in objective.select.items()],
            )
            for objective in objectives
        ]

        # Reading a value costs several times as much as reading a name.
        self._read = {spans.STATUS, spans.SAMPLE_WEIGHT, DETAIL_PROBABILITY}
        for attribute, _, select in self._objectives:
            self._read |= {attribute, *(name for name, _ in select)}
        # Senders write a status as a number or as text.
        self._bad_statuses = {each for code in bad_statuses for each in (code, str(code))}
        if self._bad_statuses:
            self._read.add(spans.HTTP_STATUS)

    def with_objectives(
        self, objectives: Sequence[LatencyObjective], bad_statuses: Iterable[int] = ()
    ) -> Sampler:
        """Return a sampler with the same probability and other objectives and statuses."""
        return Sampler(self._probability, objectives, bad_statuses)

    def decide(self, request: SampledRequest) -> SamplingDecision:
        """Return the decision for one request; every collector makes the same decision."""
        randomness, sent_threshold = read_trace_state(request.trace_state, request.trace_id)
        weight = SCALE / (SCALE - sent_threshold)
        if request.attributes.get(spans.STATUS) != spans.Status.OK:
            return SamplingDecision(SamplingReason.STATUS, 1.0, weight)
        if self._misses_an_objective(request.attributes):
            return SamplingDecision(SamplingReason.OBJECTIVE, 1.0, weight)
        if randomness is None:
            return SamplingDecision(SamplingReason.UNTRACED, 1.0, weight)
        # The sender used the same randomness: what it kept already has R >= its threshold.
        probability = (SCALE - max(self.threshold, sent_threshold)) / (SCALE - sent_threshold)
        is_kept = randomness >= self.threshold
        return SamplingDecision(
            SamplingReason.PROBABILITY if is_kept else SamplingReason.DROPPED, probability, weight
        )

    def _misses_an_objective(self, attributes: Mapping[str, str | float]) -> bool:
        if self._bad_statuses and attributes.get(spans.HTTP_STATUS) in self._bad_statuses:
            return True
        for attribute, max_s, select in self._objectives:
            value = attributes.get(attribute)
            if (
                isinstance(value, (int, float))
                and value > max_s
                and all(attributes.get(name) == wanted for name, wanted in select)
            ):
                return True
        return False

    def apply(self, message: Any) -> Mapping[str, int]:
        """Drop the detail that is not kept from an ExportTraceServiceRequest, in place.

        Request spans (those with `evenkeel.status`) that carry detail get
        `evenkeel.detail_probability` and `evenkeel.detail_decision`; spans that already have them
        are unchanged. `evenkeel.sample_weight` is set from `ot=th` unless the sender set one that
        is not 1, also on spans of other instrumentation, which may be requests. With probability
        1 only this happens.

        Returns:
            Number of requests by reason.
        """
        counts: Counter[str] = Counter()
        for resource_spans in message.resource_spans:
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    if self.threshold or "th:" in span.trace_state:
                        reason = self._apply_to_span(span)
                        if reason is not None:
                            counts[reason.value] += 1
        return counts

    def _apply_to_span(self, span: Any) -> SamplingReason | None:
        attributes: dict[str, str | float] = {}
        detail: list[int] = []
        for index, pair in enumerate(span.attributes):
            key = pair.key
            if key in self._read:
                kind = pair.value.WhichOneof("value")
                if kind in _SCALARS:
                    attributes.setdefault(key, getattr(pair.value, kind))
            elif key.startswith(DETAIL_PREFIXES):
                detail.append(index)
        if spans.STATUS not in attributes:
            # Perhaps a request that another instrumentation traced; it has no detail.
            if span.trace_state:  # Most have none.
                threshold = read_trace_state(span.trace_state, span.trace_id)[1]
                _set_weight(span, attributes, SCALE / (SCALE - threshold))
            return None
        if DETAIL_PROBABILITY in attributes:
            return None
        events = [i for i, e in enumerate(span.events) if e.name.startswith(DETAIL_PREFIXES)]
        decision = self.decide(SampledRequest(span.trace_id, span.trace_state, attributes))
        _set_weight(span, attributes, decision.sample_weight)
        if not self.threshold or not (detail or events):
            return None
        if not decision.is_kept:
            remove(span.attributes, detail)
            remove(span.events, events)
        span.attributes.add(key=DETAIL_PROBABILITY).value.double_value = decision.detail_probability
        span.attributes.add(key=DETAIL_DECISION).value.string_value = decision.reason.value
        return decision.reason


_SCALARS = frozenset({"string_value", "int_value", "double_value"})
_OT_MEMBER = re.compile(r"(?:^|,)[ \t]*ot=([^,]*)")
_THRESHOLD = re.compile(r"(?:^|;)th:([0-9a-f]{1,14})(?:;|$)")
_RANDOMNESS = re.compile(r"(?:^|;)rv:([0-9a-f]{14})(?:;|$)")


def threshold_of(probability: float) -> int:
    """Return the rejection threshold T = (1 − p) · 2^56, for p > 0 never all of it."""
    if probability <= 0:
        return SCALE
    return min(SCALE - 1, SCALE - round(math.ldexp(probability, 56)))


def read_trace_state(trace_state: str, trace_id: bytes) -> tuple[int | None, int]:
    """Return a trace's randomness (None without a valid trace id) and its sender's threshold.

    The randomness is `rv` of the tracestate's `ot` member, else the last 56 bits of the trace id.
    A threshold that this randomness does not pass contradicts itself and counts as none, as the
    specification demands: the span would not be here.
    """
    member = _OT_MEMBER.search(trace_state)
    state = member.group(1).rstrip() if member else ""
    explicit = _RANDOMNESS.search(state)
    randomness: int | None = None
    if explicit:
        randomness = int(explicit.group(1), 16)
    elif len(trace_id) == TRACE_ID_BYTES and any(trace_id):
        randomness = int.from_bytes(trace_id[-7:], "big")
    sent = _THRESHOLD.search(state)
    threshold = int(sent.group(1).ljust(NUM_HEX_DIGITS, "0"), 16) if sent else 0
    if randomness is None or randomness < threshold:
        threshold = 0
    return randomness, threshold


def _set_weight(span: Any, attributes: Mapping[str, str | float], weight: float) -> None:
    if weight != 1 and attributes.get(spans.SAMPLE_WEIGHT, 1) == 1:
        _set(span, spans.SAMPLE_WEIGHT).double_value = weight


def _set(span: Any, key: str) -> Any:
    """Return the value of the span's attribute of this name; add it if missing."""
    for pair in span.attributes:
        if pair.key == key:
            return pair.value
    return span.attributes.add(key=key).value
