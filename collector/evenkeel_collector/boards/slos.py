"""SLOs, from the rules that `evenkeel slo export --prometheus` writes and the collector's gauges.

Recorded series have Sloth's names (sloth.dev); groups of a grouped SLO have only the gauges.
"""

from __future__ import annotations

from evenkeel_collector.boards.board_model import (
    Board,
    BoardRow,
    Columns,
    Panel,
    PanelKind,
    Prom,
    Variable,
)

_SLO = 'sloth_slo=~"$slo"'
_FIRING = 'alertstate="firing", alertname=~"SloBudgetBurn|SloNoData|SloRule"'
_BURN = (
    f'{{__name__=~"slo:sli_error:ratio_rate.+", {_SLO}}}'
    " / on (sloth_id, sloth_slo, sloth_service) group_left ()"
    f" slo:error_budget:ratio{{{_SLO}}}"
)

_NOW = BoardRow(
    "Now",
    (
        Panel(
            "Firing",
            "Alerts of the exported rules that fire, evaluated by Prometheus. evenkeel's own alerts"
            " are on its Alerts page.",
            (Prom(f"count(ALERTS{{{_FIRING}}}) or vector(0)"),),
            "short", PanelKind.FIGURE, 4, 1, 1,
        ),
        Panel(
            "Budget left",
            "1 − bad events / allowed bad events of the period; below 0 it is overspent.",
            (Prom(f"sum by (sloth_slo) (slo:period_error_budget_remaining:ratio{{{_SLO}}})",
                  "{{sloth_slo}}"),),
            "percentunit", PanelKind.FIGURE, 10, 0.5, 0.1,
        ),
        Panel(
            "Burn rate, last 5 minutes",
            "At 1 the budget lasts exactly the period.",
            (Prom(f"sum by (sloth_slo) (slo:current_burn_rate:ratio{{{_SLO}}})", "{{sloth_slo}}"),),
            "short", PanelKind.FIGURE, 10, 1, 6,
        ),
    ),
)  # fmt: skip

_BURNS = BoardRow(
    "Budget and burn rates",
    (
        Panel(
            "Burn rate by window",
            "Bad ratio / (1 − target). An alert fires when a long and its short window both exceed"
            " their factor.",
            (Prom(_BURN, "{{sloth_slo}} {{sloth_window}}"),),
            "short", PanelKind.CHART, 12,
        ),
        Panel(
            "Budget left",
            "Recorded by Prometheus from the events that it scraped.",
            (Prom(f"sum by (sloth_slo) (slo:period_error_budget_remaining:ratio{{{_SLO}}})",
                  "{{sloth_slo}}"),),
            "percentunit", PanelKind.CHART, 12,
        ),
        Panel(
            "Alerts",
            "Pending and firing over time.",
            (Prom('sum by (alertname, slo, severity, alertstate) (ALERTS{alertname=~"Slo.+"})',
                  "{{slo}} {{severity}} {{alertstate}}"),),
            "short", PanelKind.STACKED, 12,
        ),
        Panel(
            "Objectives",
            "Target of each SLO, as exported.",
            (Prom(f"sum by (sloth_slo) (slo:objective:ratio{{{_SLO}}})", "{{sloth_slo}}"),),
            "percentunit", PanelKind.TABLE, 12,
            columns=Columns(units=(("Value", "percentunit"),), hidden=("Time",)),
        ),
    ),
)  # fmt: skip

_OWN = BoardRow(
    "As evenkeel evaluates them",
    (
        Panel(
            "SLI",
            "Good / valid requests of the period, from the store, groups included.",
            (Prom('evenkeel_slo_sli_ratio{slo=~"$slo(/.+)?"}', "{{slo}}"),),
            "percentunit",
        ),
        Panel(
            "Budget left",
            "From the store; Prometheus knows only what it scraped.",
            (Prom('evenkeel_slo_budget_left_ratio{slo=~"$slo(/.+)?"}', "{{slo}}"),),
            "percentunit",
        ),
        Panel(
            "Bad events",
            "Bad events per second.",
            (
                Prom(
                    'sum by (slo) (rate(evenkeel_slo_bad_events_total{slo=~"$slo(/.+)?"}'
                    "[$__rate_interval]))",
                    "{{slo}}",
                ),
            ),
            "ops",
        ),
    ),
)

SLOS = Board(
    "evenkeel-slo",
    "evenkeel: SLOs",
    "For whoever answers for the objectives: what burns, how fast, and how much budget is left.",
    "slo",
    (
        Variable(
            "slo",
            "label_values(sloth_slo_info, sloth_slo)",
            "SLOs in the exported rules",
        ),
    ),
    (_NOW, _BURNS, _OWN),
)
