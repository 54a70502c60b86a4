"""Tables sort by the numbers that a reader sees."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from playwright._impl._driver import compute_driver_executable

import evenkeel_dashboard.draw

SCRIPT = Path(evenkeel_dashboard.draw.__file__).parent / "assets" / "links.js"


def sorted_rising(texts: list[str], is_number: bool) -> list[str]:
    """Return the texts of a column's cells as a click on its header sorts them."""
    source = re.sub(r"^export default ", "", SCRIPT.read_text("utf-8"), flags=re.MULTILINE)
    source += f"""
    const classList = {{ contains: () => {json.dumps(is_number)} }};
    const rows = {json.dumps(texts)}
      .map((textContent) => ({{ cells: [{{ textContent, dataset: {{}}, classList }}] }}));
    const body = {{ rows, append: (...sorted) => console.log(
      JSON.stringify(sorted.map((row) => row.cells[0].textContent))) }};
    sort({{ tBodies: [body], tHead: {{ rows: [{{ cells: [] }}] }} }}, 0, false);
    """
    source = source.replace("function () {", "function start() {", 1)
    done = subprocess.run(
        [compute_driver_executable()[0], "--input-type=module"],
        input=source, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    "rising",
    [
        pytest.param(["≤ 300 ms", "≤ 1 s", "2 s", "≥ 1 min"], id="limits of several units"),
        pytest.param(["<0.0001%", "4.21%", "99.5%"], id="less than is written"),
        pytest.param(["−35 ms", "≤ 0 ms", "+1.2 s"], id="differences"),
        pytest.param(["≤ 20 ms", "≤ 300 ms", "no data"], id="what is missing is last"),
    ],
)
def test_numbers_sort_by_their_size(rising: list[str]) -> None:
    assert sorted_rising(rising, is_number=True) == rising
    present = [text for text in rising if text != "no data"]
    missing = rising[len(present) :]
    assert sorted_rising([*missing, *reversed(present)], is_number=True) == rising


def test_names_sort_as_text() -> None:
    assert sorted_rising(["tenant 10", "acme", "tenant 9"], is_number=False) == [
        "acme", "tenant 9", "tenant 10",
    ]  # fmt: skip
