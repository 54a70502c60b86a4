"""Whether two answers say the same."""

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from evenkeel.embedding import load_encoder
from evenkeel_runtime.text.agreement import are_interchangeable
from evenkeel_runtime.text.signs import find_pieces

DATASETS = Path(__file__).parents[4] / "golden_datasets"
CASES = {
    "equal": ("Yes, within 30 days.", "Yes, within 30 days.", True),
    "case, space and marks": ("Yes, within 30 days.", " yes within 30 days", True),
    "another number": ("Yes, within 30 days.", "Yes, within 31 days.", False),
    "a negation": ("You can return it.", "You can not return it.", False),
    "another place": ("We ship it to Austria.", "We ship it to Australia.", False),
    "layout": ("**Yes**, within:\n- 30 days", "Yes: within\n* 30 days.", True),
    "another sign": ("It is -5.", "It is 5.", False),
    "another comparison": ("x > 3", "x < 3", False),
    "another currency": ("$5", "€5", False),
    "another language": ("Use C++.", "Use C#.", False),
    "another emoji": ("👍", "👎", False),
    "another place of the point": ("It is 1.5.", "It is 1-5.", False),
    "another vowel sign": ("वह लेता है", "वह लाता है", False),
    "an opposite": ("It is open until nine.", "It is closed until nine.", False),
    "another order": ("Send it to Anna before Ben.", "Send it to Ben before Anna.", False),
    "Chinese": ("您可以在三十天内退货。", "您不能在三十天内退货。", False),
    "Thai": ("สินค้านี้คืนได้", "สินค้านี้คืนไม่ได้", False),
    "French": ("Oui, vous pouvez le rendre.", "Vous ne pouvez pas le rendre.", False),
    "small words": ("You can return it in this shop.", "You can return it at the shop.", True),
    "another subject": ("Choose a new password.", "Our shop opens at nine.", False),
}


@pytest.mark.parametrize("case", CASES)
def test_answers_agree_or_not(case: str) -> None:
    answer, other, is_same = CASES[case]
    assert are_interchangeable(answer, other, load_encoder().encode) is is_same
    assert are_interchangeable(other, answer, load_encoder().encode) is is_same


def test_without_embeddings_only_words_count() -> None:
    assert are_interchangeable("Yes.", "yes", None)
    assert not are_interchangeable(
        "Send it back within a month.", "Within a month send it back.", None
    )


OF_CODE = (
    ("if (!ok) return;", "if (ok) return;"),
    ("if ! grep -q x y", "if grep -q x y"),
    ("a && b", "a & b"),
    ("a || b", "a | b"),
    ("*p", "p"),
    ("Set *p = 1.", "Set p = 1."),
    ("&x", "x"),
    ('{"ids": [1]}', '{"ids": 1}'),
    ("(1,)", "(1)"),
    ("a[i]", "a(i)"),
    ("(a or b) and c", "a or b and c"),
    ("(a - b) * c", "a - b * c"),
    ("x[1:]", "x[1]"),
    ("f(**kw)", "f(kw)"),
    ("rm -rf build", "rm rf build"),
    ("git checkout -- x", "git checkout x"),
    ("git add .", "git add"),
    ("SELECT * FROM t", "SELECT FROM t"),
    ("p.q", "p q"),
    ("a\\b", "a b"),
    ("(3) - (2)", "(3) (2)"),
    ("# rm x", "rm x"),
    ("...", "???"),
    ("You can remove it with `rm -rf build`.", "You can remove it with `rm rf build`, too."),
)


@pytest.mark.parametrize(("answer", "other"), OF_CODE)
def test_signs_are_what_code_says(answer: str, other: str) -> None:
    encode = load_encoder().encode
    assert not are_interchangeable(answer, other, encode)
    assert not are_interchangeable(other, answer, encode)
    assert are_interchangeable(answer, f" {answer}\n", encode)


OF_PROSE = (
    ("Yes! It is free.", "yes, it is free"),
    ("Within 30 days (of delivery).", "Within 30 days, of delivery."),
    ('It says "open".', "It says 'open'"),
    ("It\u2019s free \u2013 always.", "It's free - always."),
    ("It is free \u2014 always\u2026", "It is free: always"),
    ("\u201cIs it free?\u201d", "Is it free?"),
    ("# Returns\n---\nSend it", "## Returns\n\nSend it"),
    ("A 30-day return", "A 30 day return"),
    ("**Note:** keep the *receipt*.", "Note: keep the receipt."),
    ("**Step 1**: open it", "Step 1. Open it"),
    ("## Returns\n\n1. Open it\n2. Send it", "**Returns**\n1) Open it\n2) Send it"),
    ("- lamps\n- kettles", "* lamps\n* kettles\n"),
    ("Lamps:\n  * red\n  * blue", "Lamps: red, blue"),
    ("Oui ? Bien s\u00fbr !", "Oui. Bien s\u00fbr."),
    ("\u00bfSe puede? \u00a1S\u00ed!", "Se puede. S\u00ed."),
    (
        "\u60a8\u53ef\u4ee5\u9000\u8d27\uff0c\u8c22\u8c22\u3002",
        "\u60a8\u53ef\u4ee5\u9000\u8d27 \u8c22\u8c22",
    ),
    ("Write to help@example.org.", "write to help@example.org"),
    ('{"a":1,"b":["y","z"]}', '{"a": 1, "b": ["y", "z"]}'),
    ("f(x,y)", "f(x, y)"),
)


@pytest.mark.parametrize(("answer", "other"), OF_PROSE)
def test_what_only_sets_prose_apart_is_no_sign(answer: str, other: str) -> None:
    assert are_interchangeable(answer, other, None)
    assert are_interchangeable(other, answer, None)


def test_texts_of_the_datasets_with_the_same_words_are_the_same() -> None:
    by_words: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in sorted(DATASETS.rglob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            for text in list_texts(json.loads(line)):
                by_words[find_pieces(text).words].append(text)
    pairs = [pair for texts in by_words.values() for pair in pairwise(texts) if pair[0] != pair[1]]
    assert len(pairs) >= 10
    assert [pair for pair in pairs if not are_interchangeable(*pair, None)] == []


def list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from list_texts(each)


@pytest.mark.parametrize(
    "part", ["a *", "(a ", "(a or ", "**a ", "!", "!;", "1) ", "# ", "\n", "* ", "-", '"']
)
def test_a_long_answer_takes_no_long_time(part: str) -> None:
    def took_s(num_chars: int) -> float:
        text, took = "a" + part * (num_chars // len(part)), []
        for _ in range(3):
            started = time.process_time()
            assert not are_interchangeable(text, "b", None)
            took.append(time.process_time() - started)
        return min(took)

    assert took_s(80_000) < 9 * max(took_s(20_000), 0.02)
