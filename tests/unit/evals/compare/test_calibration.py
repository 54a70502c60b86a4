"""Noise estimates from A/A runs."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel_evals.ask.answers import LatencyMetric
from evenkeel_evals.compare.calibration import calibrate, read_assumptions
from evenkeel_evals.dataset.dataset import Dataset
from evenkeel_evals.verdict.gates import parse_gates

NO_ITEMS = Dataset("sums", "1", "d", (), ())
GATES = parse_gates("accuracy>=-1%, shift_ttft<=+3%")


def test_the_noise_that_is_there_is_found(make_pair, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(3)
    noise = generator.lognormal(0, 0.1, (2, 400))
    pairs = [
        make_pair(i, True, i % 10 > 0, (0.1 * noise[0, i], 0.1 * noise[1, i])) for i in range(400)
    ]
    steps: list[int] = []
    found = calibrate(GATES, [pairs], ("d", "s"), 40, lambda done, _: steps.append(done))
    assert steps == list(range(1, 41))
    assert found.discordance == pytest.approx(0.1)
    # The logarithm of a ratio of two has √2 of the noise of one; 1% are cut off on each side.
    assert found.scatter["ttft"] == pytest.approx(0.1 * 2**0.5, rel=0.1)
    # 95% of a mean of 400: 1.96 · 0.141/20; of 40 swaps, ± 1/√400 each: 1.96 · √40/400.
    assert found.noise_floor["shift_ttft"] == pytest.approx(0.0139, rel=0.4)
    assert found.noise_floor["accuracy"] == pytest.approx(0.031, rel=0.4)
    # Ten percent of the answers differ, all against B; swapped at random, that is no regression.
    assert found.num_false_alarms <= 6
    assert found.false_alarm_ci95[0] <= found.num_false_alarms / 40 <= found.false_alarm_ci95[1]

    path = tmp_path / "calibration.json"
    path.write_text(json.dumps(found.to_record()))
    known, doubt = read_assumptions(path, NO_ITEMS)
    assert doubt is None
    assert "other items" in (read_assumptions(path, replace(NO_ITEMS, content_hash="e"))[1] or "")
    assert (known.discordance, known.is_measured) == (found.discordance, True)
    assert known.scatter[LatencyMetric.TTFT] == found.scatter["ttft"]


def test_items_of_one_cluster_vary_together(make_pair) -> None:  # type: ignore[no-untyped-def]
    # In every second cluster of ten, all answers of one side are wrong.
    pairs = [make_pair(i, True, i // 10 % 2 > 0) for i in range(400)]
    pairs = [
        replace(pair, item=replace(pair.item, cluster_id=f"c{i // 10}"))
        for i, pair in enumerate(pairs)
    ]
    found = calibrate(GATES[:1], [pairs], ("d", "s"), 200, lambda *_: None)
    # 95% of a sum of twenty clusters, ±10 items each: 1.96 · √20 · 10/400.
    assert found.noise_floor["accuracy"] == pytest.approx(0.219, rel=0.25)
    assert found.false_alarm_ci95[0] <= 0.05


def test_no_score_is_no_calibration(make_pair) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CannotMeasureError, match="no pair has a score"):
        calibrate(GATES, [[make_pair(0, None, None)]], ("d", "s"), 20, lambda *_: None)


def test_another_file_is_not_a_calibration(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"a": 1}')
    with pytest.raises(ConfigurationError, match="is not a calibration"):
        read_assumptions(tmp_path / "x.json", NO_ITEMS)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_assumptions(tmp_path / "none.json", NO_ITEMS)
