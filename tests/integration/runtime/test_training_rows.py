"""Packed rows train as if each conversation stood alone behind its system prompt."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from golden_datasets.support.knowledge import read_knowledge
from tools.demo_model.conversations import Writer
from tools.demo_model.rows import Batch, RowMaker, see
from tools.demo_model.tokenizer import END
from tools.demo_model.train import TARGET_RECIPE, build_model, make_tokenizer, rate_ratio


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer()


@pytest.fixture(scope="module")
def batch(tokenizer: PreTrainedTokenizerFast) -> Batch:
    return RowMaker(tokenizer, Writer(read_knowledge(), 2)).batch(2304, is_long=True)


def test_a_token_sees_the_prompt_and_earlier_tokens_of_its_own_conversation() -> None:
    visible = see(torch.tensor([[0, 1, 1, 2, -1]]))[0].int().tolist()
    assert visible == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 0, 1, 0],
        [1, 0, 0, 0, 1],
    ]


# A busy machine may be slow to draw texts; that is no failure.
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(text=st.text(max_size=200))
def test_any_text_survives_the_tokenizer(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
    assert tokenizer.decode(ids) == text


def test_every_digit_is_a_token(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.tokenize("order 48213.")[-6:] == ["4", "8", "2", "1", "3", "."]


def test_only_answers_with_their_end_token_are_learnt(
    tokenizer: PreTrainedTokenizerFast, batch: Batch
) -> None:
    for tokens, labels in zip(batch.tokens, batch.labels, strict=True):
        learnt = labels[labels != -100]
        answers = tokenizer.decode(learnt).split(END)
        assert len(answers) > 2
        assert answers.pop() == ""
        assert all(answer and "<|" not in answer for answer in answers)
        # A label is the token that follows.
        where = (labels != -100).nonzero().flatten()
        assert torch.equal(tokens[where + 1], learnt)


def test_a_packed_conversation_gets_the_logits_of_one_that_stands_alone(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    torch.manual_seed(3)
    model = build_model(TARGET_RECIPE, tokenizer).eval()
    prompt, first, second = [2, 40, 41, 1], [3, 50, 51, 1, 4], [3, 60, 1, 4]
    segments = torch.tensor([[0] * 4 + [1] * 5 + [2] * 4])
    with torch.inference_mode():
        packed = model(
            input_ids=torch.tensor([prompt + first + second]),
            position_ids=torch.tensor([[*range(4), *range(4, 9), *range(4, 8)]]),
            attention_mask=see(segments)[:, None],
        ).logits[0, -4:]
        alone = model(input_ids=torch.tensor([prompt + second])).logits[0, -4:]
    torch.testing.assert_close(packed, alone, atol=1e-4, rtol=1e-4)


def test_the_chat_template_writes_what_training_rows_hold(
    tokenizer: PreTrainedTokenizerFast,
) -> None:
    text = tokenizer.apply_chat_template(
        [{"role": "system", "content": "S"}, {"role": "user", "content": "Q"}],
        tokenize=False,
        add_generation_prompt=True,
    )
    assert text == "<|system|>S<|end|><|user|>Q<|end|><|assistant|>"


def test_the_learning_rate_rises_then_falls_to_its_floor() -> None:
    rates = [rate_ratio(step, 100) for step in range(101)]
    assert rates[4] == 1.0
    assert rates[:5] == sorted(rates[:5])
    assert rates[5:] == sorted(rates[5:], reverse=True)
    assert rates[100] == pytest.approx(0.05)
