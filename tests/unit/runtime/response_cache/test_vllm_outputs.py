"""What vLLM gets of a cached answer."""

import pytest

from evenkeel_runtime.response_cache.vllm_outputs import make_hit
from tests.unit.runtime.response_cache.questions import entry, question


@pytest.mark.parametrize(
    ("prompt", "text"),
    [
        pytest.param({"prompt_token_ids": [1, 2], "prompt": "User: x"}, "User: x", id="text"),
        pytest.param({"prompt_token_ids": [1, 2]}, None, id="only tokens"),
    ],
)
def test_a_hit_has_the_prompt_of_its_request(prompt: dict[str, object], text: str | None) -> None:
    output = make_hit("r", prompt, entry(question()))
    # vLLM returns it to a client that asks for `return_prompt_text`.
    assert (output.prompt, output.prompt_token_ids) == (text, [1, 2])
