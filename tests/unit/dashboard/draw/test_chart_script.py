"""The charts' script writes what the pages write: numbers, durations and times."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from playwright._impl._driver import compute_driver_executable

import evenkeel_dashboard.draw
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.draw.zones import use_zone

SCRIPT = Path(evenkeel_dashboard.draw.__file__).parent / "assets" / "chart.js"
# One o'clock UTC: the clocks of Berlin go back from three to two.
CHANGED_MS = 1_792_890_000_000


def run(expression: str) -> Any:
    """Return the value of an expression in the script."""
    node = compute_driver_executable()[0]
    source = f"{SCRIPT.read_text(encoding='utf-8')}\nconsole.log(JSON.stringify({expression}))"
    done = subprocess.run(
        [node, "--input-type=module"], input=source, capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


DURATIONS_S = [0, 4e-7, 0.00099949, 0.0412, 0.99949, 0.9995, 119.4, 130, 150, 7199, 7201, 172_799,
               200_000, 9e6, -0.035, -150]  # fmt: skip
PERCENT = [0, 0.0421, 0.426, 4.213, 98.7654, 99.0, 99.949, 99.95, 99.9995, 100, 250.4, -13.37, -866]
RATES = [0, 0.0213, 4.2, 4213, 9999, 12_345, 99_999, 123_456, 999_499, 999_500, 2_500_000,
         999_500_000, 1e13]  # fmt: skip


def test_a_tooltip_writes_numbers_as_the_page_does() -> None:
    said = run(
        f"[{json.dumps(DURATIONS_S)}.map((v) => said(v, 's')),"
        f" {json.dumps(PERCENT)}.map((v) => said(v, '%')),"
        f" {json.dumps(RATES)}.map((v) => said(v, '/s')),"
        f" {json.dumps(RATES[2:])}.map(count)]"
    )
    assert said[0] == [formats.seconds(v) for v in DURATIONS_S]
    assert said[1] == [formats.percent(v / 100) for v in PERCENT]
    assert said[2] == [formats.rate(v) for v in RATES]
    assert said[3] == [formats.count(v) for v in RATES[2:]]


@pytest.mark.parametrize(
    ("zone", "at_ms", "words"),
    [
        ("UTC", CHANGED_MS, "25 Oct, 01:00:00 UTC"),
        ("Europe/Berlin", CHANGED_MS + 3_600_000, "25 Oct, 03:00:00 CET"),
        ("Europe/Berlin", CHANGED_MS, "25 Oct, 02:00:00 CET"),
        ("Europe/Berlin", CHANGED_MS - 3_600_000, "25 Oct, 02:00:00 UTC+2"),
        ("Asia/Kolkata", CHANGED_MS, "25 Oct, 06:30:00 IST"),
    ],
)
def test_a_tooltip_names_the_zone_of_its_time(zone: str, at_ms: int, words: str) -> None:
    """The axis names that of the range's end, which is after a change of clocks."""
    name = words.split(" ")[-1]
    ends = {"UTC": "UTC", "Europe/Berlin": "CET", "Asia/Kolkata": "IST"}
    end_ms = CHANGED_MS + 7_200_000
    assert run(f"moment({at_ms}, {end_ms}, '{zone}', '{ends[zone]}')") == words
    use_zone(ZoneInfo(zone))
    try:
        shown = formats.moment_ms(at_ms)
    finally:
        use_zone(UTC)
    assert name == "UTC+2" or shown.endswith(name)
