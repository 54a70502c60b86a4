"""Rows shown a page at a time, with the page's number in the URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evenkeel_dashboard.draw.markup import page_link

_MOST_PAGES = 10_000


def page_number(text: str) -> int:
    """Return the page in the URL, from 1; the first if it is not a number."""
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 1
    return min(max(number, 1), _MOST_PAGES)


def pages_beside(
    path: str, params: Mapping[str, str], first: int, num_shown: int, num_all: int
) -> tuple[str, str]:
    """Return the links to the pages before and after; "" where there is none.

    Args:
        path: The page's path.
        params: The parameters of the page's URL.
        first: Number of the first row shown, from 0.
        num_shown: Rows shown.
        num_all: Rows in all.
    """
    number = page_number(params.get("page", ""))

    def link_to(page: int) -> str:
        return page_link(path, {**params, "page": "" if page == 1 else str(page)})

    before = link_to(number - 1) if number > 1 else ""
    return before, link_to(number + 1) if first + num_shown < num_all else ""


def rows_or_first_page(
    read: Callable[[int], list[dict[str, Any]]], first: int
) -> tuple[list[dict[str, Any]], int]:
    """Return a page's rows and its first row's number; the first page if it has none.

    Other filters or another range may have had more pages.

    Args:
        read: Reads a page by the number of its first row, from 0.
        first: Number of the first row wanted.
    """
    rows = read(first)
    return (rows, first) if rows or not first else (read(0), 0)
