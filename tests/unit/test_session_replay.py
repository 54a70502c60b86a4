"""The replay behind the figures of sessions: few sessions, made up, through the same code."""

import random

import pytest

from bench.session_replay import generate_all
from bench.sessions import measure_finding, measure_ledgers


def recorded(num_turns: int, seed: int) -> list[dict[str, object]]:
    draw = random.Random(seed)
    turns: list[dict[str, object]] = []
    at_s = 0.0
    for number in range(num_turns):
        turns.append({
            "t": at_s, "in": 5000 + 300 * number, "api": draw.uniform(1, 9),
            "think": draw.uniform(1, 60), "stop": draw.choice(["tool_use", "end_turn"]),
        })  # fmt: skip
        if number == num_turns // 2 and seed % 2:
            turns.append({"subagent": {"t": at_s}})
        at_s += 30
    return turns


SESSIONS = list(generate_all([recorded(12, seed) for seed in range(6)], 300))


def test_ledgers_add_up_and_are_true() -> None:
    figures = measure_ledgers(SESSIONS)
    assert figures["adding_up_within_1_percent"] == 1
    assert figures["every_cause_within_1_percent_of_wall"] == 1
    assert figures["evictions"]["all"]["f1"] >= 0.95
    for engines in ("recorded", "inferred"):
        assert figures["evictions"][engines]["forced"] > 10
        assert figures["evictions"][engines]["recall"] >= 0.95


def test_only_recorded_evictions_are_told_from_those_just_before_or_after_a_tool() -> None:
    evictions = measure_ledgers(SESSIONS)["evictions"]
    assert evictions["recorded"]["precision"] == 1
    assert 0.9 <= evictions["inferred"]["precision"] < 1


@pytest.mark.parametrize("naming", ["header", "trace"])
def test_sessions_with_a_header_or_a_trace_are_found_whole(naming: str) -> None:
    assert measure_finding(SESSIONS)[naming]["sessions_right"] == 1


def test_conversations_are_found_but_for_their_sub_agents() -> None:
    chains = [session for session in SESSIONS if session.naming == "chain"]
    alone = [s for s in chains if all(turn.work.parent_id == "" for turn in s.turns)]
    assert len(alone) >= 5
    assert measure_finding(alone)["chain"]["works_right"] >= 0.98
