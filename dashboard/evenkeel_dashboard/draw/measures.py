"""The latency measures that pages offer, with their names."""

from __future__ import annotations

MEASURES = {
    "ttft": "TTFT",
    "itl": "ITL",
    "tpot": "TPOT",
    "stall": "stall",
    "queue": "queue",
    "e2e": "total",
}
