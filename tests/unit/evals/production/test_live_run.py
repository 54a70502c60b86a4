"""A live evaluation resumes: each window once, results retried until they are stored."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.ask.settings import EvalSettings
from evenkeel_evals.production.live import (
    HOUR_NS,
    LiveRun,
    LiveWindow,
    Row,
)
from evenkeel_evals.production.live_config import LiveConfig, load_config

FILE = """
name = "{name}"
[[scorer]]
name = "pii"
good_at_least = 0.9
[judge]
url = "http://h"
calls_per_hour = 10
"""


def config(folder: Path, name: str = "one") -> LiveConfig:
    path = folder / "live.toml"
    path.write_text(FILE.format(name=name))
    return load_config(path)


def window(number: int, num_calls: int = 0, label: str = "right") -> LiveWindow:
    value = None if label == "unscored" else float(label == "right")
    row = Row(
        *("a" * 32, "b" * 16, "c" * 16, "-", 0.5, "pii", value, label, None, 1.0),
        *("support", None, None, None),
    )
    hour = number * HOUR_NS
    return LiveWindow(hour, hour + HOUR_NS, 2, 1, {}, num_calls, 1.0, [row])


def test_a_restart_finds_what_was_done_and_what_was_not_sent(tmp_path: Path) -> None:
    with Journal(tmp_path / "live.jsonl") as journal:
        run = LiveRun(config(tmp_path), journal)
        assert run.next_from_ns is None
        for number in (0, 1, 2):
            run.keep(window(number))
        run.record_sent(run.windows[1])
    with Journal(tmp_path / "live.jsonl") as journal:
        again = LiveRun(config(tmp_path), journal)
        assert again.next_from_ns == 3 * HOUR_NS
        assert [w.from_ns for w in again.unsent] == [0, 2 * HOUR_NS]
        assert again.estimates()[0].num_scored == 3
    with (
        Journal(tmp_path / "live.jsonl") as journal,
        pytest.raises(ConfigurationError, match="belongs to the live evaluation 'one'"),
    ):
        LiveRun(config(tmp_path, "other"), journal)


@pytest.mark.parametrize(
    ("judge_key", "judge_url", "sent"),
    [
        pytest.param("of-judge", "http://judge", "of-judge", id="its own"),
        pytest.param("of-judge", "http://side", "of-judge", id="its own, on a side's server"),
        pytest.param(None, "http://side", "of-sides", id="that of the sides, on their server"),
        pytest.param(None, "http://judge", None, id="never that of another server"),
    ],
)
def test_the_judge_gets_its_own_servers_key(
    judge_key: str | None, judge_url: str, sent: str | None
) -> None:
    secret = None if judge_key is None else SecretStr(judge_key)
    settings = EvalSettings(api_key=SecretStr("of-sides"), judge_api_key=secret)
    assert settings.judge_key(judge_url, ("http://side", None)) == sent


def test_the_judges_budget_is_that_of_the_last_hour(tmp_path: Path) -> None:
    with Journal(tmp_path / "live.jsonl") as journal:
        run = LiveRun(config(tmp_path), journal)
        run.keep(window(0, num_calls=6))
        run.keep(window(1, num_calls=3))
        assert run.budget(2 * HOUR_NS) == 7
        assert run.budget(2 * HOUR_NS - 1) == 1
        assert run.budget(9 * HOUR_NS) == 10
