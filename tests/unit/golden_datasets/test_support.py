"""The dataset on disk: its format, its hash, its slices, and that no training text is asked."""

import hashlib
import json
import random
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from golden_datasets.support import generate
from golden_datasets.support.items import (
    EXACT_REPEAT,
    EXTRACTION,
    LONG_PROMPT,
    MULTI_TURN,
    NEAR_MISS,
    PARAPHRASE,
    SPECIAL_CHARACTERS,
)
from golden_datasets.support.knowledge import (
    Knowledge,
    Wordings,
    fill,
    frame,
    letters,
    read_knowledge,
    slot_names,
)

FOLDER = Path(generate.__file__).parent
SLICES = {
    EXACT_REPEAT,
    PARAPHRASE,
    MULTI_TURN,
    LONG_PROMPT,
    SPECIAL_CHARACTERS,
    EXTRACTION,
    NEAR_MISS,
}


def read_lines(name: str) -> list[dict[str, Any]]:
    # Not splitlines(): a message may hold other line separators than \n.
    return [json.loads(line) for line in (FOLDER / name).read_text("utf-8").split("\n") if line]


@pytest.fixture(scope="module")
def items() -> list[dict[str, Any]]:
    return read_lines("support.jsonl")


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return tomllib.loads((FOLDER / "support.toml").read_text("utf-8"))


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return read_knowledge()


def tagged(items: list[dict[str, Any]], tag: str) -> list[dict[str, Any]]:
    return [item for item in items if tag in item["tags"]]


def everything_said(knowledge: Knowledge) -> list[Wordings]:
    return [
        *(intent.questions for intent in knowledge.intents.values()),
        *(intent.follow_ups for intent in knowledge.intents.values()),
        *(form.messages for form in knowledge.forms),
        knowledge.requests,
        knowledge.story,
        knowledge.announcements,
        knowledge.corrections,
        knowledge.json_rules,
    ]


def test_generating_again_gives_the_same_bytes(knowledge: Knowledge) -> None:
    for name, text in generate.render(knowledge).items():
        assert (FOLDER / name).read_bytes() == text.encode(), name


def test_check_reports_a_stale_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate.main(["--check"]) == 0
    for name, text in generate.render(read_knowledge()).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "pairs.jsonl").write_text("")
    assert generate.main(["--check", "--folder", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("pairs.jsonl differs")


def test_every_item_has_exactly_the_fields_of_the_format(items: list[dict[str, Any]]) -> None:
    for item in items:
        assert list(item) == ["id", "messages", "reference", "scorer", "tags", "cluster_id"]
        assert item["scorer"] in {"exact", "normalised", "json"}
        assert item["reference"].strip() == item["reference"] != ""
        roles = [message["role"] for message in item["messages"]]
        assert roles == (["user", "assistant"] * len(roles))[: len(roles)]
        assert roles[-1] == "user"
        assert all(list(message) == ["role", "content"] for message in item["messages"])


def test_no_slot_is_left_unfilled(items: list[dict[str, Any]], knowledge: Knowledge) -> None:
    left = re.compile("{(" + "|".join([*knowledge.slots, "order", "q", "keys"]) + r")[.}]")
    for item in items:
        assert not left.search(item["messages"][-1]["content"] + item["reference"]), item["id"]


def test_ids_are_unique_and_only_exact_repeats_repeat_a_conversation(
    items: list[dict[str, Any]],
) -> None:
    assert len({item["id"] for item in items}) == len(items)
    fresh = [item for item in items if EXACT_REPEAT not in item["tags"]]
    by_messages = {json.dumps(item["messages"]): item for item in fresh}
    assert len(by_messages) == len(fresh)
    for item in tagged(items, EXACT_REPEAT):
        original = by_messages[json.dumps(item["messages"])]
        assert item["reference"] == original["reference"]
        assert item["cluster_id"] == original["cluster_id"]


def test_the_manifest_tells_the_hashes_and_counts(
    items: list[dict[str, Any]], manifest: dict[str, Any]
) -> None:
    digest = hashlib.sha256((FOLDER / "support.jsonl").read_bytes()).hexdigest()
    assert manifest["sha256"] == digest
    digest = hashlib.sha256((FOLDER / "pairs.jsonl").read_bytes()).hexdigest()
    assert manifest["pairs_sha256"] == digest
    assert manifest["num_items"] == len(items)
    assert manifest["num_clusters"] == len({item["cluster_id"] for item in items})
    assert manifest["tags"] == dict(Counter(tag for item in items for tag in item["tags"]))


def test_there_are_300_items_and_every_slice_has_30(manifest: dict[str, Any]) -> None:
    assert manifest["num_items"] >= 300
    assert set(manifest["tags"]) == SLICES
    assert min(manifest["tags"].values()) >= 30


def test_no_held_out_wording_is_a_training_wording(knowledge: Knowledge) -> None:
    for wordings in everything_said(knowledge):
        assert not {letters(t) for t in wordings.train} & {
            letters(t) for t in wordings.held_out
        } - {""}


def test_no_frame_of_the_dataset_is_a_training_frame(knowledge: Knowledge) -> None:
    for frames in (knowledge.special, knowledge.polite):
        assert not set(frames.train) & set(frames.held_out)


def test_no_question_of_the_dataset_is_a_training_question(knowledge: Knowledge) -> None:
    trained = {
        letters(text)
        for wordings in everything_said(knowledge)
        for text in wordings.train
        if letters(text)
    }
    asked = [
        *(text for wordings in everything_said(knowledge) for text in wordings.held_out),
        *(side.template() for pair in knowledge.pairs for side in (pair.left, pair.right)),
    ]
    assert [text for text in asked if letters(text) in trained] == []


def test_pairs_name_two_items_and_say_whether_their_answers_are_the_same(
    items: list[dict[str, Any]],
) -> None:
    by_id = {item["id"]: item for item in items}
    pairs = read_lines("pairs.jsonl")
    assert {pair["same_answer"] for pair in pairs} == {True, False}
    for pair in pairs:
        left, right = by_id[pair["left"]], by_id[pair["right"]]
        assert left["messages"] != right["messages"]
        assert (left["reference"] == right["reference"]) is pair["same_answer"], pair
    assert len(pairs) * 2 == len(tagged(items, NEAR_MISS))


def test_an_extraction_answers_with_words_of_its_message(items: list[dict[str, Any]]) -> None:
    for item in tagged(items, EXTRACTION):
        assert item["scorer"] == "json"
        for value in json.loads(item["reference"]).values():
            assert value in item["messages"][-1]["content"]


def test_multi_turn_items_have_turns_and_long_ones_are_long(items: list[dict[str, Any]]) -> None:
    assert all(len(item["messages"]) >= 3 for item in tagged(items, MULTI_TURN))
    assert all(len(item["messages"][-1]["content"]) > 500 for item in tagged(items, LONG_PROMPT))


def test_special_characters_cover_scripts_quotes_and_code(items: list[dict[str, Any]]) -> None:
    text = "".join(i["messages"][-1]["content"] for i in tagged(items, SPECIAL_CHARACTERS))
    wanted = {
        "emoji": "🚀",
        "umlaut": "ü",
        "Arabic": "ح",
        "Hebrew": "ת",
        "quote": "“",
        "code": "```",
    }
    wanted |= {"newline": "\n", "backslash": "\\", "joiner": "\u200d", "Kana": "は"}
    assert {name for name, sign in wanted.items() if sign not in text} == set()


def test_the_sides_differ_in_the_prompt_alone(knowledge: Knowledge) -> None:
    full, short = (
        tomllib.loads((FOLDER / "sides" / f"{name}.toml").read_text("utf-8"))
        for name in ("full", "short")
    )
    assert (full["model"], full["sampling"]) == (short["model"], short["sampling"])
    assert full["prompt"]["name"] == short["prompt"]["name"] == "support"
    assert (full["prompt"]["version"], short["prompt"]["version"]) == ("1", "2")
    rules = [r for r in knowledge.json_rules.train if r in full["prompt"]["system"].split("\n")]
    assert len(rules) == 1
    assert "JSON" not in short["prompt"]["system"]
    assert len(short["prompt"]["system"]) * 20 < len(full["prompt"]["system"])


def test_filling_replaces_slots_and_fields_and_refuses_unknown_ones() -> None:
    filling = {"plan": {"name": "Plus", "price": "6"}}
    assert fill("{plan} is {plan.price} euros", filling) == "Plus is 6 euros"
    assert slot_names("{plan} is {plan.price}", "{order}") == {"plan", "order"}
    with pytest.raises(KeyError, match="city"):
        fill("{city}", filling)


def test_a_frame_keeps_other_braces() -> None:
    assert frame('{"n": {q}}', "Why?") == '{"n": Why?}'


def test_an_order_number_has_five_digits(knowledge: Knowledge) -> None:
    drawn = knowledge.draw(random.Random(1), ["order"])
    assert re.fullmatch(r"[1-9]\d{4}", drawn["order"]["name"])
