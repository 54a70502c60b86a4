"""Renders a run as one self-contained HTML file: verdicts, and changed items side by side.

The page stays below MAX_BYTES for any answers: texts are truncated, and changed items are included
as long as there is room. The page says what was left out.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from jinja2 import Environment
from markupsafe import Markup

from evenkeel.html_templates import html_templates
from evenkeel_evals.report.changes import ItemChange, Segment, count_changes, each_change
from evenkeel_evals.report.table import (
    COLUMNS,
    LEGEND,
    cells,
    judged,
    side_lines,
    title,
    unjudged_lines,
)
from evenkeel_evals.verdict.finished_run import Outcome

MAX_BYTES = 5_000_000
# Beyond this the page is slow to open; the counts are always shown.
MAX_CHANGES = 300
CHANGES_BYTES = 4_000_000
NUM_OPEN = 20
# Per question, reference or answer; the excerpt includes the first change.
MAX_TEXT_CHARS = 4_000
CONTEXT_CHARS = 500
# If every other character changed, the markup would be larger than the text.
MAX_SEGMENTS = 1_000
MAX_TURNS = 12
MAX_ROWS = 200
MAX_LINES = 40
MAX_LINE_CHARS = 600
MAX_NAME_CHARS = 120


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text as shown on the page.

    Attributes:
        segments: Its segments, with the changed ones marked.
        num_before: Characters left out before them.
        num_after: Characters left out after them.
    """

    segments: tuple[Segment, ...]
    num_before: int
    num_after: int


def to_html(outcome: Outcome, dashboard_url: str) -> str:
    """Return the page; each answer links to its trace at `dashboard_url`."""
    environment = html_templates("evenkeel_evals.report", "templates")
    environment.filters["shorten"] = shorten
    environment.filters["cut"] = cut
    counts = count_changes(outcome.pairs)
    changes = _changes(environment, outcome, dashboard_url)
    results = judged(outcome)
    script = (files("evenkeel_evals.report") / "templates" / "report.js").read_text(
        encoding="utf-8"
    )
    return environment.get_template("report.html.j2").render(
        outcome=outcome,
        title=title(outcome),
        columns=COLUMNS,
        rows=[cells(result) for result in results[:MAX_ROWS]],
        num_rows_left_out=max(0, len(results) - MAX_ROWS),
        legend=LEGEND,
        lines=_first([*unjudged_lines(outcome), *side_lines(outcome)]),
        plan=_first([line.describe() for line in outcome.plan]),
        counts=counts,
        changes=changes,
        num_left_out=sum(counts.values()) - len(changes),
        script=Markup(script),
        # No other script runs and nothing is loaded, whatever an answer contains.
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _changes(environment: Environment, outcome: Outcome, dashboard_url: str) -> list[Markup]:
    """Return as many changed items as there is room for, each as HTML."""
    template = environment.get_template("report_item.html.j2")
    room = CHANGES_BYTES
    shown: list[Markup] = []
    for change in each_change(outcome.pairs, MAX_CHANGES):
        html = template.render(
            change=change,
            messages=change.pair.item.messages[:MAX_TURNS],
            num_turns_left_out=max(0, len(change.pair.item.messages) - MAX_TURNS),
            reference=_as_text(change.pair.item.reference),
            sides=_sides(change, outcome),
            is_open=change.kind == "lost" and len(shown) < NUM_OPEN,
            dashboard_url=dashboard_url.rstrip("/"),
        )
        room -= len(html.encode("utf-8", "replace"))
        if room < 0:
            break
        shown.append(Markup(html))
    return shown


def _sides(change: ItemChange, outcome: Outcome) -> list[dict[str, object]]:
    return [
        {"letter": letter, "name": outcome.sides[letter.upper()].name, "answer": answer,
         "text": show(segments)}
        for letter, answer, segments in (
            ("a", change.pair.a, change.a), ("b", change.pair.b, change.b))
    ]  # fmt: skip


def show(segments: Sequence[Segment]) -> ShownText:
    """Return up to MAX_TEXT_CHARS of a text, around its first change."""
    length = sum(len(segment.text) for segment in segments)
    first = 0
    for segment in segments:
        if segment.is_changed:
            break
        first += len(segment.text)
    start = 0
    if length > MAX_TEXT_CHARS and CONTEXT_CHARS < first < length:
        start = min(first - CONTEXT_CHARS, length - MAX_TEXT_CHARS)
    end = start + MAX_TEXT_CHARS
    shown: list[Segment] = []
    place = num_shown = 0
    for segment in segments:
        text = segment.text[max(0, start - place) : max(0, end - place)]
        place += len(segment.text)
        if text and len(shown) < MAX_SEGMENTS:
            shown.append(Segment(text, segment.is_changed))
            num_shown += len(text)
    return ShownText(tuple(shown), start, length - start - num_shown)


def cut(text: str) -> ShownText:
    """Return the beginning of a text without changes."""
    return show((Segment(text, False),))


def shorten(text: object, limit: int = MAX_NAME_CHARS) -> str:
    """Return a name or a line, at most `limit` characters of it."""
    whole = str(text)
    return whole if len(whole) <= limit else f"{whole[: limit - 1]}…"


def _first(lines: Sequence[str]) -> list[str]:
    """Return the first lines, each shortened, and the number of further lines."""
    shown = [shorten(line, MAX_LINE_CHARS) for line in lines[:MAX_LINES]]
    num_more = len(lines) - len(shown)
    return [*shown, f"and {num_more:,} more lines in run.json"] if num_more else shown


def _as_text(reference: object) -> str:
    if isinstance(reference, str):
        return reference
    return json.dumps(reference, ensure_ascii=False, default=str)
