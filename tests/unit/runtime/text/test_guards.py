"""Two questions, word by word: each kind of difference is seen, and mere wording is not."""

import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from time import process_time
from timeit import repeat

import pytest

from evenkeel_runtime.text.guards import find_difference, find_names
from evenkeel_runtime.text.signs import find_pieces

DATASET = Path(__file__).parents[4] / "golden_datasets" / "support"
REFUSED = {
    "another number": ("Where is order 31245?", "Where is order 31254?", "numbers"),
    "a number as a word": ("Ship three lamps", "Ship 4 lamps", "numbers"),
    "another amount": ("Refund 10 €", "Refund 10 $", "numbers"),
    "another place": ("How long to ship to Austria?", "How long to ship to Australia?", "names"),
    "another code": ("What is error XK?", "What is error XJ?", "names"),
    "a negation": ("Can I return it?", "Can I not return it?", "negation"),
    "a contracted negation": ("It does work, why?", "It doesn't work, why?", "negation"),
    "an added place": ("What is the weather?", "What is the weather in berlin?", "slot"),
    "an added word of weight": ("Do you have lamps?", "Do you have outdoor lamps?", "slot"),
    "another verb": ("How do I reset my password?", "How do I change my password?", "contrast"),
    "another noun": ("Your refund policy?", "Your return policy?", "contrast"),
    "another question": ("When is the sale?", "Where is the sale?", "relation"),
    "another question about a way": ("When can I return it?", "How can I return it?", "relation"),
    "another measure": ("How long is the cable?", "How much is the cable?", "contrast"),
    "the reverse way": ("Trains from Bern to Basel", "Trains from Basel to Bern", "relation"),
    "the reverse way in few words": ("Trains Bern to Basel", "Trains Basel to Bern", "relation"),
    "the reverse comparison": ("Is A7 older than B7?", "Is B7 older than A7?", "relation"),
    "the reverse change": ("Change euros to dollars", "Change dollars to euros", "relation"),
    "the other side of a number": ("Free over 50 euros?", "Free under 50 euros?", "relation"),
    "the other side of a day": ("Shut since Monday?", "Shut until Monday?", "relation"),
    "must and may": ("Do I have to register?", "Can I register?", "relation"),
    "should and may": ("Hi, should I bring a dog?", "May I bring a dog?", "relation"),
    "the reverse debt": ("Does Ann owe Bob money?", "Does Bob owe Ann money?", "relation"),
    "against it": ("Arguments for gas", "Arguments against gas", "negation"),
    "another sign": ("Is it safe at -5 degrees?", "Is it safe at 5 degrees?", "numbers"),
    "a sign that is a dash": ("Is it safe at –5 degrees?", "Is it safe at 5 degrees?", "numbers"),
    "another operator": ("Calculate 3 + 4", "Calculate 3 - 4", "numbers"),
    "another operator without space": ("Calculate 3*4", "Calculate 3/4", "numbers"),
    "another comparison": ("Is x > 3?", "Is x < 3?", "numbers"),
    "the opposite comparison": ("Is x != 3?", "Is x = 3?", "numbers"),
    "a point before the number": ("Is .5 kg too much?", "Is 5 kg too much?", "numbers"),
    "a sign before the point": ("Is -.5 a root?", "Is .5 a root?", "numbers"),
    "another power": ("How much is 2³?", "How much is 23?", "numbers"),
    "another currency": ("Is ¥500 enough?", "Is ₹500 enough?", "numbers"),
    "another language": ("Sort a list in C++", "Sort a list in C#", "numbers"),
    "a language with a sign": ("Sort a list in C#", "Sort a list in C", "numbers"),
    "a decimal comma": ("Is 1,5 kg too much?", "Is 15 kg too much?", "numbers"),
    "another half of the day": ("Open at 9 am?", "Open at 9pm?", "numbers"),
    "another half after minutes": ("Open at 9:30 am?", "Open at 9:30 pm?", "numbers"),
    "half of the day in letters": ("Open at 9 a.m.?", "Open at 9 p.m.?", "numbers"),
    "another unit": ("Is 5 m too long?", "Is 5 mm too long?", "numbers"),
    "another emoji": ("What does 👍 mean?", "What does 👎 mean?", "numbers"),
    "only emoji": ("👍", "👎", "numbers"),
    "a name that is a small word": ("Do you ship?", "Do you ship to the US?", "names"),
    "a month that is a small word": ("Are you open?", "Are you open in May?", "names"),
    "a name of one letter": ("What is in the plan?", "What is in plan A?", "names"),
    "another vowel sign": ("इसे कैसे लेना", "इसे कैसे लाना", "contrast"),
}
SAME = {
    "only small words differ": ("How do I return an item?", "How can I return the items?"),
    "space, case and marks": ("  How do I return an ITEM", "how do i return an item?!"),
    "a polite wish before it": ("Is there express shipping?", "Hello, is there express shipping"),
    "numbers written apart": ("Ship 3 lamps", "Please ship three lamps"),
    "a polite request": ("Could you tell me, must I return it?", "Must I return it?"),
    "a way that is a place": ("Where can I see the order?", "How do I see the order?"),
    "a time in other words": ("When does it arrive?", "How quickly does it arrive?"),
    "a grouped number": ("Is 12,500 points much?", "Is 12500 points much?"),
    "an hour in letters": ("Open at 9 a.m.?", "open at 9 am"),
    "an emoji of thanks": ("How do I return an item? 🙏🙏", "How do I return an item?"),
    "more of one emoji": ("Is it late? 😭😭", "Is it late? 😭"),
    "a range with a dash": ("Does it take 5–10 days?", "Does it take 5-10 days?"),
    "hyphens and dashes": ("Is it a two-way switch - or not?", "Is it a two way switch, or not?"),
    "another order of the ways": ("Trains from Bern to Basel", "Trains to Basel from Bern"),
    "a small word in capitals": ("HOW DO I RETURN IT", "how do I return it"),
    "a small word after a greeting": ("Hi, Can I return it?", "Can I return it?"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_difference_is_seen_from_both_sides(case: str) -> None:
    left, right, guard = REFUSED[case]
    assert find_difference(left, right) == guard
    assert find_difference(right, left) == guard


def test_to_before_a_verb_is_no_direction() -> None:
    to_shop, to_return = "Can I return it to the shop?", "I want to return it, in the shop."
    assert find_difference(to_shop, to_return) == "contrast"
    later = "When is the refund, after returning it to the shop?"
    assert find_difference("The refund, to return it in the shop?", later) != "relation"


@pytest.mark.parametrize("case", SAME)
def test_mere_wording_is_no_difference(case: str) -> None:
    left, right = SAME[case]
    assert find_difference(left, right) is None
    assert find_difference(right, left) is None


def test_no_adversarial_near_miss_of_the_dataset_passes() -> None:
    lines = (DATASET / "support.jsonl").read_text(encoding="utf-8").splitlines()
    items = {item["id"]: item for item in map(json.loads, lines)}
    pairs = map(json.loads, (DATASET / "pairs.jsonl").read_text(encoding="utf-8").splitlines())
    passed = []
    for pair in pairs:
        left, right = (items[pair[s]]["messages"][-1]["content"] for s in ("left", "right"))
        if not pair["same_answer"] and find_difference(left, right) is None:
            passed.append((left, right))
    assert passed == []


@pytest.mark.parametrize("text", ["It is free, if you ask. | no | ", " ", "- ", "Привет, мир. "])
def test_the_words_of_a_long_answer_are_found_at_once(text: str) -> None:
    long = text * (20_000 // len(text))

    def take_s(find: Callable[[str], object]) -> float:
        return min(repeat(lambda: find(long), timer=process_time, number=1, repeat=5))

    # The server's event loop does it for each answer that is kept.
    assert take_s(find_pieces) < 15 * take_s(re.compile(r"\w+|\W").findall)


@pytest.mark.parametrize("text", ["The ", "A. "])
def test_the_names_of_a_long_answer_take_no_long_time(text: str) -> None:
    """Eight times as much takes about eight times as long, and not 64 times."""

    def took_s(num_chars: int) -> float:
        long = text * (num_chars // len(text))
        # Without the collector, which looks at all that other tests have left.
        gc.disable()
        started = process_time()
        find_names(long)
        took = process_time() - started
        gc.enable()
        return took

    shorter = min(took_s(64 * 1024) for _ in range(3))
    assert min(took_s(512 * 1024) for _ in range(3)) < 20 * shorter
