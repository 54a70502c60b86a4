"""The evaluation page's prompts: versions in use, what they are like, and what labels mean."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard import markup, reading, wording
from dashboard.markup import Cell, page_link
from dashboard.page import now_ms
from dashboard.signing_in import settings
from evenkeel.errors import ConfigurationError
from evenkeel.prompts import PromptRegistry

_DAYS = 7
_DAY_MS = 86_400_000


def show_prompts() -> None:
    """Draw the versions of the past week, and how to move a label."""
    to_ms = now_ms() // 60_000 * 60_000
    found = reading.rows(
        "prompt_versions", {"from_ms": to_ms - _DAYS * _DAY_MS, "to_ms": to_ms, "model": ""}
    )
    with st.container(border=True, key="card-prompts"):
        st.html(
            f'<div class="ek-title">Prompt versions<small>in use in the last {_DAYS} days, the '
            "newest of each prompt first</small></div>"
        )
        if not found:
            st.caption("No request of this time names a prompt (header x-evenkeel-prompt).")
            return
        labels = _labels({row["prompt_name"] for row in found})
        newest = {row["prompt_name"]: row["prompt_version"] for row in reversed(found)}
        rows = [
            [
                Cell(row["prompt_name"]),
                Cell(row["prompt_version"]),
                Cell(labels.get((row["prompt_name"], row["prompt_version"]), "–")),
                Cell(wording.moment_ms(int(row["first_ms"]))),
                Cell(wording.count(row["num_requests"]), is_number=True),
                Cell(wording.seconds(row["ttft_p95_s"]), is_number=True),
                Cell(wording.seconds(row["e2e_p95_s"]), is_number=True),
                Cell(wording.count(row["output_tokens_mean"]), is_number=True),
                Cell(wording.percent(row["error_ratio"]), is_number=True),
                _comparison(row, newest),
            ]
            for row in found
        ]
        headers = (
            "prompt", "version", "label", "first seen", "requests", "TTFT p95", "total p95",
            "output, mean", "errors", "",
        )  # fmt: skip
        st.html(markup.table(headers, rows, "Prompt versions"))
        st.html(
            markup.remark(
                "A label moves by command, which asks for a run that passed:",
                "evenkeel prompts promote NAME VERSION · evenkeel prompts rollback NAME",
            )
        )


def _comparison(row: dict[str, Any], newest: dict[str, str]) -> Cell:
    if row["prompt_version"] == newest[row["prompt_name"]]:
        return Cell("newest")
    a = f"{row['prompt_name']}@{row['prompt_version']}"
    b = f"{row['prompt_name']}@{newest[row['prompt_name']]}"
    params = {"by": "prompt", "a": a, "b": b, "range": f"{_DAYS}d", "measure": "e2e"}
    return Cell("compare with the newest", href=page_link("compare", params))


def _labels(names: set[str]) -> dict[tuple[str, str], str]:
    """Return the labels of versions; {} without a registry."""
    folder = settings().prompts
    if folder is None:
        return {}
    registry = PromptRegistry(folder)
    found: dict[tuple[str, str], str] = {}
    for name in names:
        try:
            labels = registry.labels(name)
        except ConfigurationError:
            continue
        for label, version in labels.items():
            before = found.get((name, version))
            found[name, version] = f"{before}, {label}" if before else label
    return found
