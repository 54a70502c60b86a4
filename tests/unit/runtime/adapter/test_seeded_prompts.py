"""The generator of a seeded request is used for the tokens of its answer only."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from evenkeel_runtime.adapter.seeded_prompts import unused_generators_set_aside


def runner_of(generators: dict[int, str], is_discarded: list[bool]) -> Any:
    # vLLM's buffer is as long as the largest batch.
    mask = np.array([*is_discarded, True, True])
    return SimpleNamespace(
        input_batch=SimpleNamespace(generators=generators, num_reqs=len(is_discarded)),
        discard_request_mask=SimpleNamespace(np=mask),
    )


def test_those_of_incomplete_prompts_are_set_aside_and_come_back() -> None:
    generators = {0: "first", 2: "third"}
    with unused_generators_set_aside(runner_of(generators, [False, False, True])):
        assert generators == {0: "first"}
    assert generators == {0: "first", 2: "third"}


def test_they_come_back_from_a_step_that_fails() -> None:
    generators = {1: "second"}
    with (
        pytest.raises(ZeroDivisionError),
        unused_generators_set_aside(runner_of(generators, [True, True])),
    ):
        assert not generators
        raise ZeroDivisionError
    assert generators == {1: "second"}
