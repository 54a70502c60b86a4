"""HTML of a firing alert in four columns: what, who, why, and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenkeel_dashboard.draw import markup
from evenkeel_dashboard.draw.escaping import escape, exactly
from evenkeel_dashboard.draw.request_rows import example_ids, short_id
from evenkeel_dashboard.frame.selection import ZONE
from evenkeel_dashboard.pages.alerts.model import (
    advice_on,
    burn_window,
    evidence,
    explore_params,
    links,
)

# Alerts that an SLO raises; others are named after their rule, or after what failed.
_OF_SLOS = ("SloBudgetBurn", "SloBudgetSpent", "SloNoData")


def slo_link(alert: Mapping[str, Any], params: Mapping[str, str]) -> str:
    """Return the link to the SLO that raised an alert; "" if none did."""
    if alert["alertname"] not in _OF_SLOS:
        return ""
    return markup.page_link("slo", {"slo": alert["slo"], **params})


def alert_columns(annotations: Mapping[str, str], slo_href: str, params: Mapping[str, str]) -> str:
    """Return an alert's evidence and next steps; the top cause leads to the worst example.

    Args:
        annotations: The alert's annotations.
        slo_href: Link to the SLO's page; "" for none.
        params: The selection's parameters, for links.
    """
    examples = [
        (short_id(i), markup.page_link("request", {"request_id": i, **params}))
        for i in example_ids(annotations.get("exemplars", ""))
    ]
    found = evidence(annotations)
    columns = []
    for question, facts in found.items():
        parts = "".join(
            f"<dt>{escape(name)}</dt><dd>{_linked(name, value, examples)}</dd>"
            for name, value in facts
        )
        columns.append((question, f"<dl>{parts}</dl>" if parts else ""))
    columns.append(("do", _steps(annotations, slo_href, examples, params)))
    inner = "".join(
        f"<section><h4>{question.capitalize()}</h4>{body}</section>"
        for question, body in columns
        if body
    )
    return f'<div class="ek-columns">{inner}</div>'


def _linked(name: str, value: str, examples: list[tuple[str, str]]) -> str:
    """Return a fact; the top cause is a link to the worst example, where the cause is seen."""
    if name == "top cause" and examples:
        return markup.link(value, examples[0][1])
    return escape(value).replace("; ", ";<br>").replace("\n", "<br>")


def _steps(
    annotations: Mapping[str, str],
    slo_href: str,
    examples: list[tuple[str, str]],
    params: Mapping[str, str],
) -> str:
    steps = []
    if examples:
        shown = ", ".join(markup.link(text, href) for text, href in examples)
        steps.append(f"Open an example: {shown}")
    if explored := explore_params(annotations):
        # The link has its own range and filters; the time zone is the reader's.
        explored |= {name: value for name, value in params.items() if name == ZONE}
        steps.append(markup.link("See these requests", markup.page_link("explore", explored)))
    if helps := annotations.get("what_helps"):
        steps.append(f"What would help: {escape(helps)}")
    elif slo_href:
        steps.append(markup.link("See who spent the budget", slo_href))
    if (advice := advice_on(annotations.get("top_cause", ""))) is not None:
        flags = ", ".join(f"<code>{escape(flag)}</code>" for flag in advice.flags)
        steps.append(f"What would help: {escape(advice.text)}{f' Flags: {flags}' if flags else ''}")
    engine = {**params, **burn_window(annotations)}
    steps.append(
        markup.link("See what limited the engine then", markup.page_link("engine", engine))
    )
    steps += [
        f'<a href="{exactly(url)}" rel="noopener" target="_blank">{escape(name)}</a>'
        for name, url in links(annotations)
    ]
    return f"<ul>{''.join(f'<li>{step}</li>' for step in steps)}</ul>"
