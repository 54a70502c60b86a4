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


CONTENTS: dict[str, Any] = {"busy_s": 1.0, "num_requests": 5, "num_sampled": 0, "num_of_tenant": 3}


NAMES: dict[str, Any] = {"tenants": ["acme", "globex"], "models": ["llama-8b"]}


def why_nothing(changed: dict[str, Any], tenant: str = "acme", model: str = "") -> str:
    def rows(query: Path, parameters: Mapping[str, Any]) -> list[dict[str, Any]]:
        asked.append(query.stem)
        return [{"engine_contents": CONTENTS, "engine_names": NAMES}[query.stem] | changed]

    asked: list[str] = []
    found = predicted_saving(rows, tenant, 0, 1000, model)
    assert isinstance(found, Unpredictable)
    assert asked[0] == "engine_contents"
    assert asked[1:] in ([], ["engine_names"])
    return found.reason


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (
            {"busy_s": 0.0, "models": [], "tenants": []},
            "no steps of an engine are stored for this range",
        ),
        (
            {"num_of_tenant": 0},
            "none of its requests in this range reached an engine whose steps are stored",
        ),
        (
            {"num_sampled": 2},
            "2 stored requests stand for several: their senders sample",
        ),
    ],
)
def test_why_nothing_is_read(changed: dict[str, Any], reason: str) -> None:
    assert why_nothing(changed) == reason


def test_a_mistyped_name_is_answered_with_the_one_that_may_be_meant() -> None:
    assert why_nothing({"num_of_tenant": 0}, tenant="Acmee") == (
        "no requests of it are stored for this range; did you mean 'acme'?"
    )
    assert why_nothing({"num_of_tenant": 0}, tenant="zzz") == (
        "no requests of it are stored for this range; there are acme, globex"
    )
    assert why_nothing({"num_of_tenant": 0, "tenants": []}, tenant="zzz") == (
        "no requests of it are stored for this range"
    )
    assert why_nothing({"busy_s": 0.0}, model="lama-8b") == (
        "no steps of an engine with model 'lama-8b' are stored for this range; "
        "did you mean 'llama-8b'?"
    )
