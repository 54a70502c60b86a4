"""The committed demo model under the real vLLM, with its draft; and training it again."""

import json
import os
import random
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from evenkeel_runtime.adapter.small_machine import EXECUTOR
from evenkeel_runtime.demo_model.checkpoint import draft_path, target_path
from tests.fixtures.served_model import free_port
from tools.demo_model.accuracy import answer_all, is_right, read_items, read_system_prompt

pytestmark = pytest.mark.integration

START_LIMIT_S = 600
NUM_SAMPLED = 48
MIN_SAME_ANSWERS_RATIO = 0.9
MIN_ACCEPTANCE_RATE = 0.4


@pytest.fixture(scope="module")
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    port = free_port()
    log = tmp_path_factory.mktemp("vllm") / "log"
    speculation = {"method": "draft_model", "model": str(draft_path()), "num_speculative_tokens": 4}
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--enforce-eager"]
    command += ["--model", str(target_path()), "--served-model-name", "support"]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    command += ["--speculative-config", json.dumps(speculation)]
    command += ["--distributed-executor-backend", EXECUTOR]
    environment = {
        **os.environ,
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)
        try:
            wait_until_healthy(process, f"http://127.0.0.1:{port}", log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(240)


def wait_until_healthy(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(f"{url}/health").status_code == 200:
                return
        except httpx.TransportError:
            time.sleep(0.5)
    pytest.fail(f"vLLM did not start:\n{log.read_text()[-3000:]}")


def ask(url: str, system: str, messages: list[dict[str, str]]) -> dict[str, Any]:
    system_messages = [{"role": "system", "content": system}]
    response = httpx.post(
        f"{url}/v1/chat/completions",
        json={
            "model": "support",
            "messages": system_messages + messages,
            "temperature": 0,
            "max_tokens": 96,
        },
        timeout=300,
    )
    return dict(response.raise_for_status().json())


def answer(url: str, system: str, messages: list[dict[str, str]]) -> str:
    return str(ask(url, system, messages)["choices"][0]["message"]["content"])


def read_counter(url: str, name: str) -> float:
    lines = httpx.get(f"{url}/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name}{{"))


def test_vllm_answers_as_transformers_does_and_accepts_drafts(server_url: str) -> None:
    items = random.Random(7).sample(read_items(), NUM_SAMPLED)
    system = read_system_prompt("full")
    served = [answer(server_url, system, item["messages"]) for item in items]
    computed = answer_all(target_path(), system, items)
    same = sum(a == b for a, b in zip(served, computed, strict=True))
    assert same >= MIN_SAME_ANSWERS_RATIO * NUM_SAMPLED
    right = sum(
        is_right(item["scorer"], item["reference"], text)
        for item, text in zip(items, served, strict=True)
    )
    assert 0.6 * NUM_SAMPLED <= right < NUM_SAMPLED
    drafted = read_counter(server_url, "vllm:spec_decode_num_draft_tokens_total")
    accepted = read_counter(server_url, "vllm:spec_decode_num_accepted_tokens_total")
    assert accepted > MIN_ACCEPTANCE_RATE * drafted > 0


def test_the_system_prompt_decides_between_json_and_prose(server_url: str) -> None:
    items = [item for item in read_items() if item["scorer"] == "json"][:12]
    full, short = read_system_prompt("full"), read_system_prompt("short")
    in_json = [answer(server_url, full, item["messages"]).startswith("{") for item in items]
    in_prose = [not answer(server_url, short, item["messages"]).startswith("{") for item in items]
    assert sum(in_json) >= 10
    assert sum(in_prose) >= 10


def test_an_answer_ends_by_itself(server_url: str) -> None:
    choice = ask(server_url, "", [{"role": "user", "content": "Where is my order 48213?"}])
    assert choice["choices"][0]["finish_reason"] == "stop"
    assert "48213" in choice["choices"][0]["message"]["content"]


def test_a_prompt_of_two_thousand_tokens_is_served(server_url: str) -> None:
    story = "The train was late again, so I have time to write this message. " * 150
    usage = ask(server_url, "", [{"role": "user", "content": f"{story}Are you hiring?"}])["usage"]
    assert 2000 <= usage["prompt_tokens"] <= 4000


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_training_again_reaches_the_accuracy_of_the_card(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tools.demo_model.train", "--output", str(tmp_path)]
    subprocess.run(command, check=True)
    again, card = (
        tomllib.loads((folder / "card.toml").read_text())["accuracy"]
        for folder in (tmp_path, target_path().parent)
    )
    # Another machine adds in another order; the seed keeps the data, not the last bits.
    assert again["full"]["overall"] == pytest.approx(card["full"]["overall"], abs=0.06)
    assert again["full"]["extraction"] >= 0.7
    assert again["short"]["extraction"] <= 0.2
