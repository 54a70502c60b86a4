"""Memory or compute: the diagnosis from its signals, and vLLM's metrics in the same columns."""

from __future__ import annotations

import pytest

from evenkeel_dashboard.model.control import control
from evenkeel_dashboard.pages.engine.model import (
    Load,
    diagnose,
    load_of,
    speed_ups,
    state_rows,
    waiting_rows,
)


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        pytest.param(Load(None, None, None, None, None), "No engine data", id="no data"),
        pytest.param(Load(5, 4, 0.97, 3, 1), "Memory-bound", id="blocks are full and many wait"),
        pytest.param(Load(0, 0, 0.9, 2, 0.5), "Memory-bound", id="somebody was thrown out"),
        pytest.param(Load(5, 0, 0.4, 0, 0.95), "Compute-bound", id="many wait, blocks are free"),
        pytest.param(Load(0.1, 0, 0.9, 0, 0.3), "Neither", id="full blocks while nobody waits"),
        pytest.param(Load(0, 0, 0.2, 0, 0.95), "nearly saturated", id="busy while nobody waits"),
        pytest.param(Load(0, None, 0.2, None, None), "Neither", id="an idle one of vLLM's own"),
    ],
)
def test_a_diagnosis_follows_from_its_signs(load: Load, expected: str) -> None:
    assert expected in diagnose(load).headline


def test_what_was_not_measured_is_no_data_among_the_signs() -> None:
    values = [sign.value for sign in diagnose(Load(0, None, 0.2, None, None)).signs]
    assert values == ["0", "no data", "20.0 %", "no data", "no data"]


def test_vllms_metrics_become_the_same_columns() -> None:
    def row(name: str, value: float, label: str = "") -> dict[str, object]:
        return {"bucket": 1, "name": f"vllm:{name}", "label": label, "value": value}

    rows = [
        row("num_requests_running", 3),
        row("num_requests_waiting", 2),
        row("num_requests_waiting_by_reason", 2, "capacity"),
        row("kv_cache_usage_perc", 0.9),
        row("generation_tokens", 600),
        row("spec_decode_num_draft_tokens", 10),
        row("spec_decode_num_accepted_tokens", 7),
    ]
    found = state_rows(rows, 60)
    assert len(found) == 1
    assert found[0]["output_tokens_per_s"] == 10
    assert found[0]["acceptance_rate"] == pytest.approx(0.7)
    assert found[0]["batch_size"] is None, "vLLM's metrics know no steps"
    waiting = waiting_rows(rows)
    assert waiting == [{"bucket": 1, "reason": "capacity", "num_waiting": 2}]
    assert load_of(found, waiting).waiting_for_memory == 2
    assert load_of([], []) == Load(None, None, None, None, None)


def test_a_speed_up_is_the_ratio_of_tpot_without_drafts_to_with() -> None:
    slow = [0.02 + 0.0001 * i for i in range(20)]
    rows = [
        {"model": "m", "is_drafted": 1, "tpot_s_each": [value / 2 for value in slow]},
        {"model": "m", "is_drafted": 0, "tpot_s_each": slow},
        {"model": "few", "is_drafted": 1, "tpot_s_each": [0.01]},
    ]
    (found,) = speed_ups(rows)
    assert found.ratio == pytest.approx(2.0)
    assert found.lower < 2.0 < found.upper
    assert (found.num_with, found.num_without) == (20, 20)


@pytest.mark.parametrize(
    ("attributes", "effect"),
    [
        pytest.param({"burn_before": "8.5", "burn_after": "1.2"}, "burn fell", id="it helped"),
        pytest.param(
            {"burn_before": "1.2", "burn_after": "1.2"}, "burn did not fall", id="it did not"
        ),
        pytest.param({"burn_before": "8.5"}, "not measured", id="no effect is known"),
        pytest.param(
            {"burn_before": "8", "burn_after": "1", "is_dry_run": "true"},
            "dry run",
            id="a dry run",
        ),
    ],
)
def test_the_effect_of_a_control_action(attributes: dict[str, str], effect: str) -> None:
    said = {f"evenkeel.control.{name}": value for name, value in attributes.items()}
    named = {"evenkeel.control.before": "4", "evenkeel.control.after": "2"}
    found = control({"name": "evenkeel.control", "attributes": said | named})
    assert (found.effect, found.change) == (effect, "4 → 2")
