"""`prompt: name@label` in a chat request, on the real vLLM."""

import httpx

from evenkeel.prompts.registry import PromptRegistry
from tests.fixtures.served_model import ROOT, ServedModel


def ask(served: ServedModel, tenant: str, **fields: object) -> httpx.Response:
    body = {"model": served.model, "max_tokens": 24, "temperature": 0, "messages": [], **fields}
    headers = {"x-evenkeel-tenant": tenant}
    return httpx.post(f"{served.url}/v1/chat/completions", json=body, headers=headers, timeout=120)


def test_the_version_is_used_and_stamped(served_model: ServedModel) -> None:
    draft = PromptRegistry(ROOT / "prompts").draft("support")
    user = {"role": "user", "content": "How do I reset my password?"}
    by_name = ask(served_model, "by-name", prompt="support@draft", messages=[user])
    written_out = [{"role": "system", "content": draft.system}, user]
    by_text = ask(served_model, "by-text", messages=written_out)
    assert by_name.status_code == by_text.status_code == 200, by_name.text
    assert by_name.json()["choices"] == by_text.json()["choices"]
    assert by_name.json()["usage"]["prompt_tokens"] == by_text.json()["usage"]["prompt_tokens"]
    span = served_model.wait_for_request(evenkeel__tenant="by-name").attributes
    assert span["evenkeel.prompt.name"] == "support"
    assert span["evenkeel.prompt.version"] == draft.version
    assert span["evenkeel.ledger.ttft.host.prompt"] > 0
    assert not any(name.endswith(".messages") for name in span)


def test_a_prompt_that_is_not_ours_is_ignored_as_vllm_does(served_model: ServedModel) -> None:
    user = {"role": "user", "content": "How do I reset my password?"}
    plain = ask(served_model, "no-prompt", messages=[user])
    for prompt in ("nope@production", "Once upon a time", ["x"], 7):
        answer = ask(served_model, "unknown-prompt", prompt=prompt, messages=[user])
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"] == plain.json()["choices"]
    span = served_model.wait_for_request(evenkeel__tenant="unknown-prompt").attributes
    assert span["evenkeel.status"] == "ok"
    assert "evenkeel.prompt.name" not in span
