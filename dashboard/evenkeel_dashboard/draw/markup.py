"""Renders tiles, tables and bars as HTML, escaping every value: names are user input."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.appearance import Palette
from evenkeel_dashboard.draw.charts import sparkline
from evenkeel_dashboard.draw.escaping import escape, exactly
from evenkeel_dashboard.draw.tiles import Interval, SloTile, StateSummary, Tile

_MAX_NARROW = 24
# A cell does not wrap unless it says so: more than this is on its hover text.
_MAX_CELL = 120
SHORT_ROWS = 8
_MAX_WIDE = 140
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()<>#+\-.!|~$:&])")
_SIGNS = {"good": "✓", "warning": "!", "bad": "▲", "unknown": "?"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One table cell: text, or markup that is already escaped.

    Attributes:
        text: The text to show; escaped here.
        href: Target of the link; "" for none.
        is_number: Aligns right, with tabular figures.
        html: Safe markup to show instead of the text.
        level: good, warning, bad or "" for none.
        wraps: Whether long text wraps.
        title: Shown on hover, such as the internal name behind the text.
        sorts_as: What the column sorts by; None is the text, or the number in it.
        copies: Text that a button beside the cell copies, such as a whole id; "" for no button.
    """

    text: str = ""
    href: str = ""
    is_number: bool = False
    html: str = ""
    level: str = ""
    wraps: bool = False
    title: str = ""
    sorts_as: float | str | None = None
    copies: str = ""


def moment_cell(unix_ms: int) -> Cell:
    """Return a cell with a day and time, which sorts by it."""
    return Cell(formats.short_moment_ms(unix_ms), sorts_as=unix_ms)


def change_cell(now: float | None, before: float | None, unknown: str = "") -> Cell:
    """Return a cell with a value's change, in percent or as a factor, which sorts by both alike."""
    words = formats.change(now, before)
    ratio = None if words is None or now is None or not before else now / before
    return Cell(words or unknown, is_number=True, sorts_as=ratio)


def verdict_banner(verdict: StateSummary, as_of: str) -> str:
    """Return the verdict at the top of a page, with the time it applies to."""
    reason = f'<div class="ek-reason">{escape(verdict.reason)}</div>' if verdict.reason else ""
    headline = escape(verdict.headline)
    if verdict.href:
        headline = _anchor(headline, verdict.href)
    return (
        f'<div class="ek-verdict ek-{verdict.level}" role="status">'
        f'<span class="ek-sign" aria-hidden="true">{_SIGNS[verdict.level]}</span>'
        f'<div><div class="ek-headline">{headline}</div>{reason}</div>'
        f'<div class="ek-asof">{as_of_words(as_of)}</div></div>'
    )


def as_of_words(as_of: str) -> str:
    """Return the "data as of …" line; each part gets its own line on narrow screens."""
    return "<br>".join(escape(part) for part in as_of.split(" · "))


def number_tiles(tiles: Iterable[Tile], compared_with: str) -> str:
    """Return a grid of headline numbers."""
    shown = list(tiles)
    grid = "".join(_number(tile, compared_with) for tile in shown)
    note = f'<div class="ek-note">▲▼ against {escape(compared_with)}</div>'
    return f'<div class="ek-grid ek-numbers">{grid}</div>' + (
        note if any(tile.change for tile in shown) else ""
    )


def _number(tile: Tile, compared_with: str) -> str:
    change = (
        f'<span class="ek-change" title="against {escape(compared_with)}">'
        f"{escape(tile.change)}</span>"
        if tile.change
        else ""
    )
    empty = " ek-empty" if tile.value == "no data" else ""
    # Three values, such as percentiles in milliseconds, are wider than two tiles.
    three = " ek-three" if tile.value.count(" · ") > 1 else ""
    wide = f" ek-span{three}" if tile.is_wide else ""
    return (
        f'<div class="ek-tile{wide}" title="{escape(tile.meaning)}">'
        f'<div class="ek-label">{escape(tile.label)}</div>'
        f'<div class="ek-value{empty}" data-tile="{escape(tile.label)}">{escape(tile.value)}</div>'
        f"{change}</div>"
    )


def slo_tiles(
    tiles: Iterable[SloTile], colours: Palette, chosen: str = "", num_more: int = 0
) -> str:
    """Return a grid of SLO tiles: three numbers, a budget bar and a burn-rate line each.

    Args:
        tiles: The tiles.
        colours: Of the theme.
        chosen: The SLO of the page; "" if it is not an SLO's.
        num_more: SLOs that are left out.
    """
    inner = "".join(_slo(tile, colours, tile.name == chosen) for tile in tiles)
    grid = f'<div class="ek-grid ek-slos">{inner}</div>'
    if not num_more:
        return grid
    where = "in the field above" if chosen else "on the SLO page"
    more = f"Only the worst are shown; {num_more} more are listed {where}."
    return f'{grid}<div class="ek-remark">{more}</div>'


def _slo(tile: SloTile, colours: Palette, is_chosen: bool) -> str:
    name = _anchor(escape(tile.name), tile.href) if tile.href else escape(tile.name)
    width = 0.0 if tile.budget_left_ratio is None else tile.budget_left_ratio * 100
    facts = (
        ("SLI", tile.sli),
        ("budget left", tile.budget_left),
        (f"burn rate (alerts above {tile.alerts_at})", tile.burn),
    )
    numbers = "".join(
        f'<div><div class="ek-label">{escape(label)}</div>'
        f'<div class="ek-fact">{escape(value)}</div></div>'
        for label, value in facts
    )
    return (
        f'<div class="ek-tile ek-slo ek-{tile.level}{" ek-chosen" if is_chosen else ""}">'
        f'<div class="ek-row"><b>{name}</b>{badge(tile.state, tile.level)}</div>'
        f'<div class="ek-label">{escape(tile.objective)}</div>'
        f'<div class="ek-facts">{numbers}</div>'
        f'<div class="ek-bar" role="img" aria-label="budget left: {escape(tile.budget_left)}">'
        f'<span style="width:{width:.1f}%"></span></div>'
        f"{sparkline(tile.burn_history, 1.0, colours)}</div>"
    )


def badge(text: str, level: str) -> str:
    """Return a badge that shows its state by text and sign, not by colour alone."""
    sign = _SIGNS.get(level, "")
    return (
        f'<span class="ek-badge ek-{level}"><i aria-hidden="true">{sign}</i>{escape(text)}</span>'
    )


def phase_bar(
    phases: Sequence[tuple[str, str, float]],
    total: float,
    said: Callable[[float], str] = formats.seconds,
) -> str:
    """Return (name, colour, value) parts as one stacked bar, scaled to `total`.

    Parts without length are neither drawn nor named: they may be unknown. `said` writes a value,
    which is seconds unless it is told otherwise.
    """
    if total <= 0:
        return ""
    drawn = [part for part in phases if part[2] > 0]
    parts = "".join(
        f'<span style="width:{100 * value / total:.2f}%;background:{colour}"></span>'
        for _, colour, value in drawn
    )
    words = escape(", ".join(f"{name} {said(value)}" for name, _, value in drawn))
    return f'<div class="ek-phases" role="img" aria-label="{words}" title="{words}">{parts}</div>'


def signed_bar(value: float, largest: float, words: str, level: str) -> str:
    """Return a difference as a bar from the middle: to the left if negative, else to the right.

    Args:
        value: The difference.
        largest: The largest absolute difference of the column, half a bar wide.
        words: The difference in words.
        level: good, warning, bad or "" for its colour.
    """
    half = 50 * min(abs(value) / largest, 1.0) if largest > 0 else 0.0
    left = 50 - half if value < 0 else 50.0
    return (
        f'<div class="ek-signed ek-{level}" role="img" aria-label="{escape(words)}" '
        f'title="{escape(words)}"><s></s>'
        f'<span style="left:{left:.2f}%;width:{half:.2f}%"></span></div>'
    )


def share_bar(share: float, mark: float) -> str:
    """Return a fraction as a bar, with a tick at a second fraction for comparison."""
    words = f"{formats.percent(share)}, against {formats.percent(mark)}"
    return (
        f'<div class="ek-share" role="img" aria-label="{words}" title="{words}">'
        f'<span style="width:{share * 100:.2f}%"></span>'
        f'<i style="left:{mark * 100:.2f}%"></i></div>'
    )


def interval_bar(interval: Interval | None, level: str, words: str) -> str:
    """Return an interval on a bar whose middle is "no effect"."""
    if interval is None:
        return ""
    margin = (
        ""
        if interval.margin is None
        else f'<u style="left:{interval.margin * 100:.2f}%" title="tolerated loss"></u>'
    )
    width = (interval.upper - interval.lower) * 100
    return (
        f'<div class="ek-interval ek-{level}" role="img" aria-label="{escape(words)}"><s></s>'
        f'{margin}<span style="left:{interval.lower * 100:.2f}%;width:{width:.2f}%"></span>'
        f'<b style="left:{interval.estimate * 100:.2f}%"></b></div>'
    )


def key(items: Iterable[tuple[str, str]]) -> str:
    """Return the legend of a bar: each name with its colour."""
    parts = "".join(
        f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in items
    )
    return f'<div class="ek-key">{parts}</div>'


def table(
    headers: Sequence[str | Cell],
    rows: Iterable[Sequence[Cell]],
    caption: str,
    is_short: bool = False,
) -> str:
    """Return a table that scrolls sideways on narrow screens, and sorts by a click on a header.

    A header that is a cell with a link is followed instead: its page sorts in the store.

    Args:
        headers: Headers of the columns.
        rows: Cells of each row.
        caption: What the table holds, for screen readers.
        is_short: Whether rows after the first `SHORT_ROWS` are shown only on demand.
    """
    body = [list(row) for row in rows]
    numeric = [bool(body) and body[0][i].is_number for i in range(len(headers))]
    head = "".join(
        f'<th scope="col"{_number_class(n)}>{_header(h)}</th>'
        for h, n in zip(headers, numeric, strict=True)
    )
    lines = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in body)
    is_cut = is_short and len(body) > SHORT_ROWS
    more = (
        '<button type="button" class="ek-more" '
        f'data-less="show the first {SHORT_ROWS}">show all {len(body):,}</button>'
        if is_cut
        else ""
    )
    return (
        f'<div class="ek-table{" ek-short" if is_cut else ""}" tabindex="0" role="region" '
        f'aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{lines}</tbody></table>{more}</div>"
    )


def pager(first: int, num_shown: int, num_all: int, before: str, after: str) -> str:
    """Return which rows of how many are shown, with links to those before and after.

    Args:
        first: Number of the first row shown, from 0.
        num_shown: Rows shown.
        num_all: Rows in all.
        before: Link to the rows before; "" for none.
        after: Link to the rows after; "" for none.
    """
    which = f"{first + 1:,}–{first + num_shown:,}" if first else f"{num_shown:,}"
    targets = (("previous", before), ("next", after))
    links = "".join(link(words, href) for words, href in targets if href)
    return f'<div class="ek-pager"><span>{which} of {num_all:,}</span>{links}</div>'


def _header(header: str | Cell) -> str:
    if isinstance(header, str):
        return escape(header)
    return link(header.text, header.href) if header.href else escape(header.text)


def _cell(cell: Cell) -> str:
    text, title = cell.text, cell.title
    if len(text) > _MAX_CELL and not cell.wraps:
        text, title = f"{text[:_MAX_CELL]}…", title or text
    inner = cell.html or escape(text)
    if cell.href:
        inner = _anchor(inner, cell.href)
    if cell.copies:
        inner += (
            f'<button type="button" class="ek-copy" data-copy="{exactly(cell.copies)}" '
            'title="copy" aria-label="copy"></button>'
        )
    level = (f" ek-{cell.level}" if cell.level else "") + (" ek-wrap" if cell.wraps else "")
    hover = f' title="{escape(title)}"' if title else ""
    key = "" if cell.sorts_as is None else f' data-v="{escape(str(cell.sorts_as))}"'
    return f"<td{_number_class(cell.is_number, level)}{hover}{key}>{inner}</td>"


def link(text: str, href: str) -> str:
    """Return a link that opens in the same tab."""
    return _anchor(escape(text), href)


def _anchor(inner: str, href: str) -> str:
    return f'<a href="{exactly(href)}" target="_self">{inner}</a>'


def _number_class(is_number: bool, more: str = "") -> str:
    names = f"{'ek-n' if is_number else ''}{more}".strip()
    return f' class="{names}"' if names else ""


def facts(items: Iterable[tuple[str, str]]) -> str:
    """Return a list of names with values, as many per row as fit."""
    parts = "".join(
        f"<div{_wide(value)}><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
        for name, value in items
    )
    return f'<dl class="ek-list">{parts}</dl>'


def lead(text: str) -> str:
    """Return the line at the top of a page that says what to look for."""
    return f'<div class="ek-lead">{escape(text)}</div>'


def notice(text: str) -> str:
    """Return a one-line warning above a page, such as about a value in the URL."""
    return f'<div class="ek-notice" role="alert">{escape(text)}</div>'


def remark(text: str, command: str) -> str:
    """Return a one-line empty state for part of a page, with the command to run."""
    return f'<div class="ek-remark">{escape(text)} <code>{escape(command)}</code></div>'


def _wide(value: str) -> str:
    if len(value) > _MAX_WIDE:
        return ' class="ek-long"'
    return ' class="ek-wide"' if len(value) > _MAX_NARROW else ""


def hint(title: str, text: str, command: str = "") -> str:
    """Return an empty or failed state: what happened and what to do."""
    code = f"<pre><code>{escape(command)}</code></pre>" if command else ""
    return f'<div class="ek-hint"><b>{escape(title)}</b><div>{escape(text)}</div>{code}</div>'


def plain(text: str) -> str:
    """Return text that reads the same where Streamlit takes Markdown, as in an expander's label."""
    return _MARKDOWN.sub(r"\\\1", text)


def page_link(page: str, params: Mapping[str, str]) -> str:
    """Return the link to a page of this dashboard, relative to any other page."""
    query = urlencode({name: value for name, value in params.items() if value})
    return f"./{page}?{query}" if query else f"./{page}"
