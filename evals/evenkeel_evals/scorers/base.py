"""Scorers: pure functions from an answer and its reference to a score.

Failed requests are `unscored`, never `wrong`: a broken stream says nothing about accuracy.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Any

from evenkeel.errors import ConfigurationError, EvenkeelError, first_line
from evenkeel_evals.scorers.options import read_strings, read_threshold
from evenkeel_evals.scorers.words import finder, matcher, normalise, split_words


class Label(StrEnum):
    """The label of a score."""

    RIGHT = "right"
    WRONG = "wrong"
    UNSCORED = "unscored"


@dataclass(frozen=True, slots=True)
class Score:
    """The score of one answer.

    Attributes:
        value: From 0 to 1; None if unscored.
        label: right, wrong or unscored.
        reason: Why, if the label alone does not say.
    """

    value: float | None
    label: Label
    reason: str | None = None

    @classmethod
    def of(cls, is_right: bool, reason: str | None = None) -> Score:
        """Return a score of 1 or 0."""
        return cls(float(is_right), Label.RIGHT if is_right else Label.WRONG, reason)

    @classmethod
    def unscored(cls, reason: str) -> Score:
        """Return the score of an answer that could not be judged."""
        return cls(None, Label.UNSCORED, reason)


@dataclass(frozen=True, slots=True)
class LateCheck:
    """A check that no pure function can make: a model or a program makes it beforehand.

    Attributes:
        kind: rubric or python.
        what: The criterion, or the file and function.
        detail: Further arguments of the function, as JSON.
    """

    kind: str
    what: str
    detail: str = "null"

    @property
    def digest(self) -> str:
        """Return the check's key in journals; equal checks have equal keys."""
        text = json.dumps([self.kind, self.what, self.detail])
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Context:
    """Facts about an answer besides its text; None if unknown.

    Attributes:
        ttft_s: First text − send, in seconds.
        e2e_s: Last text − send, in seconds.
        input_tokens: As counted by the server.
        output_tokens: As counted by the server.
        cost: Cost of the answer, in the dataset's currency.
        found: Results of late checks; missing ones were not made.
        is_redacted: Whether the text comes from the store, where tokens such as [email] replace
            personal data and secrets.
    """

    ttft_s: float | None = None
    e2e_s: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost: float | None = None
    found: Mapping[LateCheck, Score] = field(default_factory=lambda: NOTHING_FOUND)
    is_redacted: bool = False


NOTHING_FOUND: Mapping[LateCheck, Score] = {}
NO_CONTEXT = Context()


@dataclass(frozen=True, slots=True)
class Scorer:
    """A named scorer bound to its options and reference.

    Attributes:
        name: Its name in the dataset.
        judge: Scores an answer in its context.
        checks: Late checks it needs; an answer without their results is unscored.
        is_timed: Whether it needs the answer's latency, so that none from a cache will do.
    """

    name: str
    judge: Callable[[str, Context], Score]
    checks: tuple[LateCheck, ...] = ()
    is_timed: bool = False

    def score(self, answer: str, context: Context = NO_CONTEXT) -> Score:
        """Return the score of an answer; unscored, with the reason, if the scorer fails on it."""
        try:
            return self.judge(answer, context)
        except EvenkeelError:
            raise
        except Exception as error:
            # An odd answer must not abort a run of hundreds.
            what = f"{type(error).__name__}: {first_line(error, max_chars=200)}"
            return Score.unscored(f"the scorer {self.name} failed: {what}")


Options = Mapping[str, Any]
Judge = Callable[[str], Score]
Maker = Callable[[Any, Options], Judge | Scorer]


def make_scorer(spec: str | Mapping[str, Any], reference: Any) -> Scorer:
    """Bind a scorer to one item's reference.

    Args:
        spec: Its name, or an object with `name` and options, such as
            {"name": "numeric", "tolerance": 0.01}.
        reference: The expected answer, in the form the scorer requires.

    Raises:
        ConfigurationError: If the scorer or an option is unknown, or the reference is unsuitable.
    """
    if not isinstance(spec, str | Mapping):
        raise ConfigurationError(f"scorer is {spec!r:.40}, expected a name or an object")
    options = {} if isinstance(spec, str) else dict(spec)
    name = spec if isinstance(spec, str) else options.pop("name", None)
    if not isinstance(name, str) or name not in {**_MAKERS, **_MAKERS_ELSEWHERE}:
        known = ", ".join(sorted({*_MAKERS, *_MAKERS_ELSEWHERE}))
        raise ConfigurationError(f"scorer {name!r} is unknown; known: {known}")
    maker, allowed = _MAKERS[name] if name in _MAKERS else _find_elsewhere(name)
    unknown = set(options) - allowed
    if unknown:
        raise ConfigurationError(
            f"scorer {name!r} has no option {min(unknown)!r}; known: {sorted(allowed)}"
        )
    made = maker(reference, options)
    return made if isinstance(made, Scorer) else Scorer(name, lambda answer, _: made(answer))


def read_text(name: str, reference: Any) -> str:
    """Return the reference if it is a string.

    Raises:
        ConfigurationError: If it is not.
    """
    if not isinstance(reference, str):
        raise ConfigurationError(
            f"scorer {name!r} needs a string as reference, got {reference!r:.60}"
        )
    return reference


def read_texts(name: str, reference: Any) -> list[str]:
    """Return the accepted references: one string, or a list of alternatives.

    Raises:
        ConfigurationError: If the reference is neither.
    """
    if isinstance(reference, list) and reference:
        return [read_text(name, member) for member in reference]
    return [read_text(name, reference)]


def refuse_empty(name: str, texts: Sequence[str]) -> None:
    """Check that every reference can tell answers apart.

    Raises:
        ConfigurationError: If one is empty: every text contains it.
    """
    if "" in texts:
        raise ConfigurationError(
            f"scorer {name!r} has an empty text as reference: every answer has the same score"
        )


def _exact(reference: Any, _: Options) -> Judge:
    accepted = {_composed(text) for text in read_texts("exact", reference)}
    return lambda answer: Score.of(_composed(answer) in accepted)


def _composed(text: str) -> str:
    """Return a text without outer space, and é as one character: it may be stored as two."""
    return unicodedata.normalize("NFC", text.strip())


def _normalised(reference: Any, _: Options) -> Judge:
    matchers = [matcher(text) for text in read_texts("normalised", reference)]
    return lambda answer: Score.of(any(matches(answer) for matches in matchers))


def _contains(reference: Any, options: Options) -> Judge:
    texts = read_texts("contains", reference)
    refuse_empty("contains", texts)
    wanted = _finders(texts)
    unwanted = options.get("not", [])
    listed = {"not": [unwanted] if isinstance(unwanted, str) else unwanted}
    banned = _finders(read_strings("contains", listed, "not"))

    def judge(answer: str) -> Score:
        missing = [shown for shown, is_in in wanted if not is_in(answer)]
        present = [shown for shown, is_in in banned if shown and is_in(answer)]
        if missing:
            return Score.of(False, f"lacks {missing[0]!r}")
        return Score.of(not present, f"has {present[0]!r}" if present else None)

    return judge


def _finders(phrases: Sequence[str]) -> list[tuple[str, Callable[[str], bool]]]:
    return [(normalise(phrase), finder(phrase)) for phrase in phrases]


def _f1(reference: Any, options: Options) -> Judge:
    """Judge by word overlap; right at or above the option `threshold` (default: 0.8)."""
    accepted = [Counter(split_words(text)) for text in read_texts("f1", reference)]
    threshold = read_threshold("f1", options, 0.8)

    def judge(answer: str) -> Score:
        value = max(_overlap(Counter(split_words(answer)), words) for words in accepted)
        return Score(value, Label.RIGHT if value >= threshold else Label.WRONG)

    return judge


def _overlap(found: Counter[str], expected: Counter[str]) -> float:
    if not found and not expected:
        return 1.0
    return 2 * (found & expected).total() / (found.total() + expected.total())


_MAKERS: Mapping[str, tuple[Maker, frozenset[str]]] = {
    "exact": (_exact, frozenset()),
    "normalised": (_normalised, frozenset()),
    "contains": (_contains, frozenset({"not"})),
    "f1": (_f1, frozenset({"threshold"})),
}

# Modules with makers are imported on demand, so that datasets that do not use them do not need
# their dependencies.
_MAKERS_ELSEWHERE: Mapping[str, tuple[str, str, frozenset[str]]] = {
    "numeric": ("numeric", "numeric", frozenset({"tolerance", "relative"})),
    "regex": ("literal", "regex", frozenset({"case_sensitive", "full"})),
    "equals": ("literal", "equals", frozenset({"case_sensitive", "strip"})),
    "substring": ("literal", "substring", frozenset({"any", "case_sensitive"})),
    "starts_with": ("literal", "starts_with", frozenset({"case_sensitive", "strip"})),
    "ends_with": ("literal", "ends_with", frozenset({"case_sensitive", "strip"})),
    "json": ("json", "json_answer", frozenset({"schema", "fence"})),
    "contains_json": ("json", "contains_json", frozenset({"schema"})),
    "latency": ("reply", "latency", frozenset({"metric"})),
    "cost": ("reply", "cost", frozenset({"input_per_million", "output_per_million"})),
    "rubric": ("late", "rubric", frozenset()),
    "python": ("late", "python", frozenset({"file", "function"})),
    "all": ("combined", "all_of", frozenset({"of"})),
    "not": ("combined", "negated", frozenset({"scorer"})),
    "rouge_l": ("text", "rouge_l", frozenset({"threshold"})),
    "bleu": ("text", "bleu", frozenset({"threshold"})),
    "chrf": ("text", "chrf", frozenset({"threshold"})),
    "edit": ("text", "edit", frozenset({"threshold"})),
    "embedding": ("embedding", "embedding", frozenset({"threshold"})),
    "refusal": ("rules", "refusal", frozenset()),
    "pii": ("rules", "pii", frozenset({"allow"})),
    "secret": ("rules", "secret", frozenset({"allow"})),
    "safety": ("rules", "safety", frozenset({"ban"})),
}


def _find_elsewhere(name: str) -> tuple[Maker, frozenset[str]]:
    module, function, allowed = _MAKERS_ELSEWHERE[name]
    maker: Maker = getattr(import_module(f"evenkeel_evals.scorers.{module}"), function)
    return maker, allowed
