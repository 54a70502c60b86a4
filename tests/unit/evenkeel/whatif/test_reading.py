"""A range with few requests is read as a whole, one with many in samples."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evenkeel.whatif.reading import MAX_REQUESTS, predicted_saving, samples_of
from evenkeel.whatif.saving import Unpredictable


def test_samples_are_evenly_spaced_and_bounded() -> None:
    assert samples_of(1000, 9000, MAX_REQUESTS) == [(1000, 9000)]
    samples = samples_of(0, 4_000_000, 10 * MAX_REQUESTS)
    assert samples == [
        (450_000, 550_000),
        (1_450_000, 1_550_000),
        (2_450_000, 2_550_000),
        (3_450_000, 3_550_000),
    ]


CONTENTS = {"busy_s": 1.0, "num_requests": 5, "num_sampled": 0, "num_of_tenant": 3}


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"busy_s": 0.0}, "no steps of an engine are stored"),
        ({"num_of_tenant": 0}, "none of its requests in this range reached an engine"),
        ({"num_sampled": 2}, "2 stored requests stand for several"),
    ],
)
def test_why_nothing_is_read(changed: dict[str, Any], reason: str) -> None:
    asked = []

    def rows(query: Path, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        asked.append(query.stem)
        return [CONTENTS | changed]

    found = predicted_saving(rows, "acme", 0, 1000)
    assert isinstance(found, Unpredictable)
    assert reason in found.reason
    assert asked == ["engine_contents"]
