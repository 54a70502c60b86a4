"""What real SDKs and agents send fills requests, tools and sessions, each call once."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.fixtures.collector_process import (
    JSON,
    CollectorProcess,
    running_collector,
    wait_for,
)
from tests.fixtures.real_sdks import NAMES, recorded

HOLD_S = 8


@dataclass(frozen=True)
class Filled:
    """What a program's calls fill.

    Attributes:
        num: Requests, failed ones included.
        ttft, e2e, cached, cost: How many of them have this column.
        tools: Names of calls of tools and agents.
        sessions: Number of sessions, and where their ids are from.
    """

    num: int
    errors: int = 0
    ttft: int = 0
    e2e: int | None = None
    cached: int | None = None
    written: int = 0
    reasoning: int = 0
    cost: int = 0
    tools: tuple[str, ...] = ()
    sessions: tuple[int, str] = (1, "attribute")
    model: str = "gpt-5.5"
    engine: str = "openai"


CLAUDE: dict[str, Any] = {"model": "claude-sonnet-4-5", "engine": "anthropic"}
FILLED = {
    "claude_code": Filled(2, written=2, cost=2, tools=("Bash",), **CLAUDE),
    "claude_code_traced": Filled(2, written=2, cost=2, tools=("Bash",), **CLAUDE),
    "claude_code_error": Filled(1, errors=1, **CLAUDE),
    "codex": Filled(2, ttft=2, written=2, reasoning=2, tools=("exec_command",)),
    "codex_traced": Filled(2, ttft=2, written=2, reasoning=2, tools=("exec_command",)),
    "codex_error": Filled(3, errors=3),
    "openai_otel": Filled(4, errors=1, cached=0, sessions=(4, "trace")),
    "openai_openllmetry": Filled(6, errors=1, ttft=1, reasoning=4, sessions=(6, "trace")),
    "openai_openinference": Filled(6, errors=1, ttft=2, reasoning=5, sessions=(6, "trace")),
    "anthropic_openllmetry": Filled(
        # Nothing ties the two spans of a failed call.
        6, errors=2, ttft=2, written=4, sessions=(6, "trace"), **CLAUDE
    ),
    "anthropic_openinference": Filled(
        5, errors=1, ttft=2, written=4, sessions=(5, "trace"), **CLAUDE
    ),
    "pydantic_ai": Filled(2, reasoning=2, cost=2, tools=("get_weather", "guide")),
    "pydantic_ai_logfire": Filled(2, reasoning=2, cost=2, tools=("get_weather", "guide")),
    "langgraph_openinference": Filled(4, reasoning=4, tools=("get_weather", "get_weather")),
    "langgraph_openllmetry": Filled(4, tools=("get_weather", "get_weather", "guide", "guide")),
    "openai_agents_openinference": Filled(
        2, cached=0, tools=("get_weather", "guide", "weather"), sessions=(1, "trace")
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    """A collector to which every program has sent."""
    folder = tmp_path_factory.mktemp("real")
    with running_collector(folder, ("--client-hold-s", str(HOLD_S))) as collector:
        for name in NAMES:
            for path, body in recorded(name):
                answer = httpx.post(collector.http_url + path, content=body, headers=JSON)
                assert answer.status_code == 200, answer.text
        # A reader waits for an insert, but not for a slow one: then its segment is still there.
        wait_for(
            lambda: (
                collector.rows("SELECT count() >= 1 FROM requests") == [(1,)]
                and not any((folder / "log").glob("*.*"))
            )
        )
        held = (
            "SELECT count() FROM held_requests WHERE (trace_id, span_id) NOT IN"
            " (SELECT trace_id, span_id FROM settled_requests)"
        )
        wait_for(lambda: collector.rows(held) == [(0,)])
        yield collector


def test_every_recording_says_who_sent_it_and_is_replayed() -> None:
    assert set(NAMES) == set(FILLED)


@pytest.mark.parametrize("name", NAMES)
def test_a_program_fills_requests_tools_and_sessions(replayed: CollectorProcess, name: str) -> None:
    filled = FILLED[name]
    (found,) = replayed.rows(
        """
        SELECT count(), countIf(status = 'error'), count(ttft_s), count(e2e_s),
            countIf(cached_tokens = 80), countIf(cache_write_tokens IS NOT NULL),
            countIf(reasoning_tokens = 8), count(given_cost),
            groupUniqArrayIf((input_tokens, output_tokens), status = 'ok'),
            groupUniqArrayIf(model, status = 'ok'), groupUniqArray(engine)
        FROM requests WHERE service = {s:String}
        """,
        {"s": name},
    )
    good = filled.num - filled.errors
    e2e = filled.num if filled.e2e is None else filled.e2e
    cached = good if filled.cached is None else filled.cached
    tokens, models = ([(120, 24)], [filled.model]) if good else ([], [])
    assert found == (
        filled.num, filled.errors, filled.ttft, e2e, cached, filled.written, filled.reasoning,
        filled.cost, tokens, models, [filled.engine],
    )  # fmt: skip
    calls = "SELECT name FROM session_tools WHERE service = {s:String} ORDER BY name"
    assert tuple(each for (each,) in replayed.rows(calls, {"s": name})) == filled.tools
    sessions = replayed.rows(
        "SELECT uniqExact(ifNull(session_id, trace_id)), any(session_source)"
        " FROM requests WHERE service = {s:String}",
        {"s": name},
    )
    assert sessions == [filled.sessions]
