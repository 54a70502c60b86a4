"""Says in one sentence whether a change may ship, and what an evaluation's evidence means."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel.prompts.gate_verdict import OVERALL, REGRESSED
from evenkeel_dashboard.draw import formats

Row = Mapping[str, Any]

_LATENCY = re.compile(r"^(shift|p\d+(?:\.\d+)?)_([a-z0-9]+)$")
_RELATION = re.compile(r"[<>=≥≤ ]")
# Which latency says best how fast a side is: the typical difference, the median, then the tail.
_SPEEDS = ("shift_e2e", "p50_e2e", "shift_ttft", "p50_ttft", "p95_e2e", "p95_ttft")
# How the id of a live evaluation's run begins.
_LIVE = "live-"
_SHARES = ("accuracy", "preference", "errors")
_LEADS = {
    "regressed": "Do not ship {}",
    "inconclusive": "Too little evidence to ship {}",
    "could not measure": "Could not measure {}",
    "worse": "Worse, but within tolerance: you may ship {}",
    "no worse": "Ready to ship {}",
    "better": "Ready to ship {}",
}
_NOTE = re.compile(
    r"^(\d+) (lost|for the baseline), (\d+) (gained|for the candidate); "
    r"exact McNemar[^=]* p = (\d+(?:\.\d+)?(?:e[+-]?\d+)?)$"
)


def gate_name(gate: str) -> str:
    """Return the measure of a gate's text: "p95_ttft<=+5%" → p95_ttft."""
    return _RELATION.split(gate, maxsplit=1)[0]


def is_share(gate: str) -> bool:
    """Return whether a gate's effect is a difference of shares, so that its unit is points."""
    return gate_name(gate) in _SHARES


def effect_words(gate: str, value: float | None) -> str:
    """Return a gate's effect with its unit: −13.3 pp of accuracy, +4.2% of latency.

    A live evaluation's is the share of right answers: 91.5%.
    """
    name = gate_name(gate)
    if name in _SHARES:
        return formats.points(value)
    is_ratio = name == "cost" or _LATENCY.match(name)
    return formats.signed_percent(value) if is_ratio else formats.percent(value)


def is_live(run: Row) -> bool:
    """Return whether a stored run is the drift of a live evaluation, which compares no sides."""
    return run["run_id"].startswith(_LIVE) and not run["sides"]


def drift_sentence(gates: Sequence[Row]) -> str:
    """Return which scores of a live evaluation are too low.

    "Answers in production are not good enough: judge finds 83.2% right, 90.0% is required".
    """
    found = [
        f"{gate_name(gate['gate'])} finds {formats.percent(gate['estimate'])} right, "
        f"{gate['gate'].partition('>=')[2]} is required"
        for gate in gates
        if gate["estimate"] is not None
    ]
    lead = "Answers in production are not good enough"
    return f"{lead}: {', '.join(found)}" if found else lead


def candidate_name(sides: Sequence[str]) -> str:
    """Return the name of side B from a run's sides: its prompt, or the model if A has the same."""
    parts: dict[str, tuple[str, str, str]] = {}
    for side in sides:
        letter, _, rest = side.partition(": ")
        parts.setdefault(letter, rest.partition(", "))
    if "B" not in parts:
        return "the candidate"
    prompt, _, model = parts["B"]
    is_same_prompt = "A" in parts and parts["A"][0] == prompt
    if prompt.startswith("no prompt") or (is_same_prompt and parts["A"][2] != model):
        return model or "the candidate"
    name, _, version = prompt.partition("@")
    return "the candidate" if is_same_prompt or version == "?" else f"{name}@{version[:12]}"


def ship_sentence(verdict: str, sides: Sequence[str], gates: Sequence[Row]) -> str:
    """Return the run's result in one sentence: may it ship, how fast is it, how right is it?

    "Do not ship support@2: 27% faster, 75 points worse on extraction".
    """
    name = candidate_name(sides)
    lead = _LEADS.get(verdict, "No verdict about {}").format(name)
    parts = (_speed(gates), _tail(gates), _accuracy(gates), _cost(gates), _errors(gates))
    reasons = [words for words in parts if words]
    return f"{lead}: {', '.join(reasons)}" if reasons else lead


def _measured(gates: Sequence[Row], name: str) -> list[Row]:
    return [g for g in gates if gate_name(g["gate"]) == name and g["estimate"] is not None]


def _is_certain(gate: Row) -> bool:
    """Whether the interval leaves out "no effect"; a gate without one counts as it is."""
    if gate["lower"] is None or gate["upper"] is None:
        return True
    return bool(gate["lower"] > 0 or gate["upper"] < 0)


def _on(gate: Row) -> str:
    return "" if gate["slice"] in OVERALL else f" on {gate['slice']}"


def _speed(gates: Sequence[Row]) -> str:
    ranked = _ranked_speeds(gates)
    if not ranked:
        return ""
    effect = ranked[0]
    if not _is_certain(effect):
        return "about as fast"
    value = effect["estimate"]
    return f"{formats.percent(abs(value))} {'faster' if value < 0 else 'slower'}"


def _ranked_speeds(gates: Sequence[Row]) -> list[Row]:
    overall = {gate_name(g["gate"]): g for g in gates if g["slice"] in OVERALL and g["estimate"]}
    measured = [name for name in overall if _LATENCY.match(name)]
    return [overall[name] for name in [n for n in _SPEEDS if n in measured] or measured]


def _tail(gates: Sequence[Row]) -> str:
    """Return the worst latency that regressed, unless it is the one that `_speed` names."""
    failed = [
        gate
        for gate in gates
        if _LATENCY.match(gate_name(gate["gate"]))
        and gate["verdict"] == REGRESSED
        and gate["estimate"] is not None
    ]
    worst = max(failed, key=lambda gate: gate["estimate"], default=None)
    if worst is None or worst in _ranked_speeds(gates)[:1]:
        return ""
    return f"{gate_name(worst['gate'])} {formats.percent(worst['estimate'])} slower{_on(worst)}"


def _cost(gates: Sequence[Row]) -> str:
    found = _measured(gates, "cost")
    failed = [gate for gate in found if gate["verdict"] == REGRESSED]
    overall = [gate for gate in found if gate["slice"] in OVERALL and _is_certain(gate)]
    chosen = max(failed or overall, key=lambda gate: gate["estimate"], default=None)
    if chosen is None or not chosen["estimate"]:
        return ""
    value = chosen["estimate"]
    words = "more expensive" if value > 0 else "cheaper"
    return f"{formats.percent(abs(value))} {words}{_on(chosen)}"


def _accuracy(gates: Sequence[Row]) -> str:
    for measure, better, worse in (
        ("accuracy", "better", "worse"),
        ("preference", "preferred", "less preferred"),
    ):
        found = _measured(gates, measure)
        failed = [g for g in found if g["verdict"] == REGRESSED]
        overall = [g for g in found if g["slice"] in OVERALL]
        # The slice with the largest loss: what is worse there can be hidden in the mean.
        sliced = [g for g in failed if g["slice"] not in OVERALL]
        chosen = min(sliced or failed or overall, key=lambda g: g["estimate"], default=None)
        if chosen is None:
            continue
        value = chosen["estimate"]
        if value == 0 or (not failed and not _is_certain(chosen)):
            return "about as accurate" if measure == "accuracy" else "about as preferred"
        points = f"{formats.three_digits(abs(value) * 100)} points"
        return f"{points} {better if value > 0 else worse}{_on(chosen)}"
    return ""


def _errors(gates: Sequence[Row]) -> str:
    failed = failed_requests(gates)
    if not failed:
        return ""
    worst = max(g["estimate"] for g in failed)
    return f"{formats.three_digits(worst * 100)} points more failed requests"


def failed_requests(gates: Sequence[Row]) -> list[Row]:
    """Return the gates on errors that regressed, or that keep the run from passing."""
    return [
        gate
        for gate in _measured(gates, "errors")
        if gate["verdict"] == REGRESSED
        or (gate["verdict"] == "inconclusive" and gate["slice"] in OVERALL)
    ]


def evidence_words(note: str | None) -> str:
    """Return a gate's evidence for people: the counts, and how likely chance alone would be."""
    match = _NOTE.match(note or "")
    if match is None:
        return note or "–"
    lost, kind, gained, _, text = match.groups()
    p = float(text)
    chance = "p < 0.001" if p < 0.001 else f"p = {formats.two_digits(p)}"
    if kind == "lost":
        return f"{int(lost):,} answers got worse, {int(gained):,} better ({chance})"
    return f"{int(lost):,} preferred A, {int(gained):,} B ({chance})"
