"""The speculation hook in a real vLLM engine: what greedy requests say does not depend on it."""

import json
from typing import Any

import pytest

from tests.fixtures.python_process import run_on_one_thread
from tests.fixtures.speculating_engine import UNDRAFTED


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What came out of both engines; see `speculating_engine`."""
    folder = tmp_path_factory.mktemp("speculation")
    done = run_on_one_thread("tests.fixtures.speculating_engine", folder)
    assert done.returncode == 0, done.stderr[-4000:]
    # The hooks log their own errors with the traceback, and go on.
    assert "Traceback" not in done.stderr, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def test_greedy_answers_are_the_same_with_and_without_drafts(answered: dict[str, Any]) -> None:
    assert answered["requests"] >= 40
    assert answered["different"] == []


def test_drafts_came_from_past_answers_and_from_the_text_itself(answered: dict[str, Any]) -> None:
    counts = answered["counts"]
    assert set(counts) == {"retrieval", "prompt"}
    drafted, accepted = counts["retrieval"]
    assert drafted > 1000
    assert 0.3 < accepted / drafted <= 1
    assert counts["prompt"][0] > 0


def test_a_draft_that_came_with_the_request_is_verified_first(answered: dict[str, Any]) -> None:
    given = answered["given"]
    assert given["tokens"] == 40
    drafted, accepted = given["counts"]["cache"]
    # It was right: all but the first token of each step was drafted and accepted.
    assert accepted == drafted >= 30


def test_a_request_may_refuse_drafts(answered: dict[str, Any]) -> None:
    assert answered["refused"] == {"tokens": 40, "counts": {}, "left": None}


def test_the_report_is_taken_off_the_output(answered: dict[str, Any]) -> None:
    assert answered["given"]["left"] is None


@pytest.mark.parametrize("parameters", list(UNDRAFTED))
def test_what_drafts_would_change_gets_none_and_vllms_own_answer(
    answered: dict[str, Any], parameters: str
) -> None:
    assert answered["undrafted"][parameters] == {"same": True, "drafted": []}


def test_log_probabilities_of_named_tokens_do_not_end_the_engine(answered: dict[str, Any]) -> None:
    assert answered["named_logprobs"] < 0.1


def test_past_answers_are_kept_between_runs(answered: dict[str, Any]) -> None:
    assert answered["answers_kept"] > 4 * answered["requests"]
    assert answered["kept_bytes"] > 60 * 1024 * 1024
