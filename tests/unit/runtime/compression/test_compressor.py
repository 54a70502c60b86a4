"""Long histories are shortened, and what must not be lost never is."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel_runtime.compression.check import find_loss
from evenkeel_runtime.compression.compressor import Compressor
from evenkeel_runtime.compression.sentences import split_message
from evenkeel_runtime.compression.settings_file import CompressionPolicy, read_compression
from evenkeel_runtime.compression.shorten import Turn, shorten

STORY = (
    "The weather was so grey that we stayed at home. My order is 62265. We had tea and talked for "
    "hours. Please answer in German. It was a quiet evening with friends. I do not want a refund. "
    "Our dog slept on the carpet. My sister lives in Bern. The lamp flickers in the evening. "
)
POLICY = CompressionPolicy(min_tokens=20)
QUESTION = "Why does the lamp flicker?"


def count_words(text: str) -> int:
    return len(text.split())


def body(*turns: tuple[str, str], **more: object) -> bytes:
    messages = [{"role": role, "content": content} for role, content in turns]
    return json.dumps({"model": "m", "messages": messages} | more).encode()


CHAT = (
    ("system", "You are brief. The sky is often grey over the town."),
    ("user", STORY),
    ("assistant", "That sounds like a lovely evening. I am glad. How can I help?"),
    ("user", "Thanks, that is kind of you."),
    ("assistant", "You are welcome."),
    ("user", QUESTION),
)


def test_a_story_goes_and_what_counts_stays() -> None:
    compressor = Compressor(POLICY, count_words)
    done = compressor.compress(body(*CHAT), None)
    assert done.verdict == "sent"
    sent = json.loads(done.body)
    assert sent["model"] == "m"
    texts = [message["content"] for message in sent["messages"]]
    for kept in ("62265", "Please answer in German.", "do not want a refund", "Bern", "flickers"):
        assert kept in texts[1]
    assert "talked for hours" not in texts[1]
    # Instructions and the last turns are word for word.
    assert texts[0] == CHAT[0][1]
    assert texts[3:] == [content for _, content in CHAT[3:]]
    before = sum(count_words(CHAT[place][1]) for place in (1, 2))
    after = sum(count_words(texts[place]) for place in (1, 2))
    assert done.saved_tokens == before - after > 0
    assert compressor.counts.verdicts == {"sent": 1}
    assert compressor.counts.saved_tokens == done.saved_tokens


UNTOUCHED = {
    "a short history": body(("user", "Hello."), ("user", QUESTION)),
    "no history": body(("user", STORY * 9)),
    "calls": body(*CHAT).replace(b'"role": "assistant"', b'"tool_calls": [1], "role": "assistant"'),
    "tools": body(*CHAT).replace(b'"messages"', b'"tools": [{"type": "function"}], "messages"'),
    "tools of old": body(*CHAT).replace(b'"messages"', b'"functions": [{}], "messages"'),
    "parts": body(*CHAT).replace(b'"Why does the lamp flicker?"', b'[{"type": "text"}]'),
    "no JSON": b"{",
    "no object": b"[]",
    "no messages": b'{"messages": 3}',
    "messages that are none": b'{"messages": [3]}',
}


@pytest.mark.parametrize("case", UNTOUCHED)
def test_it_goes_as_it_came(case: str) -> None:
    compressor = Compressor(POLICY, count_words)
    done = compressor.compress(UNTOUCHED[case], None)
    assert (done.body, done.verdict, done.saved_tokens) == (UNTOUCHED[case], None, 0)
    assert not compressor.counts.verdicts


def test_where_nothing_can_go_the_whole_prompt_does() -> None:
    facts = " ".join(f"Lamp {number} costs {number + 3} francs." for number in range(30))
    asked = body(("user", facts), *CHAT[-3:])
    done = Compressor(POLICY, count_words).compress(asked, None)
    assert (done.body, done.verdict) == (asked, "no_gain")


def test_other_routes_are_left_alone() -> None:
    policy = CompressionPolicy(min_tokens=20, routes=("chat",))
    compressor = Compressor(policy, count_words)
    assert compressor.compress(body(*CHAT), "other").verdict is None
    assert compressor.compress(body(*CHAT), "chat").verdict == "sent"


OLD = Turn(
    "user", "Please be brief. I paid 30 francs in Bern. It is not red. The lamp hums. We ate soup."
)
LAST = Turn("user", "Does the lamp hum?")
LOSSES = {
    "a number": (
        "Please be brief. I paid francs in Bern. It is not red. The lamp hums.",
        "invented",
    ),
    "a sentence with a number": ("Please be brief. It is not red. The lamp hums.", "numbers"),
    "an instruction": ("I paid 30 francs in Bern. It is not red. The lamp hums.", "instructions"),
    "a negation": ("Please be brief. I paid 30 francs in Bern. The lamp hums.", "negation"),
    "what is asked about": (
        "Please be brief. I paid 30 francs in Bern. It is not red.",
        "question",
    ),
    "the order": (
        "I paid 30 francs in Bern. Please be brief. It is not red. The lamp hums.",
        "invented",
    ),
    "everything": ("", "order"),
}


@pytest.mark.parametrize("case", LOSSES)
def test_the_check_finds_what_was_lost(case: str) -> None:
    text, loss = LOSSES[case]
    assert find_loss([OLD, LAST], [Turn("user", text), LAST], 1) == loss


def test_the_check_lets_pass_what_loses_nothing() -> None:
    kept = Turn("user", OLD.content.replace(" We ate soup.", ""))
    assert find_loss([OLD, LAST], [kept, LAST], 1) is None
    assert find_loss([OLD, LAST], [OLD, LAST], 1) is None


def test_a_name_that_only_begins_a_sentence_is_missed() -> None:
    before = [Turn("user", "Bern was nice. We ate soup."), LAST]
    assert find_loss(before, [Turn("user", "We ate soup."), LAST], 1) == "names"


def test_the_last_turns_and_instructions_are_protected() -> None:
    system = Turn("system", "Be kind. It rains.")
    for changed in ([Turn("system", "Be kind."), OLD, LAST], [system, OLD, Turn("user", "Lamp?")]):
        assert find_loss([system, OLD, LAST], changed, 1) == "protected"
    assert find_loss([OLD, LAST], [LAST], 1) == "order"
    assert find_loss([OLD, LAST], [Turn("assistant", OLD.content), LAST], 1) == "order"


def test_code_and_data_stay_whole() -> None:
    for text in (
        "Look:\n```\nx = 1\n```\nIt rained.",
        '{"a": 1}\nIt rained.',
        "See https://x.y. Ok.",
    ):
        assert [s.text for s in split_message(text)] == [text]


FOREIGN = {
    "German": "ich esse kein fleisch, also was anderes.\nbitte antworte auf deutsch.\nes war so.",
    "Dutch": "ik eet geen vlees.\nantwoord altijd in het nederlands.\nwe waren in de tuin.",
    "French": "je ne mange pas de viande.\nil a dit que me voir est un plaisir.\non a bien ri.",
    "Spanish": "soy alérgico a los cacahuetes.\nresponde siempre en español.\nfuimos al parque.",
    "Russian": "у дочери аллергия на молоко.\nвсегда отвечай по-русски.\nмы гуляли в парке.",
    "Chinese": "我对花生过敏，不要推荐含花生的菜。\n请始终用繁体中文回答。\n昨天我们去了公园。",
    "Arabic": "لا آكل اللحم.\nأجب دائما بالعربية.\nذهبنا إلى الحديقة.",
    "Turkish": "et yemiyorum.\nher zaman turkce cevap ver.\nparkta uzun bir gun gecirdik.",
    # With words that are English, too, or with an English title.
    "Catalan": "has dit que no mengem carn.\nrespon sempre en espanyol.\nvam anar al parc.",
    "Czech": "my jsme doma a my nejime maso.\nodpovidej vzdy cesky.\nvarili jsme obed.",
    "Danish": "vi kan have en have.\njeg spiser ikke fisk.\nsvar altid kort.\nvi sad i min have.",
    "Dutch, a leg": "ik heb mijn been gebroken.\nantwoord altijd in het nederlands.",
    "German, a film": "ich mag den film the godfather.\nantworte immer auf deutsch.\nes war so.",
}


@pytest.mark.parametrize("language", FOREIGN)
def test_what_is_not_english_cannot_be_judged_and_stays(language: str) -> None:
    text = FOREIGN[language]
    assert all(sentence.must_stay for sentence in split_message(text))
    # Also among English sentences, if its letters tell.
    mixed = {s.text.strip(): s.must_stay for s in split_message(f"{STORY}\n{text}")}
    foreign = [line for line in text.splitlines() if not line.isascii()]
    assert all(stays for part, stays in mixed.items() if any(part in line for line in foreign))
    assert not mixed["The lamp flickers in the evening."]


WORD = st.sampled_from(
    [
        "the lamp",
        "It rained",
        "Bern",
        "42",
        "3.5",
        "never",
        "Please use",
        ".",
        "?",
        "!",
        "\n",
        " ",
        "e.g.",
        "😀",
    ]
)
MESSAGE = st.lists(WORD, max_size=25).map(" ".join)


@settings(deadline=None)
@given(st.lists(MESSAGE, min_size=1, max_size=6), st.integers(1, 3), st.floats(0, 1))
def test_whatever_is_shortened_passes_the_check(
    texts: list[str], keep_turns: int, keep_ratio: float
) -> None:
    turns = [Turn("user" if n % 2 else "assistant", text) for n, text in enumerate(texts)]
    assert all("".join(s.text for s in split_message(t.content)) == t.content for t in turns)
    shortened = shorten(turns, keep_turns, keep_ratio)
    assert find_loss(turns, shortened, keep_turns) is None
    assert sum(len(t.content) for t in shortened) <= sum(len(t.content) for t in turns)


@pytest.mark.parametrize("part", ["a", "a ", ".", "\n", "A. ", "`", "1.", "\"'"])
def test_a_long_history_takes_no_long_time(part: str) -> None:
    asked = body(("user", part * (100_000 // len(part))), *CHAT[-3:])
    started = time.process_time()
    Compressor(POLICY, len).compress(asked, None)
    assert time.process_time() - started < 15


@pytest.mark.parametrize(
    ("text", "said"),
    [("min_tokens = 0", "min_tokens"), ("keep = 3", "keep"), ("keep_ratio = ", "is not TOML")],
)
def test_a_mistake_in_the_file_is_one_clear_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "compression.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=said) as caught:
        read_compression(path)
    assert "\n" not in str(caught.value)
