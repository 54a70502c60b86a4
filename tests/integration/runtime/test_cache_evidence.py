"""A real vLLM serves paraphrases after calibration, and still does after a restart."""

import json
import time
from collections.abc import Sequence
from pathlib import Path

import httpx

from evenkeel.cli import main
from golden_datasets.support.rewordings import read_rewordings
from tests.checkout import ROOT
from tests.fixtures.equipped_server import CACHE_HEADER
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.served_model import ServedModel, serve

POLICY = """
embedding_timeout_s = 10

[[routes]]
mode = "serve"
wrong_hit_limit = 0.1
"""
# Verdicts on traffic that a kind with labels needs, and more: not each question has a near one.
NUM_ASKED = 40


def ask(server: ServedModel, text: str) -> tuple[str, str | None]:
    """Return the answer, and which layer of the cache gave it."""
    body = {
        "model": server.model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 96,
    }
    response = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=120)
    assert response.status_code == 200, response.text
    answer: str = response.json()["choices"][0]["message"]["content"]
    return answer, response.headers.get(CACHE_HEADER)


def ask_until_served(server: ServedModel, texts: Sequence[str]) -> tuple[str, str]:
    """Ask one after the other; return the first question that a near hit answers, with it.

    Not at once: embeddings that find nothing have a small budget, and a wording finds the one
    before it only when that has been answered.
    """
    for text in texts:
        answer, layer = ask(server, text)
        if layer == "semantic":
            return text, answer
        time.sleep(0.02)  # The answer is stored behind the response.
    raise AssertionError(httpx.get(f"{server.url}/v1/evenkeel/cache").text)


def test_a_paraphrase_is_served_after_calibration_and_after_a_restart(tmp_path: Path) -> None:
    dataset, policy = ROOT / "golden_datasets" / "support", tmp_path / "cache.toml"
    policy.write_text(POLICY)
    command = ["cache", "calibrate", str(dataset), "--data-dir", str(tmp_path / "data")]
    assert main(command) == 0
    # Wordings of one question follow one another, so that each has near ones.
    questions = read_rewordings()
    texts = [text for question in questions for text in question.trained]
    # Near ones of the same words, for verdicts on traffic; then rewordings.
    begin = [f"{start}{text}" for text in texts[:NUM_ASKED] for start in ("", "So, ")]
    own = {text: question.answer for question in questions for text in question.wordings}
    # Without drafts, whose model takes time to load.
    flags = ("--cache", str(policy), "--speculate", "none")
    receiver = OtlpReceiver()
    try:
        with serve(tmp_path, receiver, *flags) as server:
            text, answer = ask_until_served(server, [*begin, *texts[NUM_ASKED:]])
            assert answer == own[text.removeprefix("So, ")]
        (file,) = (tmp_path / "data").glob("cache-evidence-*.json")
        saved = json.loads(file.read_text())
        assert sum(row[3] - row[5] for row in saved["routes"]["*"]["classes"]) >= 20
        with serve(tmp_path, receiver, *flags) as server:
            # The answers are gone, the evidence is not: the first near ones are served.
            text, answer = ask_until_served(server, texts[:120])
            assert answer == own[text.removeprefix("So, ")]
            state = httpx.get(f"{server.url}/v1/evenkeel/cache").json()
            assert state["evidence_discarded"] == {}
            assert any(item["is_served"] for item in state["routes"]["*"]["evidence"])
    finally:
        receiver.stop()
