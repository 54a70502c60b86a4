"""The collector: intake, log, store, queries, SLO evaluation, deliveries."""

from __future__ import annotations

from evenkeel_collector.boards.board_model import Board, BoardRow, Panel, PanelKind, Prom
from evenkeel_collector.boards.promql import COLLECTORS, Fleet

_FLEET = Fleet(COLLECTORS)
_OWN = "evenkeel_collector_"

_NOW = BoardRow(
    "Now",
    (
        Panel(
            "Age of the oldest unstored segment",
            "How far pages and SLOs lag. Above a minute: the store is slow or gone.",
            (Prom(_FLEET.highest(f"{_OWN}oldest_unstored_seconds")),),
            "s", PanelKind.FIGURE, 6, 30, 120,
        ),
        Panel(
            "Waiting in the log",
            "Bytes acknowledged but not in the store yet.",
            (Prom(_FLEET.total(f"{_OWN}log_bytes")),),
            "bytes", PanelKind.FIGURE, 6,
        ),
        Panel(
            "Quarantined files",
            "Segments that the store refused, or that were damaged on disk; see"
            " `log/quarantine`.",
            (Prom(_FLEET.total(f"{_OWN}quarantine_files")),),
            "short", PanelKind.FIGURE, 6, 1, 10,
        ),
        Panel(
            "Failed SLO evaluations",
            "In the last hour. While evaluations fail, no alert can fire.",
            (Prom(
                'sum(increase(evenkeel_slo_evaluation_failures_total{instance=~"$collector"}[1h]))'
            ),),
            "short", PanelKind.FIGURE, 6, 1, 5,
        ),
    ),
)  # fmt: skip

_INTAKE = BoardRow(
    "Intake",
    (
        Panel(
            "Spans acknowledged",
            "Written to the log, by transport.",
            (Prom(_FLEET.rate(f"{_OWN}spans_accepted_total", by="transport"), "{{transport}}"),),
            "ops",
        ),
        Panel(
            "Requests rejected",
            "Not acknowledged, by reason; senders retry those that may succeed later.",
            (Prom(_FLEET.rate(f"{_OWN}requests_rejected_total", by="reason"), "{{reason}}"),),
            "reqps",
        ),
        Panel(
            "Time to acknowledge",
            "From the complete body to its record on disk.",
            _FLEET.quantiles(f"{_OWN}acknowledge_seconds"),
            "s",
        ),
        Panel(
            "Connections",
            "Open connections by port.",
            (Prom(_FLEET.total(f"{_OWN}connections", by="port"), "{{port}}"),),
        ),
        Panel(
            "Replacements by redaction",
            "Secrets and personal data replaced, by rule.",
            (Prom(_FLEET.rate(f"{_OWN}redactions_total", by="rule"), "{{rule}}"),),
            "ops",
        ),
        Panel(
            "Scrapes",
            "Of the endpoints that the collector scrapes itself, by result.",
            (
                Prom(
                    _FLEET.rate(f"{_OWN}scrapes_total", by="target, result"),
                    "{{target}} {{result}}",
                ),
            ),
            "ops",
        ),
    ),
)

_STORE = BoardRow(
    "Store and queries",
    (
        Panel(
            "Time of an insert",
            "One log segment, views included.",
            _FLEET.quantiles(f"{_OWN}insert_seconds"),
            "s",
        ),
        Panel(
            "Segments",
            "Stored, failed (retried or quarantined), and quarantined.",
            (
                Prom(_FLEET.rate(f"{_OWN}segments_stored_total"), "stored"),
                Prom(_FLEET.rate(f"{_OWN}insert_failures_total"), "failed"),
                Prom(_FLEET.rate(f"{_OWN}segments_quarantined_total"), "quarantined"),
            ),
            "ops",
        ),
        Panel(
            "Bytes in the log",
            "Grows while the store does not keep up.",
            (Prom(_FLEET.total(f"{_OWN}log_bytes", by="instance"), "{{instance}}"),),
            "bytes",
        ),
        Panel(
            "Time of a query",
            "On the query port, waiting included; what the dashboard's users feel.",
            _FLEET.quantiles(f"{_OWN}query_seconds"),
            "s",
        ),
        Panel(
            "Queries refused or cancelled",
            "Refused: could write, read outside the store, or lift a limit.",
            (
                Prom(_FLEET.rate(f"{_OWN}queries_refused_total"), "refused"),
                Prom(_FLEET.rate(f"{_OWN}queries_cancelled_total"), "cancelled"),
            ),
            "ops",
        ),
        Panel(
            "Repeated bodies",
            "Acknowledged but not stored again: a sender repeated what it had already delivered.",
            (Prom(_FLEET.rate(f"{_OWN}repeated_bodies_total", by="transport"), "{{transport}}"),),
            "reqps",
        ),
    ),
)

_ALERTING = BoardRow(
    "SLOs and alerts",
    (
        Panel(
            "Time of an SLO evaluation",
            "All SLOs, once.",
            (
                Prom(
                    _FLEET.mean("evenkeel_slo_evaluation_seconds_sum",
                         "evenkeel_slo_evaluation_seconds_count"),
                    "mean",
                ),
            ),
            "s",
        ),
        Panel(
            "Deliveries",
            "Attempts to notify, by outcome; `failed` is retried, `dead` was given up.",
            (Prom(_FLEET.rate("evenkeel_alert_deliveries_total", by="outcome"), "{{outcome}}"),),
            "ops",
        ),
        Panel(
            "Invalid files",
            "Changed files that were rejected; the previous version stays in force.",
            (
                Prom(_FLEET.rate("evenkeel_slo_file_rejections_total"), "SLO file"),
                Prom(_FLEET.rate(f"{_OWN}access_files_rejected_total"), "access file"),
                Prom(_FLEET.rate(f"{_OWN}price_files_rejected_total"), "price file"),
            ),
            "ops",
        ),
    ),
)  # fmt: skip

COLLECTOR = Board(
    "evenkeel-collector",
    "evenkeel: collector",
    "For the engineer on call: can what the other boards show be trusted?",
    "",
    (COLLECTORS,),
    (_NOW, _INTAKE, _STORE, _ALERTING),
)
