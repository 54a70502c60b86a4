"""Builds table rows for changes of prompts, models, servers and control."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel.times import rfc3339
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.control import control
from evenkeel_dashboard.draw.markup import Cell, page_link
from evenkeel_dashboard.draw.request_rows import short_id

Row = Mapping[str, Any]

# A comparison is of this long before a change and after it.
_AROUND_MS = 3_600_000
# Names longer than this are wrapped.
_LONG = 30


def change_cells(
    changes: Sequence[Row], actions: Sequence[Row], params: Mapping[str, str]
) -> list[list[Cell]]:
    """Return changes, newest first; prompts and models link to a comparison around the change.

    The first appearance of a prompt or model is known only to the minute.
    """
    found = []
    for row in changes:
        name, _, version = row["name"].rpartition("@")
        if row["kind"] == "server":
            ids = short_id(row["before"]), short_id(version)
            what = f"another instance of {name}"
            found.append((int(row["first_ms"]), True, what, *ids, Cell("")))
            continue
        is_prompt = row["kind"] == "prompt"
        before = f"{name}@{row['before']}" if is_prompt else row["before"]
        a_to_b = {"by": row["kind"], "a": before, "b": row["name"]}
        found.append(
            (
                int(row["first_ms"]),
                False,
                f"{row['kind']} {name}" if is_prompt else "model",
                row["before"],
                version if is_prompt else row["name"],
                Cell(
                    "compare",
                    href=page_link("compare", {**params, **_around(row["first_ms"]), **a_to_b}),
                ),
            )
        )
    for row in actions:
        said = control(row)
        why = Cell(f"{said.reason or 'no reason given'} ({said.effect})", wraps=True)
        what = f"control: {said.lever}"
        found.append((row["time_ms"], True, what, said.before, said.after, why))
    found.sort(key=lambda change: -change[0])
    return [
        [
            Cell(
                formats.short_moment_ms(at_ms) if is_exact else formats.short_minute_ms(at_ms),
                title="" if is_exact else "in this minute",
                sorts_as=at_ms,
            ),
            Cell(what),
            Cell(before or "–"),
            Cell(after, wraps=len(after) > _LONG),
            more,
        ]
        for at_ms, is_exact, what, before, after, more in found
    ]


def _around(at_ms: int) -> dict[str, str]:
    """Return the range around a change: one of its sides may have no requests in the page's."""
    ends = {"from": at_ms - _AROUND_MS, "to": at_ms + _AROUND_MS}
    return {name: rfc3339(max(0, ms) * 10**6, "seconds") for name, ms in ends.items()}
