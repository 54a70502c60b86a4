"""A run as one HTML file that needs nothing else: verdicts, and changed items side by side."""

from __future__ import annotations

from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from evals.changes import count_changes, find_changes
from evals.outcome import Outcome
from evals.report import COLUMNS, LEGEND, cells, judged, side_lines, title, unjudged_lines

# Beyond this the page is slow to open; the counts are shown in any case.
MAX_CHANGES = 300


def to_html(outcome: Outcome, dashboard_url: str) -> str:
    """Return the page; each answer links to its trace at `dashboard_url`."""
    source = (files("evals") / "templates" / "report.html.j2").read_text(encoding="utf-8")
    # Answers are other people's text: everything is escaped.
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    counts = count_changes(outcome.pairs)
    changes = find_changes(outcome.pairs, MAX_CHANGES)
    return environment.from_string(source).render(
        outcome=outcome,
        title=title(outcome),
        columns=COLUMNS,
        rows=[(result, cells(result)) for result in judged(outcome)],
        legend=LEGEND,
        lines=[*unjudged_lines(outcome), *side_lines(outcome)],
        counts=counts,
        changes=changes,
        num_left_out=sum(counts.values()) - len(changes),
        dashboard_url=dashboard_url.rstrip("/"),
    )
