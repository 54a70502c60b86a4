"""A drop in production rolls a label back through a real collector; its traffic is asked again."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from evenkeel.prompts.registry import Move, PromptRegistry, PromptVersion, digest
from tests.fixtures.collector_process import CollectorProcess, running_collector
from tests.fixtures.eval_setup import run_eval, serving_setup
from tests.fixtures.production_traffic import send

TOKEN = "an operator's"
CONFIG = """
name = "guarded"
settle = "1s"
probability = 0.5
[[scorer]]
name = "safety"
ban = ["kim"]
[[dial_back]]
gate = "safety>=90%"
prompt = "support"
"""


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    folder = tmp_path_factory.mktemp("registry")
    found = PromptRegistry(folder)
    for text in ("Be kind.", "Be brief."):
        prompt = PromptVersion("support", digest(text), text)
        found.keep(prompt)
        found.move("support", Move(1, "production", prompt.version, "passed", "r"))
    return folder, [digest("Be kind."), digest("Be brief.")]


@pytest.fixture(scope="module")
def collector(
    tmp_path_factory: pytest.TempPathFactory, registry: tuple[Path, list[str]]
) -> Iterator[CollectorProcess]:
    folder = tmp_path_factory.mktemp("collector")
    (folder / "evenkeel.toml").write_text('[redaction]\ncontent_tenants = ["*"]\n')
    with running_collector(folder, ("--prompts-dir", str(registry[0]))) as running:
        yield running


def evenkeel_eval(*words: str) -> tuple[int, list[dict[str, Any]], str]:
    environment = {**os.environ, "EVENKEEL_EVAL_COLLECTOR_TOKEN": TOKEN}
    done = run_eval(*words, "--json", env=environment)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_label_goes_back_once_and_only_if_told_to(
    collector: CollectorProcess, registry: tuple[Path, list[str]], tmp_path: Path
) -> None:
    folder, (good, bad) = registry
    turns: list[tuple[str, str | None]] = [(f"Question {i}", "Write to kim") for i in range(150)]
    send(collector, turns, prompt_version=bad)
    (tmp_path / "live.toml").write_text(CONFIG)
    words = [
        *("live", str(tmp_path / "live.toml"), "--state", str(tmp_path / "state")),
        *("--store-url", collector.query_url, "--otlp-endpoint", "none"),
        *("--collector-url", collector.http_url, "--once", "--since", "30m"),
    ]
    code, lines, err = evenkeel_eval(*words)
    (said,) = [d for line in lines for d in line["dial_backs"]]
    assert (code, said["is_dry_run"], said["subject"], said["to"]) == (1, True, bad, None), err
    assert PromptRegistry(folder).labels("support") == {"production": bad}

    code, lines, err = evenkeel_eval(*words, "--act")
    (done,) = [d for line in lines for d in line["dial_backs"]]
    assert (done["is_dry_run"], done["subject"], done["to"]) == (False, bad, good), err
    assert PromptRegistry(folder).labels("support") == {"production": good}
    entry = httpx.get(f"{collector.http_url}/api/audit").json()["entries"][0]
    assert (entry["by"], entry["action"]) == ("evenkeel eval live guarded", "rollback")
    assert "safety>=90% does not hold in production" in entry["details"]["reason"]

    _, lines, err = evenkeel_eval(*words, "--act")
    assert [d for line in lines for d in line.get("dial_backs", [])] == [], err
    assert len(PromptRegistry(folder).history("support")) == 3


def test_a_collector_that_is_away_changes_nothing(
    collector: CollectorProcess, registry: tuple[Path, list[str]], tmp_path: Path
) -> None:
    (tmp_path / "live.toml").write_text(CONFIG)
    before = PromptRegistry(registry[0]).history("support")
    _, lines, err = evenkeel_eval(
        *("live", str(tmp_path / "live.toml"), "--state", str(tmp_path / "state"), "--act"),
        *("--store-url", collector.query_url, "--otlp-endpoint", "none", "--once"),
        *("--collector-url", "http://127.0.0.1:9", "--since", "30m"),
    )
    assert "dial back: support@production could not be rolled back: http://127.0.0.1:9" in err
    assert all(set(d) == {"error"} for line in lines for d in line["dial_backs"])
    assert PromptRegistry(registry[0]).history("support") == before


def test_recorded_requests_are_the_items_of_a_run(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    send(collector, [(f"say {i}", f"say {i}") for i in range(80)], tenant="replayed")
    with serving_setup(tmp_path) as setup:
        words = [
            *("run", "--traffic", collector.query_url, "--limit", "60", "--url", setup.url),
            *("--baseline", str(setup.dataset / "a.toml"), "--warmup", "0"),
            *("--candidate", str(setup.dataset / "b.toml"), "--otlp-endpoint", "none"),
            *("--gate", "accuracy>=-5%", "--allow-inconclusive", "--report", str(setup.report)),
        ]
        code, (record,), err = evenkeel_eval(*words)
        assert code in (0, 1), err
        assert record["dataset"]["name"] == "traffic" and record["num_pairs"] == 60
        _, (again,), _ = evenkeel_eval(*words)
        assert again["run_id"] == record["run_id"]
    kept = (setup.report / "traffic" / "traffic.jsonl").read_text().splitlines()
    assert len(kept) == 60


def test_a_run_takes_a_dataset_or_traffic(tmp_path: Path) -> None:
    sides = ("--baseline", "a.toml", "--candidate", "b.toml")
    for source in ((), (str(tmp_path), "--traffic", "x.jsonl")):
        code, _, err = evenkeel_eval("run", *source, *sides)
        assert (code, "give either a dataset folder or --traffic" in err) == (2, True)
