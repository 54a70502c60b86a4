"""`evenkeel eval bisect` replays recorded traffic and names the change that moved the answers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fixtures.collector_process import CollectorProcess
from tests.fixtures.eval_setup import run_eval, serving_setup
from tests.fixtures.production_traffic import send, storing_content

CHANGES = """
base = "good.toml"
[[change]]
name = "longer"
sampling = {max_tokens = 128}
[[change]]
name = "cooler"
sampling = {top_p = 0.9}
[[change]]
name = "careless prompt"
system = "worse"
[[change]]
name = "seeded"
sampling = {seed = 1}
"""


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    with storing_content(tmp_path_factory.mktemp("bisect")) as running:
        yield running


def test_the_setting_that_moved_the_answers_is_named(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    send(collector, [(f"say {i}", f"say {i}") for i in range(60)])
    (tmp_path / "good.toml").write_text('[prompt]\nsystem = "good"\n')
    (tmp_path / "changes.toml").write_text(CHANGES)
    with serving_setup(tmp_path) as setup:
        command = (
            *("bisect", str(tmp_path / "changes.toml")),
            *("--gate", "accuracy>=-6%", "--store-url", collector.query_url, "--url", setup.url),
            *("--otlp-endpoint", "none", "--report", str(tmp_path / "report"), "--json"),
        )
        done = run_eval(*command)
        assert done.returncode == 1, done.stderr
        record = json.loads(done.stdout)
        assert (record["ending"], record["change"]) == ("found", "careless prompt")
        assert [(s["from"], s["to"]) for s in record["steps"]] == [
            ("base", "seeded"),
            ("base", "cooler"),
            ("base", "careless prompt"),
            ("cooler", "careless prompt"),
        ]
        # It goes on from what --report holds: the same traffic, and no call.
        before = setup.answered()
        send(collector, [("say 99", "say 99")])
        again = run_eval(*command)
        assert (again.returncode, again.stdout) == (1, done.stdout), again.stderr
        assert setup.answered() == before
