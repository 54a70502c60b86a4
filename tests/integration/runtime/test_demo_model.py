"""The committed demo model under the real vLLM, with its draft; and training it again."""

import random
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import httpx
import pytest

from evenkeel_runtime.demo_model.checkpoint import target_path
from tests.fixtures.served_model import ServedModel
from tools.demo_model.accuracy import answer_all, is_right, read_items, read_system_prompt

NUM_SAMPLED = 48
MIN_SAME_ANSWERS_RATIO = 0.9
MIN_ACCEPTANCE_RATE = 0.4


def ask(served: ServedModel, system: str, messages: list[dict[str, str]]) -> dict[str, Any]:
    system_messages = [{"role": "system", "content": system}]
    response = httpx.post(
        f"{served.url}/v1/chat/completions",
        json={
            "model": served.model,
            "messages": system_messages + messages,
            "temperature": 0,
            "max_tokens": 96,
        },
        timeout=300,
    )
    return dict(response.raise_for_status().json())


def answer(served: ServedModel, system: str, messages: list[dict[str, str]]) -> str:
    return str(ask(served, system, messages)["choices"][0]["message"]["content"])


def read_drafts(served: ServedModel) -> tuple[float, float]:
    """Drafted and accepted tokens so far."""
    kinds = ("draft", "accepted")
    drafted, accepted = (served.metric(f"vllm:spec_decode_num_{k}_tokens_total") for k in kinds)
    return drafted, accepted


def test_vllm_answers_as_transformers_does_and_accepts_drafts(served_model: ServedModel) -> None:
    items = random.Random(7).sample(read_items(), NUM_SAMPLED)
    system = read_system_prompt("full")
    before = read_drafts(served_model)
    served = [answer(served_model, system, item["messages"]) for item in items]
    after = read_drafts(served_model)
    computed = answer_all(target_path(), system, items)
    same = sum(a == b for a, b in zip(served, computed, strict=True))
    assert same >= MIN_SAME_ANSWERS_RATIO * NUM_SAMPLED
    right = sum(
        is_right(item["scorer"], item["reference"], text)
        for item, text in zip(items, served, strict=True)
    )
    assert 0.6 * NUM_SAMPLED <= right < NUM_SAMPLED
    drafted, accepted = (now - then for now, then in zip(after, before, strict=True))
    assert accepted > MIN_ACCEPTANCE_RATE * drafted > 0


def test_the_system_prompt_decides_between_json_and_prose(served_model: ServedModel) -> None:
    items = [item for item in read_items() if item["scorer"] == "json"][:12]
    full, short = read_system_prompt("full"), read_system_prompt("short")
    in_json = [answer(served_model, full, item["messages"]).startswith("{") for item in items]
    in_prose = [not answer(served_model, short, item["messages"]).startswith("{") for item in items]
    assert sum(in_json) >= 10
    assert sum(in_prose) >= 10


def test_an_answer_ends_by_itself(served_model: ServedModel) -> None:
    choice = ask(served_model, "", [{"role": "user", "content": "Where is my order 48213?"}])
    assert choice["choices"][0]["finish_reason"] == "stop"
    assert "48213" in choice["choices"][0]["message"]["content"]


def test_a_prompt_of_two_thousand_tokens_is_served(served_model: ServedModel) -> None:
    story = "The train was late again, so I have time to write this message. " * 150
    usage = ask(served_model, "", [{"role": "user", "content": f"{story}Are you hiring?"}])["usage"]
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
