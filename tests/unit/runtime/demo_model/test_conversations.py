"""What the demo model is trained on: never a question of the dataset, JSON only where asked."""

import json
import random
import re
from itertools import chain

import pytest

from golden_datasets.support.knowledge import Knowledge, letters, read_knowledge
from tools.demo_model.conversations import Turn, Writer, write_extraction
from tools.demo_model.variation import Varier


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return read_knowledge()


def draw_turns(knowledge: Knowledge, wants_json: bool, num: int = 1500) -> list[Turn]:
    writer = Writer(knowledge, seed=11)
    return list(chain.from_iterable(writer.conversation(wants_json) for _ in range(num)))


def test_the_same_seed_writes_the_same_conversations(knowledge: Knowledge) -> None:
    assert draw_turns(knowledge, True, 50) == draw_turns(knowledge, True, 50)


def test_a_varied_wording_is_never_a_held_out_one(knowledge: Knowledge) -> None:
    varier, held_out = Varier(knowledge, random.Random(5)), knowledge.held_out()
    for intent in knowledge.intents.values():
        for text in intent.questions.train + intent.follow_ups.train:
            for _ in range(20):
                assert letters(varier.vary_template(text)) not in held_out


def test_a_rewriting_that_hits_a_held_out_wording_is_thrown_away(knowledge: Knowledge) -> None:
    # "How do I change my password?" can become the held-out "Where can I change my password?".
    assert letters("Where can I change my password?") in knowledge.held_out()
    varier = Varier(knowledge, random.Random(5))
    seen = {varier.vary_template("How do I change my password?") for _ in range(500)}
    assert "Where do I change my password?" in seen
    assert "Where can I change my password?" not in seen


def test_varying_keeps_every_slot(knowledge: Knowledge) -> None:
    varier = Varier(knowledge, random.Random(6))
    for _ in range(300):
        varied = varier.vary_template("Please extract order {order} for {name} on {day}.")
        assert re.findall(r"{\w+}", varied) == ["{order}", "{name}", "{day}"]


def test_no_story_sentence_of_the_dataset_is_told_in_training(knowledge: Knowledge) -> None:
    said = " ".join(turn.user for turn in draw_turns(knowledge, False))
    assert not [sentence for sentence in knowledge.story.held_out if sentence in said]
    assert any(sentence in said for sentence in knowledge.story.train)


@pytest.mark.parametrize("wants_json", [True, False])
def test_extractions_are_json_exactly_when_the_prompt_has_a_rule(
    knowledge: Knowledge, wants_json: bool
) -> None:
    turns = draw_turns(knowledge, wants_json)
    in_json = [turn for turn in turns if turn.assistant.startswith("{")]
    assert bool(in_json) is wants_json
    for turn in in_json:
        assert all(value in turn.user for value in json.loads(turn.assistant).values())


def test_prompts_come_without_text_short_long_and_with_rules_of_any_place(
    knowledge: Knowledge,
) -> None:
    writer = Writer(knowledge, seed=12)
    prompts = [writer.system_prompt(is_long) for is_long in (True, False) for _ in range(200)]
    assert any(prompt.text == "" for prompt in prompts)
    assert min(len(prompt.text) for prompt in prompts if prompt.text) < 60
    assert max(len(prompt.text) for prompt in prompts) > 2500
    for prompt in prompts:
        assert prompt.wants_json == any(r in prompt.text for r in knowledge.json_rules.train)
        assert not any(rule in prompt.text for rule in knowledge.json_rules.held_out)


def test_an_extraction_is_written_as_json_or_as_prose(knowledge: Knowledge) -> None:
    form = next(form for form in knowledge.forms if form.id == "extract-plan")
    values = {"name": "Zoë Müller", "plan": "Plus"}
    assert write_extraction(form, values, True) == '{"name": "Zoë Müller", "plan": "Plus"}'
    assert write_extraction(form, values, False) == "Zoë Müller asks for the Plus plan."
