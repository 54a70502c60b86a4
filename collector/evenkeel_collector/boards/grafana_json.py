"""Turns boards into Grafana's JSON, with Grafana's own SDK (docs/decisions/0270)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as dashboards
from grafana_foundation_sdk.builders import prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models import common as common_models
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from evenkeel.store import read_query
from evenkeel_collector.boards.board_model import (
    Board,
    BoardSql,
    Panel,
    PanelKind,
    Prom,
    Source,
    Variable,
)

_TAG = "evenkeel"
_HEIGHT = {PanelKind.CHART: 8, PanelKind.STACKED: 8, PanelKind.FIGURE: 4, PanelKind.TABLE: 9}
# The rollup that most queries read has a row per minute.
_STORE_STEP = "1m"
_RANGE = "from=${__from:date:iso}&to=${__to:date:iso}"
_CELL = re.compile(r"{(\w+)}")

Panels = timeseries.Panel | stat.Panel | table.Panel


class ClickHouseQuery(Dataquery):
    """A target of the ClickHouse data source, whose types the SDK does not have.

    Args:
        sql: The query, with the data source's macros.
        ref_id: The target's letter.
        is_series: Whether its result is drawn over time.
    """

    def __init__(self, sql: str, ref_id: str, is_series: bool) -> None:
        self.sql = sql
        self.ref_id = ref_id
        self.is_series = is_series

    def to_json(self) -> dict[str, object]:
        """Return the target (`CHSqlQuery` in the data source's sources; format 0 is a series)."""
        return {
            "datasource": _source(Source.CLICKHOUSE),
            "editorType": "sql",
            "format": 0 if self.is_series else 1,
            "queryType": "timeseries" if self.is_series else "table",
            "rawSql": self.sql,
            "refId": self.ref_id,
        }


class _Built(Builder[Dataquery]):
    """A query that needs no building."""

    def __init__(self, query: Dataquery) -> None:
        self._query = query

    def build(self) -> Dataquery:
        return self._query


def board_json(board: Board, dashboard_url: str) -> str:
    """Return a board as Grafana imports it.

    Args:
        board: What it shows.
        dashboard_url: Address of the evenkeel dashboard, without a slash at the end.
    """
    builder = (
        dashboards.Dashboard(board.title)
        .uid(board.uid)
        .description(board.description)
        .tags([_TAG])
        .timezone("browser")
        .time("now-1h", "now")
        .refresh("30s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(
            dashboards.DashboardLink("evenkeel")
            .type(models.DashboardLinkType.LINK)
            .url(f"{dashboard_url}/{board.page}?{_RANGE}")
            .icon("external link")
            .tooltip("The same time in the evenkeel dashboard, with causes and single requests")
            .target_blank(True)
        )
        .link(
            dashboards.DashboardLink("Boards")
            .type(models.DashboardLinkType.DASHBOARDS)
            .tags([_TAG])
            .as_dropdown(True)
            .include_vars(True)
            .keep_time(True)
        )
    )
    for source in board.sources:
        builder.with_variable(
            dashboards.DatasourceVariable(source.value)
            .label({"prometheus": "Prometheus", "clickhouse": "ClickHouse"}[source.value])
            .type(source.plugin)
        )
    for variable in board.variables:
        builder.with_variable(_menu(variable))
    for row in board.rows:
        builder.with_row(dashboards.Row(row.title))
        for panel in row.panels:
            builder.with_panel(_panel(panel, dashboard_url))
    built = builder.build()
    for number, one in enumerate(built.panels or (), start=1):
        one.id_val = number
    return json.dumps(built, cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _source(source: Source) -> Mapping[str, str]:
    return {"type": source.plugin, "uid": f"${{{source.value}}}"}


def _reference(source: Source) -> models.DataSourceRef:
    return models.DataSourceRef(source.plugin, f"${{{source.value}}}")


def _menu(variable: Variable) -> dashboards.QueryVariable:
    is_store = isinstance(variable.query, Path)
    source = Source.CLICKHOUSE if is_store else Source.PROMETHEUS
    text = variable.query
    if isinstance(text, Path):
        text = _statement(text, variable.name)
    builder = (
        dashboards.QueryVariable(variable.name)
        .description(variable.description)
        .datasource(_reference(source))
        .query(text)
        .multi(True)
        .include_all(True)
        .current(models.VariableOption(selected=True, text=["All"], value=["$__all"]))
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
    )
    # The ClickHouse data source recognises "all" by itself ($__conditionalAll).
    return builder if is_store else builder.all_value(".+")


def _statement(file: Path, column: str) -> str:
    """Return a query for a column, if it has a place for one, without the comment at its top."""
    lines = read_query(file).replace("{column}", column).splitlines()
    return "\n".join(line for line in lines if not line.startswith("--"))


def _panel(panel: Panel, dashboard_url: str) -> Panels:
    builder = _drawing(panel, dashboard_url)
    builder.title(panel.title).description(panel.description).span(panel.width)
    builder.height(_HEIGHT[panel.kind]).datasource(_reference(panel.source)).unit(panel.unit)
    if panel.source is Source.CLICKHOUSE and panel.kind is not PanelKind.TABLE:
        builder.interval(_STORE_STEP)
    is_series = panel.kind in (PanelKind.CHART, PanelKind.STACKED)
    for number, query in enumerate(panel.queries):
        ref_id = chr(ord("A") + number)
        match query:
            case Prom(expr, legend):
                target = prometheus.Dataquery().expr(expr).legend_format(legend).ref_id(ref_id)
                target.datasource(_reference(Source.PROMETHEUS))
                if panel.kind is PanelKind.TABLE:
                    target.instant()
                    target.format(PromQueryFormat.TABLE)
                else:
                    target.range()
                builder.with_target(target)
            case BoardSql(file, series, column):
                sql = ClickHouseQuery(_statement(file, column), ref_id, is_series)
                builder.with_target(_Built(sql))
                if series:
                    builder.display_name(f"${{__field.labels.{series}}}")
    return builder


def _drawing(panel: Panel, dashboard_url: str) -> Panels:
    match panel.kind:
        case PanelKind.FIGURE:
            figure = stat.Panel().graph_mode(common_models.BigValueGraphMode.AREA)
            figure.reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
            figure.color_mode(common_models.BigValueColorMode.VALUE)
            return figure.thresholds(_thresholds(panel)).no_value("no data")
        case PanelKind.TABLE:
            return _table(panel, dashboard_url)
        case PanelKind.CHART | PanelKind.STACKED:
            chart = timeseries.Panel().no_value("no data")
            chart.legend(
                common_builders.VizLegendOptions()
                .display_mode(common_models.LegendDisplayMode.LIST)
                .placement(common_models.LegendPlacement.BOTTOM)
                .show_legend(True)
            )
            chart.tooltip(
                common_builders.VizTooltipOptions()
                .mode(common_models.TooltipDisplayMode.MULTI)
                .sort(common_models.SortOrder.DESCENDING)
            )
            # A missed scrape is not an outage: connect points up to five minutes apart.
            chart.span_nulls(300_000)
            if panel.kind is PanelKind.STACKED:
                chart.fill_opacity(30).stacking(
                    common_builders.StackingConfig().mode(common_models.StackingMode.NORMAL)
                )
            return chart
    raise AssertionError(panel.kind)


def _table(panel: Panel, dashboard_url: str) -> table.Panel:
    builder = table.Panel().no_value("no data")
    for column, unit in panel.columns.units:
        builder.override_by_name(column, [models.DynamicConfigValue("unit", unit)])
    for column, path in panel.columns.links:
        cell = _CELL.sub(r"${__data.fields.\1}", path)
        glue = "&" if "?" in cell else "?"
        link = {
            "title": "Open in evenkeel",
            "url": f"{dashboard_url}/{cell}{glue}{_RANGE}",
            "targetBlank": True,
        }
        builder.override_by_name(column, [models.DynamicConfigValue("links", [link])])
    for column in panel.columns.hidden:
        builder.override_by_name(column, [models.DynamicConfigValue("custom.hidden", True)])
    return builder


def _thresholds(panel: Panel) -> dashboards.ThresholdsConfig:
    steps = [models.Threshold(None, "green")]
    if panel.warn is not None and panel.alarm is not None:
        if panel.alarm >= panel.warn:
            steps += [models.Threshold(panel.warn, "orange")] if panel.alarm > panel.warn else []
            steps.append(models.Threshold(panel.alarm, "red"))
        else:
            steps = [
                models.Threshold(None, "red"),
                models.Threshold(panel.alarm, "orange"),
                models.Threshold(panel.warn, "green"),
            ]
    return dashboards.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps)
