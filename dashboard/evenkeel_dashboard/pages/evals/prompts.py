"""Draws the prompts of the evals page: versions in use, labels, and moving a label."""

from __future__ import annotations

from difflib import unified_diff
from pathlib import Path
from typing import Any

import streamlit as st

from evenkeel.prompts.gate_verdict import read_stored_run
from evenkeel.prompts.registry import LABELS
from evenkeel_dashboard.draw import formats, markup
from evenkeel_dashboard.draw.markup import Cell, moment_cell, page_link
from evenkeel_dashboard.frame import reading
from evenkeel_dashboard.frame.action import (
    Order,
    action_button,
    author_field,
    may_act,
    show_refusal,
)
from evenkeel_dashboard.frame.collector_api import CollectorError, ask_json
from evenkeel_dashboard.frame.page import now_ms, selection
from evenkeel_dashboard.frame.signing_in import identity, settings

_HERE = Path(__file__).parent
Row = dict[str, Any]

_DAYS = 7
_DAY_MS = 86_400_000


def show_prompts(runs: list[Row]) -> None:
    """Draw the versions of the past week, the labels, and the form to move one."""
    registry, why_not = _read_registry()
    _show_versions(_labels(registry))
    if registry:
        _show_labels(registry, runs)
    else:
        _say_no_registry(why_not)


def _say_no_registry(why_not: str) -> None:
    if "--prompts-dir" in why_not:
        text = "No prompt registry. Start the collector with"
        st.html(markup.remark(text, "evenkeel collect --prompts-dir DIR"))
    elif why_not:
        st.html(markup.notice(f"No prompt registry: {why_not}"))
    else:
        st.html(markup.remark("The registry has no prompts. Its folder is listed by",
                              "evenkeel prompts list"))  # fmt: skip


def _show_versions(labels: dict[tuple[str, str], str]) -> None:
    to_ms = now_ms() // 60_000 * 60_000
    found = reading.rows(
        _HERE / "prompt_versions.sql",
        {"from_ms": to_ms - _DAYS * _DAY_MS, "to_ms": to_ms, "model": ""},
    )
    num_all = found[0]["num_versions"] if found else 0
    some = f"; {len(found)} of {num_all:,}" if num_all > len(found) else ""
    with st.container(border=True, key="card-prompts"):
        st.html(
            f'<div class="ek-title">Prompt versions<small>in use in the last {_DAYS} days, the '
            f"newest of each prompt first{some}</small></div>"
        )
        if not found:
            st.caption("No requests name a prompt (header x-evenkeel-prompt).")
            return
        newest = {row["prompt_name"]: row["prompt_version"] for row in reversed(found)}
        rows = [
            [
                Cell(row["prompt_name"]),
                Cell(row["prompt_version"]),
                Cell(labels.get((row["prompt_name"], row["prompt_version"]), "–")),
                Cell(
                    formats.short_minute_ms(int(row["first_ms"])),
                    sorts_as=int(row["first_ms"]),
                    title="in this minute",
                ),
                Cell(formats.count(row["num_requests"]), is_number=True),
                Cell(formats.seconds(row["ttft_p95_s"]), is_number=True),
                Cell(formats.seconds(row["e2e_p95_s"]), is_number=True),
                Cell(formats.count(row["output_tokens_mean"]), is_number=True),
                Cell(formats.percent(row["error_ratio"]), is_number=True),
                _comparison(row, newest),
            ]
            for row in found
        ]
        headers = (
            "prompt", "version", "label", formats.zoned("first seen"), "requests", "TTFT p95",
            "total p95", "output, mean", "errors", "",
        )  # fmt: skip
        st.html(markup.table(headers, rows, "Prompt versions", is_short=True))


def _comparison(row: Row, newest: dict[str, str]) -> Cell:
    if row["prompt_version"] == newest[row["prompt_name"]]:
        return Cell("newest")
    a = f"{row['prompt_name']}@{row['prompt_version']}"
    b = f"{row['prompt_name']}@{newest[row['prompt_name']]}"
    # The table is of the last days, of all requests.
    params = selection().unfiltered().relative(f"{_DAYS}d").to_params()
    params |= {"by": "prompt", "a": a, "b": b, "measure": "e2e"}
    return Cell("compare with the newest", href=page_link("compare", params))


def _show_labels(registry: list[Row], runs: list[Row]) -> None:
    """Draw the version of each label, and promotion and rollback for users who may do it."""
    with st.container(border=True, key="card-labels"):
        st.html(
            '<div class="ek-title">Labels<small>the version that each label points to; requests '
            "for prompt@label follow a change within a second</small></div>"
        )
        rows = [
            [
                Cell(prompt["name"]),
                Cell(label),
                Cell(version),
                Cell(_last_move(prompt, label)["reason"], wraps=True),
                moment_cell(_last_move(prompt, label)["time_s"] * 1000),
                Cell(prompt["goes_back_to"].get(label) or "–"),
            ]
            for prompt in registry
            for label, version in sorted(prompt["labels"].items())
        ]
        if rows:
            headers = ("prompt", "label", "version", "why", formats.zoned("since"), "goes back to")
            st.html(markup.table(headers, rows, "Labels of prompts"))
        else:
            st.caption("No labels yet. Promote a version.")
        if not may_act():
            st.caption("Moving a label requires a token with the admin scope.")
            return
        with st.expander("Promote or roll back", key="moving"):
            _show_promotion(registry, runs)
            _show_rollback(registry)


def _last_move(prompt: Row, label: str) -> Row:
    found: Row = next(move for move in prompt["moves"] if move["label"] == label)
    return found


def _show_promotion(registry: list[Row], runs: list[Row]) -> None:
    names = [prompt["name"] for prompt in registry]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("prompt", names, width=180, key="promote-name")
        prompt = next(p for p in registry if p["name"] == name)
        label = st.selectbox("label", LABELS, width=150, key="promote-label")
        options = [v["version"] for v in reversed(prompt["versions"])]
        current = prompt["labels"].get(label)
        options = [v for v in options if v != current]
        version = st.selectbox(
            "version",
            options,
            format_func=lambda v: f"{v} (draft)" if v == prompt["draft"] else v,
            width=210,
            key="promote-version",
            placeholder="no other version",
        )
        passed = [r["run_id"] for r in runs if _is_proof(r, version, current)]
        run_id = st.selectbox(
            "passing run",
            ["", *passed],
            format_func=lambda r: r or "none (give a reason)",
            width=230,
            key="promote-run",
        )
    if version is None:
        return
    _show_difference(prompt, current, version)
    # Keyed by move: the reason typed for one move is not meant for the next.
    reason_key = f"promote-reason-{name}-{version}"

    def read() -> tuple[Order, str]:
        order = {"prompt": name, "version": version, "label": label}
        order["reason"] = st.session_state[reason_key]
        return order | ({"run_id": run_id} if run_id else {}), f"{name}@{label} is {version}."

    with st.form("promote", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            author_field("promote")
            st.text_input("reason, without a run", key=reason_key)
            said, key = f"Promote to {label}", f"send-promote-{name}-{version}-{label}"
            action_button(said, key, "promote", read, "promote", is_primary=True)
        show_refusal(key)


def _show_difference(prompt: Row, current: str | None, version: str) -> None:
    texts = {v["version"]: v["system"] for v in prompt["versions"]}
    if current is None or current not in texts:
        st.code(texts[version], language=None, wrap_lines=True)
        return
    lines = unified_diff(
        texts[current].splitlines(), texts[version].splitlines(), current, version, lineterm=""
    )
    st.code("\n".join(lines), language="diff", wrap_lines=True)


def _is_proof(run: Row, version: str | None, current: str | None) -> bool:
    """Whether a run passed that compared just this text and the one in use, as `promote` asks."""
    judged = read_stored_run(run["run_id"], run)
    is_of_both = (
        version is not None and judged.candidate == version and current in (None, judged.baseline)
    )
    return judged.is_passed and is_of_both and not judged.other_changes


def _show_rollback(registry: list[Row]) -> None:
    back = {
        f"{prompt['name']}@{label}": (prompt["name"], label, before)
        for prompt in registry
        for label, before in prompt["goes_back_to"].items()
        if before
    }
    if not back:
        st.caption("No label has an earlier version.")
        return

    def read() -> tuple[Order, str]:
        chosen = st.session_state["rollback-label"]
        name, label, before = back[chosen]
        order = {"prompt": name, "label": label, "reason": st.session_state["rollback-reason"]}
        return order, f"{chosen} is {before} again."

    with st.form("rollback", border=False):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            st.selectbox(
                "roll back",
                list(back),
                format_func=lambda r: f"{r} to {back[r][2]}",
                width=330,
                key="rollback-label",
            )
            author_field("rollback")
            st.text_input("why", key="rollback-reason")
            action_button("Roll back", "send-rollback", "rollback", read, "rollback")
        show_refusal("send-rollback")


def _read_registry() -> tuple[list[Row], str]:
    """Return the prompts of the collector's registry, or the reason that there are none."""
    try:
        found = ask_json(settings().collector_url, "prompts", identity().token)
    except CollectorError as error:
        return [], str(error)
    return list(found["prompts"]), ""


def _labels(registry: list[Row]) -> dict[tuple[str, str], str]:
    """Return the labels of versions."""
    found: dict[tuple[str, str], str] = {}
    for prompt in registry:
        for label, version in prompt["labels"].items():
            before = found.get((prompt["name"], version))
            found[prompt["name"], version] = f"{before}, {label}" if before else label
    return found
