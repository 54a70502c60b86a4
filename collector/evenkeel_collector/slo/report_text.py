"""Formats a report as JSON, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from evenkeel.durations import format_duration
from evenkeel.html_templates import html_templates
from evenkeel.times import minute_text, rfc3339
from evenkeel_collector.slo.percent import exact_percent, percent
from evenkeel_collector.slo.report import SloReport, SloResult

if TYPE_CHECKING:
    from evenkeel.slo.model import Slo

_NOTE = (
    "The budget of the reported period is events × (1 − target). The share left is "
    "1 − (1 − SLI) / (1 − target); below 0 the budget is overspent."
)
_SUMMARY = ("SLO", "target", "SLI", "budget left", "bad", "valid", "alerts")
_FIRINGS = ("fired", "lasted", "severity", "top cause")
_LEFT_OUT = ("from", "until", "reason", "who", "why")


def report_json(report: SloReport) -> dict[str, Any]:
    """Return the report as JSON; null where there is no data."""
    return {
        "from": rfc3339(report.from_ns),
        "to": rfc3339(report.to_ns),
        "slos": [
            {
                "slo": result.slo.name,
                "target": float(result.slo.target),
                "good": result.counts.good,
                "total": result.counts.total,
                "sli": result.counts.sli,
                "budget_left_ratio": result.budget_left_ratio,
                "firings": result.num_firings,
                "budget_spent_by_day": dict(result.spent_by_day()),
                "alerts": [
                    {
                        "severity": firing.severity,
                        "fired": rfc3339(firing.fired_ns),
                        "ended": None if firing.ended_ns is None else rfc3339(firing.ended_ns),
                        "top_cause": firing.top_cause,
                    }
                    for firing in result.firings
                ],
                "left_out": [
                    {
                        "from": rfc3339(correction.from_ns),
                        "until": rfc3339(correction.until_ns),
                        "reason": correction.reason,
                        "by": correction.author,
                        "comment": correction.comment,
                    }
                    for correction in result.corrections
                ],
            }
            for result in report.results
        ],
    }


def report_markdown(report: SloReport) -> str:
    """Return the report as a Markdown document."""
    lines = [f"# SLO report, {_span(report)}", "", *_markdown_table(_SUMMARY, _summary(report))]
    lines += ["", _NOTE]
    for result in report.results:
        lines += ["", f"## {result.slo.title}", ""]
        lines.append(_worst_day(result))
        if result.firings:
            lines += ["", *_markdown_table(_FIRINGS, _firings(report, result))]
        if result.corrections:
            lines += ["", "Left out:", "", *_markdown_table(_LEFT_OUT, _left_out(report, result))]
    return "\n".join(lines)


def report_html(report: SloReport) -> str:
    """Return the report as one self-contained HTML page."""
    template = html_templates("evenkeel_collector.slo").get_template("report.html.j2")
    return template.render(
        title=f"SLO report, {_span(report)}",
        note=_NOTE,
        summary=(_SUMMARY, _summary(report)),
        sections=[
            {
                "title": result.slo.title,
                "burn_down": _burn_down(result),
                "worst_day": _worst_day(result),
                "firings": (_FIRINGS, _firings(report, result)),
                "left_out": (_LEFT_OUT, _left_out(report, result)),
            }
            for result in report.results
        ],
    )


def _span(report: SloReport) -> str:
    begin, end = (minute_text(ns, report.zone) for ns in (report.from_ns, report.to_ns))
    return f"{begin} to {end} ({report.zone})"


def _summary(report: SloReport) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for result in report.results:
        alerts = ", ".join(
            f"{count} {name}{'s' if count > 1 else ''}"
            for name, count in result.num_firings.items()
            if count
        )
        is_money = result.slo.indicator.budget is not None
        rows.append(
            (
                f"{result.slo.title} ({result.slo.name})",
                _target_text(result.slo),
                "" if is_money else percent(result.counts.sli, 4),
                percent(result.budget_left_ratio, 1),
                _number(result.counts.bad),
                _number(result.counts.total),
                alerts or "none",
            )
        )
    return rows


def _target_text(slo: Slo) -> str:
    if slo.indicator.budget is not None:
        return f"costs at most {slo.indicator.budget:g} in {slo.period_words}"
    return exact_percent(slo.target)


def _firings(report: SloReport, result: SloResult) -> list[tuple[str, ...]]:
    return [
        (
            minute_text(firing.fired_ns, report.zone),
            "still firing"
            if firing.ended_ns is None
            else format_duration(max((firing.ended_ns - firing.fired_ns) // 10**9, 1)),
            firing.severity,
            firing.top_cause or "",
        )
        for firing in result.firings
    ]


def _left_out(report: SloReport, result: SloResult) -> list[tuple[str, ...]]:
    return [
        (
            minute_text(c.from_ns, report.zone),
            minute_text(c.until_ns, report.zone),
            c.reason,
            c.author,
            c.comment,
        )
        for c in result.corrections
    ]


def _worst_day(result: SloResult) -> str:
    if not result.counts.total:
        return "No data: no events matched."
    bad = {day: counts for day, counts in result.days.items() if counts.bad}
    is_money = result.slo.indicator.budget is not None
    if not bad:
        return "Nothing was spent." if is_money else "No bad events."
    day = max(bad, key=lambda name: bad[name].bad)
    share = bad[day].bad / result.counts.bad
    if is_money:
        return f"Worst day: {day}, {_number(bad[day].bad)} spent, {share:.0%} of all."
    return (
        f"Worst day: {day}, {_number(bad[day].bad)} of {_number(bad[day].total)} bad, {share:.0%} "
        "of all bad events."
    )


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        shown = (" ".join(cell.replace("|", "\\|").split()) for cell in cells)
        return f"| {' | '.join(shown)} |"

    return [line(header), "|---" * len(header) + "|", *map(line, rows)]


def _burn_down(result: SloResult) -> dict[str, str] | None:
    """Return the SVG line of the budget left by day, and the position of zero (all spent)."""
    spent = result.spent_by_day()
    if not spent:
        return None
    left = [1.0, *(1 - share for _, share in spent)]
    lowest = min(0.0, *left)
    points = (
        f"{100 * index / max(len(left) - 1, 1):.2f},{100 * (1 - value) / (1 - lowest):.2f}"
        for index, value in enumerate(left)
    )
    return {
        "days": "; ".join(f"{day}: {percent(1 - share, 1)} left" for day, share in spent),
        "points": " ".join(points),
        "zero": f"{100 / (1 - lowest):.2f}",
    }


def _number(value: float) -> str:
    """Return a number of weighted events, or an amount: whole and grouped from 1,000 on."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:g}"
