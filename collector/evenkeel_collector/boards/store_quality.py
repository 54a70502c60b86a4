"""Verdicts in ClickHouse: SLO budgets, alerts, evaluations, live scores, feedback."""

from __future__ import annotations

from pathlib import Path

from evenkeel_collector.boards.board_model import (
    Board,
    BoardRow,
    BoardSql,
    Columns,
    Panel,
    PanelKind,
    Variable,
)

_HERE = Path(__file__).parent

_SLOS = BoardRow(
    "SLOs and alerts",
    (
        Panel(
            "Budget left",
            "Of the period, as evenkeel evaluated it.",
            (BoardSql(_HERE / "board_budget.sql", "slo"),),
            "percentunit",
        ),
        Panel(
            "Burn rate of the long windows",
            "The highest over the window pairs of each SLO.",
            (BoardSql(_HERE / "board_burn.sql", "slo"),),
        ),
        Panel(
            "Alert changes",
            "Newest first, with what each notification named as its cause.",
            (BoardSql(_HERE / "board_alerts.sql"),),
            kind=PanelKind.TABLE,
            columns=Columns(
                (("budget_left_ratio", "percentunit"),),
                (("slo", "alerts"),),
            ),
        ),
    ),
)

_QUALITY = BoardRow(
    "Answers",
    (
        Panel(
            "Live scores",
            "Mean score of sampled requests, weighted by their sampling probability.",
            (BoardSql(_HERE / "board_live_scores.sql", "monitor"),),
            "percentunit",
        ),
        Panel(
            "Feedback",
            "Mean of what users said, 0 bad to 1 good.",
            (BoardSql(_HERE / "board_feedback.sql", "tenant"),),
            "percentunit",
        ),
        Panel(
            "Evaluation gates",
            "Verdicts of evaluation runs, newest first.",
            (BoardSql(_HERE / "board_gates.sql"),),
            kind=PanelKind.TABLE,
            columns=Columns(links=(("run_id", "evals"),)),
        ),
    ),
)

QUALITY = Board(
    "evenkeel-quality",
    "evenkeel: objectives and answers",
    "For whoever ships prompts: what was promised, what alerted, how good the answers are.",
    "evals",
    (Variable("slo", _HERE / "board_slos.sql", "SLOs evaluated in the range"),),
    (_SLOS, _QUALITY),
)
