"""Compare two questions word by word, to find differences that require different answers.

Sentence embeddings barely show such differences: "ship to Austria" and "ship to Australia" have a
cosine of 0.9. A guard that rejects too much only costs cache hits.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise


def _one_of(*categories: str, also: str = "", but: str = "") -> str:
    """Return an expression for a character of Unicode categories.

    A class with characters beyond the first 65,536 is searched range by range, at each place of a
    text. So these are only looked for where there is one.
    """
    found = [c for c in map(chr, range(0x20000)) if unicodedata.category(c) in categories]
    low = re.escape("".join(c for c in found if c < "\U00010000" and c not in but))
    high = re.escape("".join(c for c in found if c >= "\U00010000"))
    return rf"[{also}{low}]|(?=[\U00010000-\U0010ffff])[{high}]"


# A vowel of Hindi or Thai is a mark; those that only choose how an emoji looks say nothing.
_EMOJI_STYLES = "".join(map(chr, range(0xFE00, 0xFE10)))
_LETTER = _one_of("Mn", "Mc", "Me", also=r"\w", but=_EMOJI_STYLES)
_WORD = rf"(?:{_LETTER})+(?:'(?:{_LETTER})+)*"
# Signs that are no punctuation: currencies, comparisons, emoji; the others where they bind what
# they say something of: "C#", "-5", "3 * 4", "!=", ".5".
_SIGN = (
    rf"{_one_of('Sc', 'Sm', 'So', also='%')}|\^|#(?=\w)|(?<=\w)#|(?<![\w.)\]])-(?=\.?\d)"
    r"|!(?==)|(?<![\w.])\.(?=\d)|(?<=[\d)])\s?[-*/]\s?(?=[\d(])"
)
_TOKEN = re.compile(rf"\d+(?:[.,:/-]\d+)*|{_WORD}|{_SIGN}")
_SUPERSCRIPT = re.compile("[²³¹⁰⁴-⁹]+")
# Apostrophes, and hyphens, dashes and minus signs, which many texts use for one another.
_PLAIN = str.maketrans("’‐‒–−", "'----")
_HALF_OF_DAY = re.compile(r"\b([ap])\.\s?m\b\.?", re.IGNORECASE)
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
_SUFFIXES = ("ations", "ation", "ings", "ing", "ions", "ion", "ies", "ied", "ed", "es", "s", "ly")


# A word, the preposition after it, and the word that belongs to that.
_Relation = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int

    @property
    def low(self) -> str:
        return self.text.lower()


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
    left, right = _split(question), _split(other)
    if _differ_in_numbers(_numbers(left), _numbers(right)):
        return "numbers"
    words_left, words_right = {w.low for w in left}, {w.low for w in right}
    names_left, names_right = _names(question, left), _names(other, right)
    if set(names_left) - words_right or set(names_right) - words_left:
        return "names"
    if _num_negations(left) != _num_negations(right):
        return "negation"
    asked_left, asked_right = _asked(left), _asked(right)
    is_asked_else = asked_left and asked_right and not asked_left & asked_right
    asked = asked_left | asked_right
    if is_asked_else and asked <= {*_QUESTION_WORDS, "how"} and asked != {"how", "where"}:
        return "relation"
    must, may = ([p.search(t) is not None for t in (question, other)] for p in (_MUST, _MAY))
    if (must, may) in (([True, False], [False, True]), ([False, True], [True, False])):
        return "relation"
    related_left, related_right = _relations(left), _relations(right)
    stems_left, stems_right = _stems(left), _stems(right)
    if _are_opposed(related_left, related_right, stems_left ^ stems_right):
        return "relation"
    if not related_left and not related_right and _have_changed_places(names_left, names_right):
        return "relation"
    if _slots(left) - stems_right or _slots(right) - stems_left:
        return "slot"
    only_left, only_right = stems_left - stems_right, stems_right - stems_left
    if bool(only_left) != bool(only_right):
        return "slot"
    if only_left and max(len(only_left), len(only_right)) <= _MAX_CONTRAST:
        return "contrast"
    if Counter(r[1:] for r in related_left) != Counter(r[1:] for r in related_right):
        return "contrast"
    return None


def find_numbers(text: str) -> Counter[str]:
    """Return the numbers and signs in a text, and how often each occurs; words as digits."""
    return _numbers(_split(text))


def find_words(text: str) -> list[str]:
    """Return the words, numbers and signs of a text in lower case, without its punctuation."""
    return [token.strip() for token in _TOKEN.findall(_normalise(text).casefold())]


def find_names(text: str) -> frozenset[str]:
    """Return the names in a text, in lower case: capitalised words within a sentence, codes."""
    return frozenset(_names(text, _split(text)))


def is_english(text: str) -> bool:
    """Whether a text has as many of the small words as English has; few words never do."""
    words = [word for word in _split(text) if word.text[0].isalpha()]
    return sum(word.low in _FUNCTION_WORDS for word in words) >= _LEAST_ENGLISH * max(1, len(words))


def find_capitalised(text: str) -> frozenset[str]:
    """Return all words that may be names, also those at the start of a sentence, in lower case."""
    words = _split(text)
    return frozenset(w.low for w in words if w.text[:1].isupper() and w.low not in _QUESTION_STARTS)


def find_stems(text: str) -> frozenset[str]:
    """Return the stems of the words that say what a text is about."""
    return frozenset(_stems(_split(text)))


def count_stems(text: str) -> frozenset[str]:
    """Return those stems, and "water 2" if the text says "water" twice: it says more then.

    "Can the water filter go under water?" has all words of "Do you have the water filter?".
    """
    times = Counter(_stem(word.low) for word in _split(text) if _has_weight(word))
    again = (f"{stem} {n}" for stem, count in times.items() for n in range(2, count + 1))
    return frozenset(times).union(again)


def has_negation(text: str) -> bool:
    """Whether a text negates anything."""
    return _num_negations(_split(text)) > 0


def _split(text: str) -> list[_Word]:
    text = _normalise(text)
    return [_Word(match[0].strip(), match.start()) for match in _TOKEN.finditer(text)]


def _normalise(text: str) -> str:
    # NFKC makes "2³" the number 23.
    text = unicodedata.normalize("NFKC", _SUPERSCRIPT.sub(r"^\g<0>", text))
    return _HALF_OF_DAY.sub(r"\1m", text.translate(_PLAIN))


def _numbers(words: list[_Word]) -> Counter[str]:
    found: Counter[str] = Counter()
    before = ""
    for word in words:
        low = word.low
        if any(c.isdigit() for c in low):
            found[_GROUPING.sub("", low)] += 1
        elif low in _UNITS and before[:1].isdigit():
            found[low] += 1
        elif low in _NUMBER_WORDS and low not in _AMBIGUOUS_NUMBERS:
            found[_NUMBER_WORDS[low]] += 1
        elif not any(c.isalnum() for c in low):
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


def _names(text: str, words: list[_Word]) -> list[str]:
    """Return the names in a text in their order."""
    text = _normalise(text)
    names = []
    # Where each word has a capital, those of small words mean nothing.
    has_plain_words = any(word.text.islower() for word in words)
    for word in words:
        if not word.text[:1].isupper() or word.low == "i" or word.low.startswith("i'"):
            continue
        before = text[: word.start].rstrip(" \t\"'“‘(")
        is_first = not before or before[-1] in ".!?\n:;"
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


def _num_negations(words: list[_Word]) -> int:
    return sum(w.low in _NEGATIONS or w.low.endswith("n't") for w in words)


def _asked(words: list[_Word]) -> set[str]:
    """Return what is asked for, if a word such as when, where or how long says so."""
    found = {w.low for w in words} & _QUESTION_WORDS
    after_how = {b.low for a, b in pairwise(words) if a.low == "how"}
    return found | (after_how & _MEASURES) | ({"how"} if after_how & _WAYS else set())


def _slots(words: list[_Word]) -> set[str]:
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


def _stems(words: list[_Word]) -> set[str]:
    return {_stem(w.low) for w in words if _has_weight(w)}


def _has_weight(word: _Word) -> bool:
    """Whether a word says what the text is about; numbers are compared separately."""
    low = word.low
    is_number = low in _NUMBER_WORDS and low not in _AMBIGUOUS_NUMBERS
    if low in _FUNCTION_WORDS or is_number or any(c.isdigit() for c in low):
        return False
    return any(c.isalnum() for c in low)


def _relations(words: list[_Word]) -> list[_Relation]:
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


def _are_opposed(left: list[_Relation], right: list[_Relation], only_one: set[str]) -> bool:
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
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)].rstrip("e")
    return word.rstrip("e") if len(word) > 3 else word
