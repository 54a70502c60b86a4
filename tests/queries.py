"""Finds the product's queries, each of which lies with the module that reads it."""

from functools import cache
from pathlib import Path

from tests.checkout import ROOT

PARTS = ("evenkeel", "collector", "dashboard", "evals", "demo")


@cache
def query(name: str) -> Path:
    """Return the file of a query, whichever part it is in."""
    (found,) = (path for part in PARTS for path in (ROOT / part).rglob(f"{name}.sql"))
    return found
