"""Renders a run as a terminal table and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenkeel_evals.ask.answers import Answer
from evenkeel_evals.report.changes import ChangeKind, count_changes, find_changes
from evenkeel_evals.stats.verdict_names import Verdict
from evenkeel_evals.verdict.finished_run import Outcome
from evenkeel_evals.verdict.gate_verdicts import OVERALL, GateResult
from evenkeel_evals.verdict.gates import CostGate, ErrorGate, Gate, LatencyGate

NO_DATA = "no data"
# Lost items listed in Markdown; the HTML report has more.
LOST_SHOWN = 20
STYLES = {
    Verdict.BETTER: "green",
    Verdict.NO_WORSE: "green",
    Verdict.WORSE: "yellow",
    Verdict.REGRESSED: "bold red",
    Verdict.INCONCLUSIVE: "yellow",
}
COLUMNS = ("gate", "slice", "pairs", "baseline", "candidate", "change", "95% interval", "verdict")
LEGEND = (
    "change: B − A in percentage points (pp); for latency, as the client saw it, B/A − 1.",
    "no worse: shown to be within the gate. worse: shown to be worse, but still within the gate.",
    "regressed: shown to be worse, and beyond the gate. inconclusive: not enough evidence.",
    "better and regressed are corrected for the number of gates and slices tested (Holm).",
)


def print_outcome(outcome: Outcome, console: Console) -> None:
    """Print the table and the verdict."""
    table = Table(title=title(outcome), title_justify="left", title_style="bold")
    for column in COLUMNS:
        is_number = column in ("pairs", "baseline", "candidate", "change")
        table.add_column(column, justify="right" if is_number else "left")
    previous = None
    for result in judged(outcome):
        if previous is not None and previous != result.slice_name:
            table.add_section()
        previous = result.slice_name
        verdict = Text(result.verdict.value, style=STYLES[result.verdict])
        table.add_row(*cells(result)[:-1], verdict)
    console.print(table)
    for line in LEGEND:
        console.print(line, style="dim", highlight=False)
    for line in [*unjudged_lines(outcome), *side_lines(outcome)]:
        console.print(line, markup=False, highlight=False)
    style = {0: "bold green", 1: "bold red"}.get(outcome.decision.exit_code, "bold yellow")
    console.print(Text(f"verdict: {outcome.decision.headline}", style=style))


def to_markdown(outcome: Outcome) -> str:
    """Return the table and the verdict as Markdown."""
    lines = [f"### {title(outcome)}", "", f"**{outcome.decision.headline}**", ""]
    lines += [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(cells(r))} |" for r in judged(outcome)]
    lines += [
        "",
        *LEGEND,
        "",
        *(f"- {line}" for line in [*unjudged_lines(outcome), *side_lines(outcome)]),
        "",
    ]
    lines += _lost_lines(outcome)
    lines += ["What this run could detect:", "", *(f"- {line.describe()}" for line in outcome.plan)]
    lines += [
        "",
        f"Dataset {outcome.dataset_label}, {outcome.dataset.content_hash}; seed {outcome.seed}, "
        f"concurrency {outcome.concurrency}, prefix cache {outcome.cache}; run {outcome.run_id}.",
        "",
    ]
    return "\n".join(lines)


def _lost_lines(outcome: Outcome) -> list[str]:
    counts = count_changes(outcome.pairs)
    lost = [c.pair for c in find_changes(outcome.pairs, LOST_SHOWN) if c.kind is ChangeKind.LOST]
    summary = ", ".join(f"{count} {kind}" for kind, count in counts.items())
    lines = [f"<details><summary>Changed items: {summary}</summary>", ""]
    if lost:
        lines += ["| lost item | slices | trace of the baseline | trace of the candidate |"]
        lines += ["| --- | --- | --- | --- |"]
        lines += [
            f"| {_plain(pair.item.id)} | {_plain(', '.join(pair.item.tags))} "
            f"| {pair.a.trace_id} | {pair.b.trace_id} |"
            for pair in lost
        ]
    return [*lines, "", "</details>", ""]


def _plain(text: str) -> str:
    """Return text escaped for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def title(outcome: Outcome) -> str:
    """Return the title: the two sides and the dataset."""
    a, b = outcome.sides["A"], outcome.sides["B"]
    return (
        f"{outcome.dataset_label}: candidate {b.name} ({b.prompt_label}) "
        f"against baseline {a.name} ({a.prompt_label})"
    )


def judged(outcome: Outcome) -> list[GateResult]:
    """Return the rows of the table; slices too small for a gate are listed below it instead."""
    return [
        r
        for r in outcome.results
        if r.slice_name == OVERALL or (r.effect.estimate is not None and not _is_clean(r))
    ]


def _is_clean(result: GateResult) -> bool:
    """Return whether a slice has no failed requests and needs no row."""
    effect = result.effect
    return isinstance(result.gate, ErrorGate) and not (effect.baseline or effect.candidate)


def unjudged_lines(outcome: Outcome) -> list[str]:
    """Return a line per gate that could not be judged on some slices."""
    names: dict[str, list[str]] = {}
    for result in outcome.results:
        if result.slice_name != OVERALL and result.effect.estimate is None:
            note = f"{result.slice_name} ({result.effect.note})"
            names.setdefault(result.gate.text, []).append(note)
    return [f"{gate} was not judged on {', '.join(slices)}" for gate, slices in names.items()]


def side_lines(outcome: Outcome) -> list[str]:
    """Return a line per side: right answers, tokens and failures."""
    lines = []
    for letter, role in (("A", "baseline"), ("B", "candidate")):
        answers = outcome.answers_of(letter)
        scored = [a.is_right for a in answers if a.is_right is not None]
        counts = [n for a in answers if (n := a.reply.output_tokens) is not None]
        tokens = f", {sum(counts):,} tokens" if counts else ""
        accuracy = f"{sum(scored)} of {len(scored)} right" if scored else NO_DATA
        unscored = len(answers) - len(scored)
        errors = f", {unscored} unscored: {_first_reason(answers)}" if unscored else ""
        lines.append(f"{role} {outcome.sides[letter].name}: {accuracy}{tokens}{errors}")
    lines += [split.describe() for split in outcome.splits]
    if outcome.num_cached:
        lines.append(f"{outcome.num_cached:,} answers came from the answer cache (--answer-cache)")
    if outcome.drift is not None:
        lines.append(outcome.drift.describe())
    if outcome.decision.judge_quality is not None:
        lines.append(outcome.decision.judge_quality.describe())
    return lines


def _first_reason(answers: Sequence[Answer]) -> str:
    return next(a.score.reason or "no reason" for a in answers if a.is_right is None)


def cells(result: GateResult) -> list[str]:
    """Return a row of the table, with the columns of COLUMNS."""
    effect = result.effect
    is_share = not isinstance(result.gate, LatencyGate | CostGate)
    if effect.estimate is None:
        change, interval = NO_DATA, effect.note or NO_DATA
    else:
        change = _change(effect.estimate, is_share)
        bounded = effect.lower is not None and effect.upper is not None
        interval = (
            f"{_change(effect.lower or 0.0, is_share)} to {_change(effect.upper or 0.0, is_share)}"
            if bounded
            else (effect.note if _is_clean(result) else None) or "unbounded"
        )
    return [
        result.gate.text,
        result.slice_name,
        str(effect.num_pairs),
        _value(effect.baseline, result.gate),
        _value(effect.candidate, result.gate),
        change,
        interval,
        result.verdict.value,
    ]


def _change(value: float, is_share: bool) -> str:
    # Round first, then add 0.0, so that values that round to zero have no sign.
    return f"{round(value * 100, 1) + 0.0:+.1f} {'pp' if is_share else '%'}"


def _value(value: float | None, gate: Gate) -> str:
    if value is None:
        return NO_DATA
    if isinstance(gate, CostGate):
        return f"{value:.4g} {gate.unit}".rstrip()
    return f"{value * 1000:.1f} ms" if isinstance(gate, LatencyGate) else f"{value * 100:.1f}%"
