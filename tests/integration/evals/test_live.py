"""`evenkeel eval live` over a real collector: draws, scores, stores, and sees a drift."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from evenkeel.store import Store
from tests.fixtures.collector_process import CollectorProcess, wait_for
from tests.fixtures.eval_setup import ROOT, run_eval, serving_setup
from tests.fixtures.production_traffic import send, storing_content
from tests.queries import query
from tests.unit.evals.ask.flaky_server import FlakyServer

CONFIG = """
name = "{name}"
window = "60s"
settle = "1s"
probability = 0.5
min_per_stratum = 3
strata = ["tenant"]

[[scorer]]
name = "pii"
good_at_least = 0.95

[[scorer]]
name = "refusal"
reference = false

[[scorer]]
name = "latency"
reference = 600

[judge]
url = "{url}"
calls_per_hour = 7
"""


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CollectorProcess]:
    with storing_content(tmp_path_factory.mktemp("live")) as running:
        yield running


def live(
    collector: CollectorProcess, folder: Path, name: str, url: str, *flags: str
) -> tuple[int, list[dict[str, Any]], str]:
    (folder / f"{name}.toml").write_text(CONFIG.format(name=name, url=url))
    done = run_eval(
        *("live", str(folder / f"{name}.toml")),
        *("--state", str(folder / name), "--store-url", collector.query_url, "--json"),
        *("--otlp-endpoint", collector.http_url, "--once", "--since", "30m", *flags),
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_known_share_is_scored_and_stored(collector: CollectorProcess, tmp_path: Path) -> None:
    turns: list[tuple[str, str | None]] = [
        (f"Where is order {i}?", "no idea" if i % 4 == 0 else "On its way.") for i in range(40)
    ]
    turns += [("unseen", None)] * 8
    send(collector, turns)
    with serving_setup(tmp_path) as setup:
        code, windows, err = live(collector, tmp_path, "calm", setup.url)
    assert code == 0, err
    busy = [w for w in windows if w["num_requests"]]
    assert sum(w["num_requests"] for w in busy) == 48
    assert sum(w["num_drawn"] for w in busy) in (24, 25)
    assert sum(w["num_judge_calls"] for w in windows) == 7
    reasons = " ".join(reason for w in busy for reason in w["skipped"])
    assert "budget is spent" in reasons
    assert all(w["lag_s"] > 0 for w in windows)
    last = {e["scorer"]: e for e in windows[-1]["estimates"]}
    assert [last[name]["share"] for name in ("pii", "refusal", "latency")] == [1.0] * 3
    assert last["pii"]["num_unscored"] + last["pii"]["num_scored"] in (24, 25)
    assert last["judge"]["num_scored"] == 7
    sql = (
        "SELECT scorer, count(), round(sum(1 / probability)) FROM live_evaluations"
        " WHERE monitor = 'calm' GROUP BY scorer ORDER BY scorer"
    )
    # They are sent in several bodies.
    wait_for(
        lambda: (
            [row[::2] for row in collector.rows(sql) if row[0] == "pii"] == [("pii", 48)]
            and len(collector.rows(sql)) == 4
        )
    )
    parents = (
        "SELECT count() FROM live_evaluations AS l JOIN requests AS r"
        " ON l.trace_id = r.trace_id AND l.request_span_id = r.span_id WHERE l.monitor = 'calm'"
    )
    wait_for(lambda: collector.rows(parents) == [(sum(row[1] for row in collector.rows(sql)),)])


def test_an_slo_may_be_about_a_live_evaluation(collector: CollectorProcess) -> None:
    """Runs after the first test, whose results it counts as an objective would."""
    store = Store(collector.query_url)
    parameters = {
        **{"width_ns": 3_600_000_000_000, "from_ns": 0, "to_ns": 4_000_000_000_000_000_000},
        **{"model": "", "prompt_name": "", "prompt_version": "", "scorer": "pii"},
    }
    try:
        live = store.rows(query("slo_eval_counts"), {**parameters, "dataset": "live:calm"})
        golden = store.rows(query("slo_eval_counts"), {**parameters, "dataset": ""})
    finally:
        store.close()
    # What has content, weighted: 40 of the 48 requests, give or take the draw.
    assert 30 <= sum(row["total_sum"] for row in live) <= 48
    assert sum(row["bad_sum"] for row in live) == 0
    assert golden == []


def test_a_judge_that_goes_away_is_waited_for(collector: CollectorProcess, tmp_path: Path) -> None:
    send(collector, [(f"Where is parcel {i}?", "On its way.") for i in range(4)], tenant="parcels")
    with FlakyServer() as judge:
        judge.speak = lambda system, question: "good"
        judge.go_away()
        (tmp_path / "gone.toml").write_text(CONFIG.format(name="gone", url=judge.url))
        running = subprocess.Popen(
            [
                *(sys.executable, "-m", "evenkeel", "eval", "live", str(tmp_path / "gone.toml")),
                *("--state", str(tmp_path / "gone"), "--store-url", collector.query_url, "--json"),
                *("--otlp-endpoint", "none", "--since", "30m", "--for", "30m"),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert running.stdout is not None and running.stderr is not None
        line = running.stderr.readline()
        assert "no server answers" in line and line.endswith("; retrying\n")
        assert running.poll() is None
        judge.come_back()
        judged = 0
        while not judged:
            judged = json.loads(running.stdout.readline())["num_judge_calls"]
        running.kill()
        _, err = running.communicate()
    # One line per outage.
    assert err == ""


def grow(collector: CollectorProcess, dataset: Path, *flags: str) -> dict[str, Any]:
    done = run_eval(
        *("grow", str(dataset), "--json"), *("--store-url", collector.query_url, *flags)
    )
    assert done.returncode == 0, done.stderr
    record: dict[str, Any] = json.loads(done.stdout)
    return record


def test_a_bad_answer_becomes_an_item_when_a_person_says_so(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    turns: list[tuple[str, str | None]] = [("Do you ship to Norway?", "No."), ("unseen", None)]
    known, unseen = send(collector, turns, tenant="grow")
    for trace_id in (known, unseen):
        said = {"trace_id": trace_id, "score": 0, "comment": "we do", "corrected": "Yes, we do."}
        assert httpx.post(f"{collector.http_url}/v1/feedback", json=said).status_code == 200
    wait_for(lambda: collector.rows("SELECT count() FROM feedback") == [(2,)])
    dataset = tmp_path / "faq"
    dataset.mkdir()
    row = {"id": "q", "messages": [{"role": "user", "content": "Hours?"}], "reference": "9 to 5"}
    (dataset / "faq.jsonl").write_text(json.dumps(row) + "\n")
    (dataset / "faq.toml").write_text('version = "1.0.0"\n')
    record = grow(collector, dataset)
    found = [c for c in record["candidates"] if c["trace_id"] == known]
    assert found[0]["question"] == "Do you ship to Norway?"
    assert (found[0]["corrected"], found[0]["reasons"]) == ("Yes, we do.", ["person: we do"])
    assert record["num_without_content"] == 1
    assert [c for c in grow(collector, dataset)["candidates"] if c["trace_id"] == known] == []
    item = grow(collector, dataset, "--accept", found[0]["id"], "--reference", "Yes, we do.")
    assert item["id"] == found[0]["id"]
    assert found[0]["id"] in (dataset / "faq.jsonl").read_text()

    # What people decide in the dashboard's review queue.
    turns = [("Do you sell tea?", "No."), ("Which colour is it?", "None.")]
    accepted, rejected = send(collector, turns, tenant="grow")
    for trace_id, decision in ((accepted, "accept"), (rejected, "reject")):
        order = {"by": "lee", "trace_id": trace_id, "decision": decision, "comment": "seen"}
        reference = {"reference": "Green tea."} if decision == "accept" else {}
        url = f"{collector.http_url}/api/review"
        assert httpx.post(url, json=order | reference).status_code == 200
    wait_for(lambda: collector.rows("SELECT count() FROM feedback") == [(4,)])
    record = grow(collector, dataset, "--reviewed", "--tags", "tea")
    assert len(record["accepted"]) == 1
    items = [json.loads(line) for line in (dataset / "faq.jsonl").read_text().splitlines()]
    assert (items[-1]["reference"], items[-1]["tags"]) == ("Green tea.", ["tea"])
    assert "colour" not in str(record)


def test_a_window_is_evaluated_once_and_drift_is_an_alert(
    collector: CollectorProcess, tmp_path: Path
) -> None:
    mail = "Write to kim@example.org"  # stored as [email]
    send(collector, [(f"Question {i}", mail) for i in range(150)], tenant="leaky")
    with serving_setup(tmp_path) as setup:
        (tmp_path / "leak.toml").write_text(CONFIG.format(name="leak", url=setup.url))
        command = (
            *("live", str(tmp_path / "leak.toml"), "--state", str(tmp_path / "leak")),
            *("--store-url", collector.query_url, "--otlp-endpoint", collector.http_url),
            *("--once", "--since", "30m"),
        )
        began_s = time.monotonic()
        first = run_eval(*command)
        assert (first.returncode, "DRIFT" in first.stdout) == (1, True), first.stderr
        again = run_eval(*command)
    assert again.returncode == 1
    # More windows, of a minute each, may have ended meanwhile; none is evaluated twice.
    took_s = time.monotonic() - began_s
    windows = [
        {line.split(" UTC: ")[0] for line in run.stdout.splitlines() if "requests sampled" in line}
        for run in (first, again)
    ]
    assert windows[0]
    assert not windows[0] & windows[1]
    assert len(windows[1]) <= 1 + took_s // 60
    sql = "SELECT verdict, gate, estimate < 0.95 FROM eval_results WHERE run_id = 'live-leak'"
    wait_for(lambda: bool(collector.rows(sql)))
    assert collector.rows(sql) == [("regressed", "pii>=95.0%", 1)]


def test_mistakes_in_the_file_are_named(collector: CollectorProcess, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    for text, complaint in [
        ('name = "x"\n', "nothing would be scored"),
        ('name = "x"\nstrata = ["colour"]\n[[scorer]]\nname = "pii"\n', "strata"),
        ('name = "x"\n[[scorer]]\nname = "exact"\n', "exact"),
        ('name = "x"\n[[scorer]]\nname = "rubric"\nreference = "polite"\n', "[judge]"),
        ('name = "x"\nprobability = 2\n[[scorer]]\nname = "pii"\n', "probability"),
    ]:
        path.write_text(text)
        done = run_eval(*("live", str(path)), *("--state", str(tmp_path / "state"), "--once"))
        assert (done.returncode, complaint in done.stderr) == (2, True), done.stderr
