"""All boards, in the order of their menu."""

from __future__ import annotations

from evenkeel_collector.boards.caches import CACHES
from evenkeel_collector.boards.collector_health import COLLECTOR
from evenkeel_collector.boards.engine import ENGINE
from evenkeel_collector.boards.engines import ENGINES
from evenkeel_collector.boards.gpu import GPU
from evenkeel_collector.boards.overview import OVERVIEW
from evenkeel_collector.boards.slos import SLOS
from evenkeel_collector.boards.store_quality import QUALITY
from evenkeel_collector.boards.store_requests import REQUESTS

BOARDS = (OVERVIEW, SLOS, ENGINE, ENGINES, CACHES, REQUESTS, QUALITY, COLLECTOR, GPU)
