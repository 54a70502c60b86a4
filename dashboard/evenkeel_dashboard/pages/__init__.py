"""The pages: each is a folder that answers one question; register a new page here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial

from evenkeel_dashboard.frame.missing import show_missing
from evenkeel_dashboard.pages.alerts import page as alerts
from evenkeel_dashboard.pages.cache import page as cache
from evenkeel_dashboard.pages.compare import page as compare
from evenkeel_dashboard.pages.cost import page as cost
from evenkeel_dashboard.pages.engine import page as engine
from evenkeel_dashboard.pages.evals import page as evals
from evenkeel_dashboard.pages.explore import page as explore
from evenkeel_dashboard.pages.health import page as health
from evenkeel_dashboard.pages.latency import page as latency
from evenkeel_dashboard.pages.request import page as request
from evenkeel_dashboard.pages.sessions import page as sessions
from evenkeel_dashboard.pages.slo import page as slo


@dataclass(frozen=True, slots=True)
class Page:
    """One page.

    Attributes:
        path: Its path in the URL; "" is the start page.
        title: Its name in the menu.
        icon: A Material symbol.
        show: Draws it.
    """

    path: str
    title: str
    icon: str
    show: Callable[[], None]


PAGES = (
    Page("", "Health", ":material/monitor_heart:", health.show),
    Page("latency", "Latency", ":material/timeline:", latency.show),
    Page("request", "Request", ":material/view_timeline:", request.show),
    Page("sessions", "Sessions", ":material/forum:", sessions.show),
    Page("slo", "SLO", ":material/target:", slo.show),
    Page("alerts", "Alerts", ":material/notifications:", alerts.show),
    Page("engine", "Engine", ":material/memory:", engine.show),
    Page("cache", "Cache", ":material/inventory_2:", cache.show),
    Page("cost", "Cost", ":material/payments:", cost.show),
    Page("compare", "Compare", ":material/compare_arrows:", compare.show),
    Page("explore", "Explore", ":material/search:", explore.show),
    Page("evals", "Evals", ":material/rule:", evals.show),
)


def page_missing(path: str) -> Page:
    """Return the page to show at a path that no page has."""
    by_name = {page.path or page.title.lower(): page for page in PAGES}
    close = get_close_matches(path.lower(), by_name, 1)
    links = {page.title: page.path for page in PAGES}
    meant = by_name[close[0]].title if close else ""
    return Page(path, "Not found", "", partial(show_missing, path, links, meant))
