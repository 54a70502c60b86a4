"""What a board shows, without Grafana's own types: rows of panels, each with its queries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Source(StrEnum):
    """A data source that boards read; also the name of the variable that selects it."""

    PROMETHEUS = "prometheus"
    CLICKHOUSE = "clickhouse"

    @property
    def plugin(self) -> str:
        """Grafana's identifier for this kind of data source."""
        return {"prometheus": "prometheus", "clickhouse": "grafana-clickhouse-datasource"}[self]


class PanelKind(StrEnum):
    """How a panel draws its queries."""

    CHART = "chart"
    STACKED = "stacked"
    FIGURE = "figure"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Prom:
    """A PromQL query, and the legend of its series (`{{label}}` is replaced)."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class BoardSql:
    """A ClickHouse query in a file; a chart's query has a column `time`.

    Attributes:
        file: The query, with the data source's macros.
        series: The column that names the series; empty if each column is a series of its own.
        column: Replaces `{column}` in the query.
    """

    file: Path
    series: str = ""
    column: str = ""


@dataclass(frozen=True, slots=True)
class Columns:
    """How a table shows its columns.

    Attributes:
        units: Grafana's unit by column.
        links: Path in the evenkeel dashboard by column; `{column}` is a cell of the same row.
        hidden: Columns used only in links.
    """

    units: tuple[tuple[str, str], ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel.

    Attributes:
        title: Its heading.
        description: What it shows and what to do about it.
        queries: All from one data source.
        unit: Grafana's identifier, such as `s`, `percentunit`, `reqps`.
        kind: How it is drawn.
        width: Of 24 columns.
        warn: Value at which a figure turns orange; None never does.
        alarm: Value at which it turns red; below `warn` if low values are bad.
        columns: For a table.
    """

    title: str
    description: str
    queries: tuple[Prom | BoardSql, ...]
    unit: str = "short"
    kind: PanelKind = PanelKind.CHART
    width: int = 8
    warn: float | None = None
    alarm: float | None = None
    columns: Columns = Columns()

    @property
    def source(self) -> Source:
        """The data source of its queries."""
        is_prom = isinstance(self.queries[0], Prom)
        return Source.PROMETHEUS if is_prom else Source.CLICKHOUSE


@dataclass(frozen=True, slots=True)
class BoardRow:
    """A headed group of panels."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Variable:
    """A menu above the board; several values, or all, can be chosen.

    Attributes:
        name: As in `$name`.
        query: `label_values(…)`, or a file with one column; the name replaces `{column}` in it.
        description: Shown next to the menu.
    """

    name: str
    query: str | Path
    description: str


@dataclass(frozen=True, slots=True)
class Board:
    """One Grafana dashboard.

    Attributes:
        uid: Its identifier, in its address and its file's name.
        title: Its name.
        description: Whom it is for.
        page: Path of the matching page in the evenkeel dashboard; "" is the start page.
        variables: Its menus.
        rows: Its panels.
    """

    uid: str
    title: str
    description: str
    page: str
    variables: tuple[Variable, ...]
    rows: tuple[BoardRow, ...]

    @property
    def sources(self) -> Sequence[Source]:
        """The data sources it reads."""
        return sorted({panel.source for row in self.rows for panel in row.panels})
