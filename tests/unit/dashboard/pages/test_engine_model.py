"""Memory or compute: the diagnosis from its signals, and vLLM's metrics in the same columns."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import cast

import pytest

from evenkeel_dashboard.draw.control import control
from evenkeel_dashboard.draw.window import Window
from evenkeel_dashboard.pages.engine.data import EngineData
from evenkeel_dashboard.pages.engine.model import (
    COLUMNS,
    Load,
    diagnose,
    load_of,
    verdict,
)
from evenkeel_dashboard.pages.engine.outcomes import (
    against_others,
    find_acting,
    gain_words,
    num_words,
    side_by_side,
    steps_words,
)
from evenkeel_dashboard.pages.engine.page import _verdict


@pytest.mark.parametrize(
    ("load", "expected"),
    [
        pytest.param(Load(None, None, None, None, None), "No engine data", id="no data"),
        pytest.param(
            Load(9, None, None, None, None), "does not report whether", id="KV use is not reported"
        ),
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
    values = {s.name: s.value for s in diagnose(Load(0, None, 0.2, None, None)).signs}
    assert values["waiting for KV blocks"] == values["time in steps"] == "no data"
    assert values["requests waiting"] == "0"


def test_the_evidence_speaks_for_the_verdict_and_the_advice_names_the_flag() -> None:
    found = diagnose(Load(4, 0, 0.02, 0, 0.6, waiting_for_budget=3.6, waiting_for_seats=0))
    assert found.headline.startswith("Compute-bound: each step's token budget is spent")
    assert "--max-num-batched-tokens" in found.advice
    suggests = {sign.name: sign.suggests for sign in found.signs}
    assert suggests["waiting for the token budget"] == "compute: --max-num-batched-tokens"
    assert suggests["KV blocks in use"] == "not memory"
    seats = diagnose(Load(4, 0, 0.02, 0, 0.6, waiting_for_budget=0, waiting_for_seats=4))
    assert "--max-num-seqs" in seats.advice and "Too few batch slots" in seats.headline


def test_blocks_in_use_with_nothing_running_are_a_leak() -> None:
    def row(running: float, live: float) -> dict[str, object]:
        return dict.fromkeys(COLUMNS) | {
            "bucket": 1, "num_running": running, "num_waiting": 0.0, "kv_live_ratio": live,
        }  # fmt: skip

    leaking = diagnose(load_of([row(2, 0.3), row(0, 0.1), row(0, 0.12)], []))
    assert (leaking.level, leaking.limit) == ("bad", "KV leak")
    assert leaking.signs[-1].value.startswith("10")
    assert diagnose(load_of([row(2, 0.3), row(0, 0.0)], [])).limit == ""
    assert diagnose(load_of([row(2, 0.3)], [])).limit == "", "it was never idle"


CALM, BUDGET = Load(0, 0, 0.1, 0, 0.2, 0, 0), Load(4, 0, 0.1, 0, 0.6, 4, 0)
BLIND, NOTHING = Load(4, None, None, None, 0.6), Load(None, None, None, None, None)


@pytest.mark.parametrize(
    ("recent", "queued", "is_past", "headline"),
    [
        (BUDGET, BUDGET, False, "Compute-bound: each step's token budget is spent while KV"),
        (CALM, BUDGET, False, "Nothing is queued now. Compute-bound until 03:08, 6 min ago: each"),
        (CALM, BUDGET, True, "Nothing was queued at the end of this range. Compute-bound until"),
        (CALM, CALM, False, "Neither memory nor compute is a limit"),
        (BUDGET, BUDGET, True, "Compute-bound: in the last 5 min of this range, each step's"),
        (CALM, CALM, True, "In the last 5 min of this range, neither memory nor compute was"),
        (BLIND, BLIND, True, "Queue of unknown cause: in the last 5 min of this range, the"),
        (NOTHING, NOTHING, True, "No engine data"),
    ],
)  # fmt: skip
def test_a_verdict_speaks_of_the_last_minutes(
    recent: Load, queued: Load, is_past: bool, headline: str
) -> None:
    until = "03:08, 6 min ago" if queued is BUDGET else ""
    said = verdict(diagnose(recent), diagnose(queued), "5 min", until, is_past=is_past)
    assert said.headline.startswith(headline)
    assert ("--max-num-batched-tokens" in said.advice) == (queued is BUDGET)


@pytest.mark.parametrize("num_waiting", [0.0, 9.0])
def test_a_verdict_on_a_past_range_counts_from_its_end(num_waiting: float) -> None:
    end = datetime(2025, 11, 25, 10, tzinfo=UTC)
    end_ms = int(end.timestamp() * 1000)
    rows = [
        dict.fromkeys(COLUMNS)
        | {
            "bucket": end - timedelta(minutes=minutes), "num_running": 8.0, "num_preempted": 0.0,
            "num_waiting": 9.0 if minutes > 20 else num_waiting, "kv_live_ratio": 0.99,
        }
        for minutes in range(60, 0, -1)
    ]  # fmt: skip
    data = SimpleNamespace(rows=rows, waiting=[], engines=[])
    said = _verdict(cast(EngineData, data), Window(end_ms - 3_600_000, end_ms, 60), is_past=True)
    assert said.headline == (
        "Memory-bound: in the last 5 min of this range, requests waited for KV blocks"
        if num_waiting
        else "Nothing was queued at the end of this range. Memory-bound until 2025-11-25 09:40:00 "
        "UTC, 20 min before the range's end: requests waited for KV blocks"
    )


def test_an_engine_slower_than_the_others_at_the_same_work_stands_out() -> None:
    assert against_others([{"against_usual": 1.3}]) == ["–"]
    rows = [{"against_usual": ratio} for ratio in (1.6, 1.0, 1.0)]
    slow, *others = against_others(rows)
    assert slow.startswith("slower by 60") and others == ["as the others", "as the others"]


def test_control_watching_and_acting_stand_side_by_side() -> None:
    def row(name: str, is_acting: int, p95_s: float | None, **more: float) -> dict[str, object]:
        counts = {"num_requests": 100, "num_timed": 100, "num_shed": 0} | more
        return {"slo_class_name": name, "is_acting": is_acting, "p95_s": p95_s, **counts}

    rows = [row("chat", 0, 2.4), row("chat", 1, 0.6), row("batch", 0, 1.0), row("batch", 1, 1.5),
            row("eval", 1, 1.0), row("calm", 0, 1.0), row("calm", 1, None)]  # fmt: skip
    chat, batch, calm = side_by_side(rows)
    assert chat.words.startswith("4") and chat.words.endswith("faster") and chat.level == "good"
    assert batch.words.endswith("slower") and batch.level == "warning"
    assert (calm.words, calm.level) == ("–", "")
    few, refused = side_by_side(
        [row("few", 0, 9.0), row("few", 1, 0.1, num_timed=3),
         row("shed", 0, 9.0), row("shed", 1, 0.9, num_timed=60, num_shed=40)]
    )  # fmt: skip
    assert (few.words, few.level) == ("too few requests", "")
    assert (refused.words, refused.level) == ("10× faster", ""), "by refusing the others"
    assert num_words(refused.acting) == "100, 40% shed" and num_words(refused.watching) == "100"


def test_a_speed_up_names_its_server_if_there_are_several() -> None:
    gain = {"service": "chat", "instance": "i-7", "batch": "8"}
    assert steps_words(gain, of_several=True) == "chat, i-7: batch of 8"
    assert steps_words(gain | {"batch": "all"}, of_several=False) == "all"


def test_when_control_was_let_act() -> None:
    def action(time_ms: int, after: str) -> dict[str, object]:
        said = {"evenkeel.control.lever": "mode", "evenkeel.control.after": after}
        return {"time_ms": time_ms, "attributes": said}

    other = {"time_ms": 9, "attributes": {"evenkeel.control.lever": "seats"}}
    assert find_acting([other, action(5, "act"), action(3, "dry-run")]) == (5, None)
    assert find_acting([action(3, "dry-run")]) is None
    # The last time that it acted, from its beginning to its end.
    switches = [action(8, "off"), other, action(7, "dry-run"), action(5, "act"), action(2, "act")]
    assert find_acting(switches) == (5, 7)


@pytest.mark.parametrize(
    ("lower", "upper", "words"),
    [(1.2, 1.6, "pays"), (0.7, 0.9, "costs"), (0.9, 1.3, "no difference shown yet")],
)
def test_a_measured_speed_up_in_words(lower: float, upper: float, words: str) -> None:
    assert gain_words({"lower": lower, "upper": upper}) == words


@pytest.mark.parametrize(
    ("attributes", "effect"),
    [
        pytest.param({"burn_before": "8.5", "burn_after": "1.2"}, "burn fell", id="it helped"),
        pytest.param(
            {"burn_before": "1.2", "burn_after": "1.2"}, "burn did not fall", id="it did not"
        ),
        pytest.param({"burn_before": "0", "burn_after": "0"}, "within budget", id="no burn"),
        pytest.param({"burn_before": "8.5"}, "not measured", id="no effect is known"),
        pytest.param(
            {"burn_before": "8", "burn_after": "1", "is_dry_run": "true"},
            "dry run",
            id="a dry run",
        ),
        pytest.param(
            {"lever": "mode", "burn_before": "1", "burn_after": "9"}, "switched", id="by a person"
        ),
    ],
)
def test_the_effect_of_a_control_action(attributes: dict[str, str], effect: str) -> None:
    said = {f"evenkeel.control.{name}": value for name, value in attributes.items()}
    named = {"evenkeel.control.before": "4", "evenkeel.control.after": "2"}
    found = control({"name": "evenkeel.control", "attributes": said | named})
    assert (found.effect, found.change) == (effect, "4 → 2")


@pytest.mark.parametrize("burn", ["nan", "inf", "-inf", "1e999", "much"])
def test_a_burn_that_is_no_number_is_not_measured(burn: str) -> None:
    said = {"evenkeel.control.burn_before": burn, "evenkeel.control.burn_after": "2"}
    found = control({"name": "evenkeel.control", "attributes": said})
    assert (found.effect, found.burn) == ("not measured", "no data → 2")
