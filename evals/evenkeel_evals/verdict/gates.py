"""The grammar of `--gate`: 'accuracy>=-1%, errors<=+1%, p95_ttft<=+5%, shift_ttft<=+3%'."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.answers import LatencyMetric


@dataclass(frozen=True, slots=True)
class AccuracyGate:
    """Accuracy may fall by at most `margin`, a fraction of all items."""

    text: str
    margin: float


@dataclass(frozen=True, slots=True)
class PreferenceGate(AccuracyGate):
    """A judge may prefer the baseline by at most `margin` of the judged pairs, net."""


@dataclass(frozen=True, slots=True)
class ErrorGate:
    """The share of failed requests may rise by at most `margin` of all pairs."""

    text: str
    margin: float


@dataclass(frozen=True, slots=True)
class LatencyGate:
    """A latency may grow by at most `margin`, a fraction of the baseline's.

    Attributes:
        text: The gate as it was written.
        metric: Which latency.
        quantile: Which quantile of it; None for the paired shift.
        margin: Largest tolerated B/A − 1.
    """

    text: str
    metric: LatencyMetric
    quantile: float | None
    margin: float


@dataclass(frozen=True, slots=True)
class CostGate:
    """The candidate's answers may cost more by at most `margin`, a fraction of the baseline's.

    Attributes:
        text: The gate as it was written.
        margin: Largest tolerated B/A − 1.
        unit: Unit of the costs, such as USD; empty until it is known.
    """

    text: str
    margin: float
    unit: str = ""


Gate = AccuracyGate | ErrorGate | LatencyGate | CostGate

# Judged in every run, even if `--gate` does not name errors.
# Shares are floating-point quotients: 4 of 400 must not exceed 1%.
_ROUNDING = 1e-9
USUAL_ERRORS = ErrorGate("errors<=+1%", 0.01)

EXAMPLE = "'accuracy>=-1%, p95_ttft<=+5%, shift_ttft<=+3%'"
_GATE = re.compile(r"^([a-z0-9_.]+)\s*(>=|<=|≥|≤|==|=|<|>)\s*([+\-−]?)\s*(\d+(?:\.\d+)?)\s*(%?)$")
_LATENCY = re.compile(r"^(shift|p(\d{1,2}(?:\.\d+)?))_([a-z0-9]+)$")


def parse_gates(text: str) -> list[Gate]:
    """Return the gates in a comma-separated list, each once.

    Raises:
        ConfigurationError: If the list is empty, or a gate cannot be read, is given twice, points
            the wrong way, or demands an improvement.
    """
    gates = [_parse(part.strip()) for part in text.split(",") if part.strip()]
    if not gates:
        raise ConfigurationError(f"--gate is empty; expected one such as {EXAMPLE}")
    names = [name_of(gate) for gate in gates]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"--gate names {name} twice")
    return gates


def is_more(loss: float, margin: float) -> bool:
    """Return whether a loss exceeds a margin by more than rounding error."""
    return loss > margin + _ROUNDING


def with_errors(gates: Sequence[Gate]) -> list[Gate]:
    """Return the gates, with the errors gate that every run has."""
    is_named = any(isinstance(gate, ErrorGate) for gate in gates)
    return [*gates] if is_named else [*gates, USUAL_ERRORS]


def name_of(gate: Gate) -> str:
    """Return the part before the relation, such as p95_ttft."""
    return re.split("[<>=≥≤ ]", gate.text, maxsplit=1)[0]


def _parse(text: str) -> Gate:
    match = _GATE.match(text)
    if match is None:
        raise ConfigurationError(f"gate {text!r} is not a gate; expected one such as {EXAMPLE}")
    name, relation, sign, digits, percent = match.groups()
    if not percent:
        raise ConfigurationError(
            f"gate {text!r}: the limit needs a percent sign, {_possible_limits(sign, digits)}"
        )
    limit = float(digits) / 100 * (-1 if sign in ("-", "−") else 1)
    compact = f"{name}{relation}{limit * 100:+g}%".replace("≥", ">=").replace("≤", "<=")
    if name in ("accuracy", "preference"):
        _check_direction(text, relation, (">=", "≥"), limit <= 0)
        if limit <= -1:
            raise ConfigurationError(f"gate {text!r}: a loss of {digits}% cannot be exceeded")
        kind = AccuracyGate if name == "accuracy" else PreferenceGate
        return kind(compact, 0.0 - limit)
    if name == "errors":
        _check_direction(text, relation, ("<=", "≤"), limit >= 0)
        return ErrorGate(compact, limit)
    if name == "cost":
        _check_direction(text, relation, ("<=", "≤"), limit >= 0)
        return CostGate(compact, limit)
    return _latency_gate(text, compact, name, relation, limit)


def _possible_limits(sign: str, digits: str) -> str:
    """Return how to write a limit given without a percent sign; below 1 it may be a fraction."""
    if not 0 < float(digits) < 1:
        return f"such as {sign}{digits}%"
    return f"{sign}{float(digits) * 100:.10g}% if it is a fraction, or {sign}{digits}%"


def _latency_gate(text: str, compact: str, name: str, relation: str, limit: float) -> LatencyGate:
    match = _LATENCY.match(name)
    if match is None or match[3] not in list(LatencyMetric):
        raise ConfigurationError(
            f"gate {text!r}: {name!r} is unknown; known: accuracy, preference, errors, cost, and "
            f"shift_, p50_, p95_ or any pNN_ followed by {', '.join(LatencyMetric)}"
        )
    _check_direction(text, relation, ("<=", "≤"), limit >= 0)
    quantile = None if match[2] is None else float(match[2]) / 100
    if quantile is not None and not 0 < quantile < 1:
        raise ConfigurationError(
            f"gate {text!r}: {match[1]} is not a quantile between p1 and p99.9"
        )
    return LatencyGate(compact, LatencyMetric(match[3]), quantile, limit)


def _check_direction(text: str, relation: str, expected: tuple[str, str], is_loss: bool) -> None:
    if relation not in expected:
        raise ConfigurationError(f"gate {text!r}: expected {expected[0]} instead of {relation}")
    if not is_loss:
        raise ConfigurationError(
            f"gate {text!r} demands an improvement; a gate is the largest loss allowed, "
            f"such as {EXAMPLE}"
        )
