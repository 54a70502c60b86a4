"""Compare two questions word by word, to find differences that require different answers.

Sentence embeddings barely show such differences: "ship to Austria" and "ship to Australia" have a
cosine of 0.9. A guard that rejects too much only costs cache hits.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from functools import cached_property, lru_cache
from itertools import pairwise

from evenkeel_runtime.text.words import Word, normalise, split_words

# "1,000", but not "1,5".
_GROUPING = re.compile(r",(?=\d{3}(?!\d))")
_NUMBER_WORDS = {
    word: str(value)
    for value, word in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
        "fifteen sixteen seventeen eighteen nineteen twenty".split()
    )
} | {
    "thirty": "30", "forty": "40", "fifty": "50", "hundred": "100", "thousand": "1000",
    "million": "1000000", "half": "0.5", "twice": "x2", "double": "x2", "first": "#1",
    "second": "#2", "third": "#3", "last": "#-1",
}  # fmt: skip
# "one" and "second" are rarely numbers: "a real one", "a second".
_AMBIGUOUS_NUMBERS = frozenset({"one", "second", "last", "first"})
# After a number, these are no small words: "9 am", "5 m".
_UNITS = frozenset("am pm m s t d".split())
_NEGATIONS = frozenset(
    "no not never none nobody nothing neither nor without cannot except unless hardly stop "
    "stopped un non isn aren wasn don doesn didn can't won't failed fail fails unable "
    "against".split()
)
_PREPOSITIONS = frozenset(
    "in to from for at on into with by of about between near via using per than before after "
    "until since during under over against as".split()
)
# Words that do not say what a text is about and may differ between two wordings of one question.
_FUNCTION_WORDS = (
    frozenset(
        (
            "a an the this that these those some any i you he she it we they me him us them my "
            "your his her its our their mine yours is are am was were be been being do does did "
            "done have has had having can could may might must shall should will would what "
            "which who whom whose when where why how and or but if then so also too just please "
            "kindly tell give let know want need like wish hello hi hey thanks thank help "
            "explain say there here now ever get got way able to would'd i'm i've i'd it's "
            "what's how's where's that's there's let's you're we're s t m re ve d ll really "
            "actually quickly exactly possible question anyone someone one make take go "
        ).split()
    )
    | _PREPOSITIONS
)
# Which way something goes, or on which side of it: "from Bern", "under 50".
_OPPOSITES = tuple(
    (frozenset(one.split()), frozenset(other.split()))
    for one, other in (("to into", "from"), ("before until", "after since"), ("over", "under"))
)
_RELATIONS = frozenset({"than", "without"}.union(*(one | other for one, other in _OPPOSITES)))
# "Must I", "do I have to", and "can I", "is it allowed".
_CLAUSE = r"(?:^|[.!?,:])\s*(?:and\s+|so\s+|but\s+)?"
_MUST = re.compile(
    rf"{_CLAUSE}(?:must|should|(?:do|does|did|will)\s+(?:\w+\s+){{1,3}}?(?:have|need)\s+to)\b",
    re.IGNORECASE,
)
_MAY = re.compile(
    rf"{_CLAUSE}(?:can|could|may|(?:am\s+i|is\s+it)\s+(?:allowed|possible))\b", re.IGNORECASE
)
_QUESTION_WORDS = frozenset({"when", "where", "who", "whom", "whose", "why"})
# After "how", these ask for a way; "how" may stand for "where".
_WAYS = frozenset("to do does did can could may must should would".split())
_MEASURES = frozenset({"long", "much", "many", "often", "far", "old", "big", "soon", "late"})
# About half of the words of English texts are function words.
_LEAST_ENGLISH = 1 / 4
# Up to this many differing words on each side count as a contrast.
_MAX_CONTRAST = 2
_QUESTION_STARTS = _FUNCTION_WORDS | frozenset("yes no ok okay sorry good morning evening".split())
# Texts up to this length are kept as they were read; a longer one takes too much memory.
_MAX_KEPT_CHARS = 2048
_SUFFIXES = ("ations", "ation", "ings", "ing", "ions", "ion", "ies", "ied", "ed", "es", "s", "ly")


# A word, the preposition after it, and the word that belongs to that.
_Relation = tuple[str, str, str]


class _Read:
    """A text, with what of it is compared; each part is found when it is needed first."""

    def __init__(self, text: str) -> None:
        self.text = normalise(text)
        self.words = split_words(self.text)

    @cached_property
    def lows(self) -> set[str]:
        return {word.low for word in self.words}

    @cached_property
    def numbers(self) -> Counter[str]:
        return _numbers(self.words)

    @cached_property
    def names(self) -> list[str]:
        return _names(self.text, self.words)

    @cached_property
    def num_negations(self) -> int:
        return sum(w.low in _NEGATIONS or w.low.endswith("n't") for w in self.words)

    @cached_property
    def asked(self) -> set[str]:
        return _asked(self.words)

    @cached_property
    def must_and_may(self) -> tuple[bool, bool]:
        return _MUST.search(self.text) is not None, _MAY.search(self.text) is not None

    @cached_property
    def relations(self) -> list[_Relation]:
        return _relations(self.words)

    @cached_property
    def stems(self) -> frozenset[str]:
        return frozenset(_stem(word.low) for word in self.words if _has_weight(word))

    @cached_property
    def slots(self) -> set[str]:
        return _slots(self.words)


def find_difference(question: str, other: str) -> str | None:
    """Return why the answer to `other` does not fit `question`; None if no reason is found.

    - `numbers`: numbers, identifiers with digits, amounts, dates or signs ("C#", "-", ">") differ.
    - `names`: names differ.
    - `negation`: only one is negated.
    - `relation`: they ask for something else ("when" and "where", "can I" and "must I"), or relate
      the same words in another way ("from A to B" and "from B to A", "over 50" and "under 50").
    - `slot`: only one has a detail such as "in Berlin", or an additional content word.
    - `contrast`: they differ only in one or two words on each side ("reset" and "change"), in the
      measure they ask for ("how long", "how much") or in what a word such as "to" belongs to.
    """
    left, right = _read(question), _read(other)
    if _differ_in_numbers(left.numbers, right.numbers):
        return "numbers"
    if set(left.names) - right.lows or set(right.names) - left.lows:
        return "names"
    if left.num_negations != right.num_negations:
        return "negation"
    is_asked_else = left.asked and right.asked and not left.asked & right.asked
    asked = left.asked | right.asked
    if is_asked_else and asked <= {*_QUESTION_WORDS, "how"} and asked != {"how", "where"}:
        return "relation"
    if {left.must_and_may, right.must_and_may} == {(True, False), (False, True)}:
        return "relation"
    if _are_opposed(left.relations, right.relations, left.stems ^ right.stems):
        return "relation"
    if not left.relations and not right.relations and _have_changed_places(left.names, right.names):
        return "relation"
    if left.slots - right.stems or right.slots - left.stems:
        return "slot"
    only_left, only_right = left.stems - right.stems, right.stems - left.stems
    if bool(only_left) != bool(only_right):
        return "slot"
    if only_left and max(len(only_left), len(only_right)) <= _MAX_CONTRAST:
        return "contrast"
    if Counter(r[1:] for r in left.relations) != Counter(r[1:] for r in right.relations):
        return "contrast"
    return None


def find_numbers(text: str) -> Counter[str]:
    """Return the numbers and signs in a text, and how often each occurs; words as digits."""
    return Counter(_read(text).numbers)


def find_names(text: str) -> frozenset[str]:
    """Return the names in a text, in lower case: capitalised words within a sentence, codes."""
    return frozenset(_read(text).names)


def is_english(text: str) -> bool:
    """Whether a text has as many of the small words as English has; few words never do."""
    words = [word for word in _read(text).words if word.text[0].isalpha()]
    return sum(word.low in _FUNCTION_WORDS for word in words) >= _LEAST_ENGLISH * max(1, len(words))


def find_capitalised(text: str) -> frozenset[str]:
    """Return all words that may be names, also those at the start of a sentence, in lower case."""
    words = _read(text).words
    return frozenset(w.low for w in words if w.text[:1].isupper() and w.low not in _QUESTION_STARTS)


def find_stems(text: str) -> frozenset[str]:
    """Return the stems of the words that say what a text is about."""
    return _read(text).stems


def count_stems(text: str) -> frozenset[str]:
    """Return those stems, and "water 2" if the text says "water" twice: it says more then.

    "Can the water filter go under water?" has all words of "Do you have the water filter?".
    """
    times = Counter(_stem(word.low) for word in _read(text).words if _has_weight(word))
    again = (f"{stem} {n}" for stem, count in times.items() for n in range(2, count + 1))
    return frozenset(times).union(again)


def has_negation(text: str) -> bool:
    """Whether a text negates anything."""
    return _read(text).num_negations > 0


def _read(text: str) -> _Read:
    return _read_short(text) if len(text) <= _MAX_KEPT_CHARS else _Read(text)


# A question is compared with several others, and a popular one with many.
_read_short = lru_cache(maxsize=128)(_Read)


def forget_texts() -> None:
    """Forget the texts read so far."""
    _read_short.cache_clear()


def _numbers(words: list[Word]) -> Counter[str]:
    found: Counter[str] = Counter()
    before = ""
    for word in words:
        low = word.low
        if _has_digit(low):
            found[_GROUPING.sub("", low)] += 1
        elif low in _UNITS and before[:1].isdigit():
            found[low] += 1
        elif low in _NUMBER_WORDS and low not in _AMBIGUOUS_NUMBERS:
            found[_NUMBER_WORDS[low]] += 1
        elif _is_sign(low):
            found[low] += 1
        before = low
    return found


def _differ_in_numbers(left: Counter[str], right: Counter[str]) -> bool:
    emoji = [{n for n in found if unicodedata.category(n[0]) == "So"} for found in (left, right)]
    if all(emoji) and emoji[0] != emoji[1]:
        return True
    # "Thanks 🙏🙏": those of one question only, or more of them, say nothing of what is asked.
    facts = (left.keys() | right.keys()) - emoji[0] - emoji[1]
    return any(left[fact] != right[fact] for fact in facts)


def _names(text: str, words: list[Word]) -> list[str]:
    """Return the names in a normalised text in their order."""
    names = []
    # Where each word has a capital, those of small words mean nothing.
    has_plain_words = any(word.text.islower() for word in words)
    end = 0
    for word in words:
        # Only what is between two words is copied: a text may have very many.
        gap = text[end : word.start] if end else f"\n{text[: word.start]}"
        end = word.start + len(word.text)
        if not word.text[:1].isupper() or word.low == "i" or word.low.startswith("i'"):
            continue
        is_first = gap.rstrip(" \t\"'“‘(").endswith(tuple(".!?\n:;"))
        if word.low in _QUESTION_STARTS:
            # "The US", "plan A", "in May".
            is_name = word.text.isupper() or word.low == "may"
            if is_first or not is_name or not has_plain_words:
                continue
        # A capital at the start of a sentence means nothing, unless the word has more of them.
        if not is_first or not word.text[1:].islower():
            names.append(word.low)
    return names


def _have_changed_places(left: list[str], right: list[str]) -> bool:
    """Whether the names of both are in another order: "does Ann owe Bob" and the reverse."""
    return [n for n in left if n in right] != [n for n in right if n in left] and (
        Counter(left) == Counter(right)
    )


def _asked(words: list[Word]) -> set[str]:
    """Return what is asked for, if a word such as when, where or how long says so."""
    found = {w.low for w in words} & _QUESTION_WORDS
    after_how = {b.low for a, b in pairwise(words) if a.low == "how"}
    return found | (after_how & _MEASURES) | ({"how"} if after_how & _WAYS else set())


def _slots(words: list[Word]) -> set[str]:
    """Return the stems of up to three words after each preposition, articles skipped."""
    found: set[str] = set()
    for place, word in enumerate(words):
        if word.low not in _PREPOSITIONS:
            continue
        for bound in words[place + 1 : place + 4]:
            if bound.low in _PREPOSITIONS:
                break
            if _has_weight(bound):
                found.add(_stem(bound.low))
    return found


def _has_weight(word: Word) -> bool:
    """Whether a word says what the text is about; numbers are compared separately."""
    low = word.low
    is_number = low in _NUMBER_WORDS and low not in _AMBIGUOUS_NUMBERS
    return not (low in _FUNCTION_WORDS or is_number or _has_digit(low) or _is_sign(low))


def _has_digit(word: str) -> bool:
    return not word.isalpha() and any(c.isdigit() for c in word)


def _is_sign(word: str) -> bool:
    return not word.isalpha() and not any(c.isalnum() for c in word)


def _relations(words: list[Word]) -> list[_Relation]:
    """Return words of weight and numbers with the word that says which way, and the one before."""
    found: list[_Relation] = []
    preposition = before = ""
    for word in words:
        if word.low in _PREPOSITIONS:
            preposition = word.low
        elif word.low not in _FUNCTION_WORDS:
            stem = _stem(word.low)
            if preposition in _RELATIONS:
                found.append((before, preposition, stem))
            preposition, before = "", stem
    return found


def _are_opposed(left: list[_Relation], right: list[_Relation], only_one: frozenset[str]) -> bool:
    """Whether a word of both goes the other way, or another of them goes this way."""
    bound: list[dict[str, set[str]]] = [{}, {}]
    for words, relations in zip(bound, (left, right), strict=True):
        for _, preposition, word in relations:
            if word not in only_one:
                words.setdefault(preposition, set()).add(word)
    for sides in _OPPOSITES:
        for one, other in (sides, sides[::-1]):
            if _gather(bound[0], one) & _gather(bound[1], other):
                return True
    # "To" before a verb says nothing, so what it is between must have changed places.
    if any((word, "to", before) in right for before, way, word in left if way == "to"):
        return True
    ways = bound[0].keys() & bound[1].keys() - {"to"}
    return any(bound[0][way].isdisjoint(bound[1][way]) for way in ways)


def _gather(bound: dict[str, set[str]], ways: frozenset[str]) -> set[str]:
    return {word for way in ways for word in bound.get(way, ())}


def _stem(word: str) -> str:
    for suffix in _SUFFIXES if word.endswith(_SUFFIXES) else ():
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)].rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word
