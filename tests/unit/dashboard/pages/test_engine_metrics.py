"""Engines' own metrics in the columns of the step records; what is not reported says so."""

from datetime import UTC, datetime

import pandas as pd
import pytest

from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.pages.engine.data import evictions_per_s
from evenkeel_dashboard.pages.engine.metrics import (
    histogram_rows,
    is_column_reported,
    names_of,
    quantile_words,
    state_rows,
    waiting_rows,
)
from evenkeel_dashboard.pages.engine.model import Load, load_of

BEGIN = datetime(2026, 11, 20, 10, 0, tzinfo=UTC)
BEGIN_MS = 1000 * round(BEGIN.timestamp())


def row(
    measure: str, value: float, label: str = "", engine: str = "vllm", per_s: float | None = None
) -> dict[str, object]:
    return {
        "bucket": BEGIN, "engine": engine, "measure": measure, "label": label, "value": value,
        "per_s": per_s,
    }  # fmt: skip


def test_metrics_become_the_same_columns() -> None:
    rows = [
        row("num_running", 3),
        row("num_waiting", 2),
        row("num_waiting_by_reason", 2, "capacity"),
        row("kv_live_ratio", 0.9),
        row("output_tokens", 450, per_s=7.5),
        row("output_tokens", 150, engine="sglang", per_s=2.5),
        row("prefill_tokens", 0),
        row("drafted_tokens", 10),
        row("accepted_tokens", 7),
        row("prefix_queried_tokens", 100),
        row("prefix_hit_tokens", 25),
    ]
    (found,) = state_rows(rows)
    assert found["output_tokens_per_s"] == 10
    assert found["prefill_tokens_per_s"] is None, "one reading is no rate"
    assert found["acceptance_rate"] == pytest.approx(0.7)
    assert found["prefix_hit_ratio"] == 0.25
    assert found["batch_size"] is None, "metrics know no steps"
    assert found["num_preempted"] is None, "what was not reported is not 0"
    waiting = waiting_rows(rows)
    assert waiting == [{"bucket": BEGIN, "reason": "capacity", "num_waiting": 2}]
    assert load_of([found], waiting).waiting_for_memory == 2
    assert load_of([], []) == Load(None, None, None, None, None)


def test_two_engines_are_added_up_and_their_ratios_averaged() -> None:
    rows = [
        row("num_running", 3),
        row("num_running", 5, engine="sglang"),
        row("kv_live_ratio", 0.4),
        row("kv_live_ratio", 0.8, engine="sglang"),
        row("acceptance_rate", 0.6, engine="sglang"),
    ]
    (found,) = state_rows(rows)
    assert found["num_running"] == 8
    assert found["kv_live_ratio"] == pytest.approx(0.6)
    assert found["acceptance_rate"] == 0.6


def test_an_engine_that_counts_only_hits_looked_up_every_prompt_token() -> None:
    rows = [
        row("prefix_hit_tokens", 30, engine="sglang"),
        row("prefill_tokens", 120, engine="sglang"),
        row("prefix_hit_ratio", 0.9, engine="sglang"),
    ]
    assert state_rows(rows)[0]["prefix_hit_ratio"] == 0.25


@pytest.mark.parametrize(
    ("column", "engines", "expected"),
    [
        ("kv_live_ratio", ["tgi"], False),
        ("kv_live_ratio", ["tgi", "sglang"], True),
        ("num_running", ["llama.cpp"], True),
        ("batch_size", ["vllm"], False),
        ("batch_size", [], True),
        ("waiting_by_reason", ["sglang"], False),
    ],
)
def test_a_column_is_reported_by_engines_with_a_metric_for_it(
    column: str, engines: list[str], expected: bool
) -> None:
    assert is_column_reported(column, engines) is expected


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0.5, "500 ms"), (0.25, "≤ 100 ms"), (0.95, "> 1 s"), (0.0, "≤ 100 ms")],
)
def test_a_quantile_lies_within_its_bucket(share: float, expected: str) -> None:
    assert quantile_words([0.1, 0.9, 1.0], [25, 50, 0, 25], share) == expected


def histogram(engine: str, measure: str, num: int, mapped_as: str = "") -> dict[str, object]:
    return {
        "engine": engine,
        "mapped_as": mapped_as or engine,
        "measure": measure,
        "bounds": [1.0, 2.0],
        "counts": [num, 0, 0],
    }


def test_histograms_say_what_an_engine_does_not_report() -> None:
    read = [histogram("tgi", "e2e_s", 10)]
    rows = {r.name: r for r in histogram_rows(read, ["tgi"])}
    assert rows["total"].values[0] == "≤ 1 s" and rows["total"].num_observations == "10"
    assert rows["time to first token"].values == ("not reported",) * 3
    assert rows["queue"].values == ("no data",) * 3


def test_histograms_under_names_that_engines_share() -> None:
    read = [
        histogram("sglang", "e2e_s", 10, "opentelemetry"),
        histogram("sglang", "tpot_s", 10, "opentelemetry"),
        histogram("my-engine", "e2e_s", 20, "opentelemetry"),
    ]
    found = {(r.engine, r.name): r for r in histogram_rows(read, ["my-engine", "sglang"])}
    total = found["my-engine", "total"]
    assert (total.values[0], total.num_observations) == ("≤ 1 s", "20")
    assert found["SGLang", "time per output token"].note.startswith("ends with the request")
    assert found["SGLang", "time to first token"].values == ("no data",) * 3
    assert found["my-engine", "queue"].values == ("not reported",) * 3


def test_an_engine_seen_under_both_kinds_of_names_is_not_added_up() -> None:
    read = [histogram("sglang", "e2e_s", 10), histogram("sglang", "e2e_s", 9, "opentelemetry")]
    total = next(r for r in histogram_rows(read, ["sglang"]) if r.name == "total")
    assert (total.num_observations, total.note) == ("10", "")


def test_several_engines_are_a_list_in_words() -> None:
    assert names_of(["sglang", "tgi", "vllm"]) == "SGLang, Text Generation Inference and vLLM"
    assert names_of(["vllm"]) == "vLLM"


@pytest.mark.parametrize(
    ("period_s", "slice_s", "read_s"),
    [
        pytest.param(150, 150, [15, 60, 20], id="everything"),
        pytest.param(150, 40, [15, 10, 0], id="a slice of 40 s"),
    ],
)
def test_evictions_are_those_of_the_seconds_that_were_read(
    period_s: int, slice_s: int, read_s: list[int]
) -> None:
    """Two tokens per second, in steps that begin before the range and end after it."""
    begin_s = BEGIN_MS // 1000 + 120  # 30 s before a period begins
    window = Window((begin_s + 45) * 1000, (begin_s + 140) * 1000, 60)
    steps = [(begin_s + 60 * i, 2.0 * seconds) for i, seconds in enumerate(read_s) if seconds]
    found = pd.DataFrame(
        {
            "bucket": [datetime.fromtimestamp(at_s, tz=UTC) for at_s, _ in steps],
            "evicted_tokens": [tokens for _, tokens in steps],
        }
    )
    drawn = evictions_per_s(found, window, period_s, slice_s)["evicted_per_s"]
    assert drawn.dropna().tolist() == pytest.approx([2.0] * len(steps))
