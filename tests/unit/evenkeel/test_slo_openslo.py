"""What is written as OpenSLO is read again as it was."""

from dataclasses import replace
from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel.slo_file import read_slo_file
from evenkeel.slo_openslo import openslo_documents

ROOT = Path(__file__).parents[3]
MORE = """---
apiVersion: openslo/v1
kind: SLO
metadata: {name: sliced}
spec:
  indicator: {all: {ttft: 0.5, stall: 1}, select: {tenant: "7"}}
  budgetingMethod: Timeslices
  objectives: [{target: 0.99, timeSliceTarget: 0.95, timeSliceWindow: 5m}]
  timeWindow: [{duration: 1M, isRolling: false, calendar: {timeZone: Europe/Berlin}}]
"""
COMPOSITE = """---
apiVersion: openslo/v1
kind: SLO
metadata: {name: both}
spec:
  indicator: {composite: [{slo: support-ttft}, {slo: support-availability}]}
  objectives: [{target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""


def test_openslo_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text((ROOT / "slos.yaml").read_text() + MORE)
    slos = read_slo_file(path).slos
    path.write_text(openslo_documents(slos))
    # Alert windows and their patience have no place in OpenSLO: the defaults are read.
    plain = [replace(slo, min_bad=1, confidence=None, keep_firing_s=slo.pending_s) for slo in slos]
    assert list(read_slo_file(path).slos) == plain


def test_a_composite_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "slos.yaml"
    path.write_text((ROOT / "slos.yaml").read_text() + COMPOSITE)
    with pytest.raises(ConfigurationError, match="SLO 'both' is a composite"):
        openslo_documents(read_slo_file(path).slos)
