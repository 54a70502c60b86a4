"""Formats a report as JSON, Markdown and HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from evenkeel.durations import format_duration
from evenkeel.times import minute_text, rfc3339
from evenkeel_collector.slo.report import SloReport, SloResult

_NOTE = (
    "The budget is that of the reported period: events × (1 − target). Left of it is "
    "1 − (1 − SLI) / (1 − target); below 0 it is overspent."
)
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
       color: #1c2430; background: #fff }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid #d8dee6 }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums }
.over { color: #a3221b; font-weight: 600 }
svg { width: 100%; height: 7rem; background: #f5f7f9 }
@media (prefers-color-scheme: dark) { body { color: #dfe6ee; background: #151b22 }
  th, td { border-color: #323c48 } svg { background: #1d252e } .over { color: #ff8a80 } }
"""
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
    title = f"SLO report, {_span(report)}"
    parts = [
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}'
        f"</title><style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>",
        _html_table(_SUMMARY, _summary(report), numbers=(1, 2, 3, 4, 5)),
        f"<p>{escape(_NOTE)}</p>",
    ]
    for result in report.results:
        parts.append(f"<h2>{escape(result.slo.title)}</h2>")
        parts.append(_burn_down(result))
        parts.append(f"<p>{escape(_worst_day(result))}</p>")
        if result.firings:
            parts.append(_html_table(_FIRINGS, _firings(report, result)))
        if result.corrections:
            table = _html_table(_LEFT_OUT, _left_out(report, result))
            parts.append(f"<h3>Left out</h3>{table}")
    return "\n".join([*parts, "</body></html>"])


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
        rows.append(
            (
                f"{result.slo.title} ({result.slo.name})",
                f"{100 * float(result.slo.target):.6g}%",
                _percent(result.counts.sli, 4),
                _percent(result.budget_left_ratio, 1),
                f"{result.counts.bad:g}",
                f"{result.counts.total:g}",
                alerts or "none",
            )
        )
    return rows


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
    if not bad:
        return "No bad events."
    day = max(bad, key=lambda name: bad[name].bad)
    share = bad[day].bad / result.counts.bad
    return (
        f"Worst day: {day}, {bad[day].bad:g} of {bad[day].total:g} bad, {share:.0%} of all that "
        "were."
    )


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        shown = (" ".join(cell.replace("|", "\\|").split()) for cell in cells)
        return f"| {' | '.join(shown)} |"

    return [line(header), "|---" * len(header) + "|", *map(line, rows)]


def _html_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()
) -> str:
    def cells(tag: str, row: Sequence[str]) -> str:
        shown = []
        for index, cell in enumerate(row):
            words = ["number"] if index in numbers else []
            words += ["over"] if index in numbers and cell.startswith("-") else []
            name = f' class="{" ".join(words)}"' if words else ""
            shown.append(f"<{tag}{name}>{escape(cell)}</{tag}>")
        return f"<tr>{''.join(shown)}</tr>"

    body = "".join(cells("td", row) for row in rows)
    return f"<table><thead>{cells('th', header)}</thead><tbody>{body}</tbody></table>"


def _burn_down(result: SloResult) -> str:
    """Return a chart of the budget left by day, with 100 % at the top and a red line at 0."""
    spent = result.spent_by_day()
    if not spent:
        return ""
    left = [1.0, *(1 - share for _, share in spent)]
    lowest = min(0.0, *left)
    points = " ".join(
        f"{100 * index / max(len(left) - 1, 1):.2f},{100 * (1 - value) / (1 - lowest):.2f}"
        for index, value in enumerate(left)
    )
    zero = 100 / (1 - lowest)
    days = "; ".join(f"{day}: {1 - share:.1%} left" for day, share in spent)
    return (
        '<svg viewBox="0 0 100 100" preserveAspectRatio="none" role="img">'
        f"<title>Error budget left by day. {escape(days)}</title>"
        f'<line x1="0" x2="100" y1="{zero:.2f}" y2="{zero:.2f}" stroke="#c4443c" '
        'vector-effect="non-scaling-stroke" stroke-dasharray="4 3"/>'
        f'<polyline points="{points}" fill="none" stroke="#2f6fb2" stroke-width="2" '
        'vector-effect="non-scaling-stroke"/></svg>'
    )


def _percent(value: float | None, digits: int) -> str:
    return "no data" if value is None else f"{value:.{digits}%}"
