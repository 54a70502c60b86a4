"""Suggests prompt changes from the worst slices of a run, each with its evidence."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evenkeel_evals.ask.answers import Answer, AnsweredPair
from evenkeel_evals.scorers.rules import refusal
from evenkeel_evals.scorers.words import normalise
from evenkeel_evals.stats.binary import wilson

MIN_WRONG = 3
# A pattern in fewer of a slice's wrong answers does not explain the slice.
MIN_SHARE = 0.2
NUM_EXAMPLES = 3
SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class WrongAnswer:
    """One wrong answer.

    Attributes:
        item_id: The item.
        trace_id: Trace id of the candidate's answer.
        question: The last user message.
        expected: The reference.
        answer: The candidate's answer.
    """

    item_id: str
    trace_id: str
    question: str
    expected: str
    answer: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    """One suggestion.

    Attributes:
        slice_name: The slice.
        num_items: Scored answers in the slice.
        num_wrong: Wrong answers among them.
        accuracy_ci95: Wilson interval of the slice's accuracy.
        pattern: What wrong answers have in common.
        num_matching: Wrong answers that match the pattern.
        advice: What to try.
        examples: Up to three matching answers.
    """

    slice_name: str
    num_items: int
    num_wrong: int
    accuracy_ci95: tuple[float, float]
    pattern: str
    num_matching: int
    advice: str
    examples: tuple[WrongAnswer, ...]

    def to_record(self) -> dict[str, Any]:
        """Return it as JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class _Pattern:
    name: str
    advice: str
    matches: Callable[[AnsweredPair], bool]


def _text(answer: Answer) -> str:
    return answer.reply.text or ""


def _is_cut(pair: AnsweredPair) -> bool:
    return pair.b.reply.finish_reason == "length"


def _refuses(pair: AnsweredPair) -> bool:
    judge = refusal(True, {})
    return pair.item.reference is not True and judge(_text(pair.b)).value == 1.0


def _is_empty(pair: AnsweredPair) -> bool:
    return not _text(pair.b).strip()


def _is_no_json(pair: AnsweredPair) -> bool:
    if pair.item.scorer.name != "json":
        return False
    try:
        json.loads(_text(pair.b))
    except (ValueError, RecursionError):
        return True
    return False


def _is_wrapped(pair: AnsweredPair) -> bool:
    reference = pair.item.reference
    if not isinstance(reference, str) or pair.item.scorer.name == "contains":
        return False
    return bool(normalise(reference)) and normalise(reference) in normalise(_text(pair.b))


def _is_lost(pair: AnsweredPair) -> bool:
    return pair.a.is_right is True


def _patterns(baseline: str | None, candidate: str | None) -> list[_Pattern]:
    """Return the patterns, the most specific first."""
    found = [
        _Pattern(
            "no answer at all",
            "look at a trace: a stop word or a limit cuts the answer off",
            _is_empty,
        ),
        _Pattern(
            "cut off by max_tokens",
            "ask for shorter answers in the prompt, or raise max_tokens on the side",
            _is_cut,
        ),
        _Pattern(
            "refuses questions it should answer",
            "state in the prompt what is in scope, with an example from this slice",
            _refuses,
        ),
        _Pattern(
            "not JSON although JSON is expected",
            "ask for JSON only, name the keys and show a complete example",
            _is_no_json,
        ),
        _Pattern(
            "the right answer among other words",
            "ask for the answer only, in the form of the reference, with an example",
            _is_wrapped,
        ),
    ]
    removed = _removed_lines(baseline or "", candidate or "")
    if removed:
        found.append(
            _Pattern(
                "right with the baseline's prompt",
                f"restore what it said and the candidate does not: {'; '.join(removed[:3])}",
                _is_lost,
            )
        )
    return found


def _removed_lines(baseline: str, candidate: str) -> list[str]:
    """Return the sentences of the baseline that the candidate lacks."""
    old, new = _sentences(baseline), _sentences(candidate)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        repr(sentence[:SHOWN_CHARS])
        for tag, a1, a2, _, _ in matcher.get_opcodes()
        if tag in ("delete", "replace")
        for sentence in old[a1:a2]
    ]


def _sentences(text: str) -> list[str]:
    parts = text.replace("\n", " ").replace(". ", ".\n").split("\n")
    return [part.strip() for part in parts if part.strip()]


def suggest(
    pairs: Sequence[AnsweredPair], prompts: tuple[str | None, str | None], limit: int
) -> list[Suggestion]:
    """Return up to one suggestion for each of the `limit` worst slices.

    Slices are ranked by Wilson's upper bound of the candidate's accuracy, so that a small slice
    does not lead by chance. Slices with fewer than MIN_WRONG wrong answers are left out.

    Args:
        pairs: The pairs of a run.
        prompts: System messages of the baseline and the candidate.
        limit: Maximum number of slices.
    """
    slices: dict[str, list[AnsweredPair]] = {}
    for pair in pairs:
        if pair.b.is_right is not None:
            for tag in pair.item.tags or ("all",):
                slices.setdefault(tag, []).append(pair)
    bad = {
        name: members
        for name, members in slices.items()
        if sum(not p.b.is_right for p in members) >= MIN_WRONG
    }
    worst = sorted(bad, key=lambda name: (_ci95(bad[name])[1], name))[:limit]
    patterns = _patterns(*prompts)
    return [_of_slice(name, bad[name], patterns) for name in worst]


def _ci95(members: Sequence[AnsweredPair]) -> tuple[float, float]:
    return wilson(sum(bool(p.b.is_right) for p in members), len(members))


def _of_slice(
    name: str, members: Sequence[AnsweredPair], patterns: Sequence[_Pattern]
) -> Suggestion:
    wrong = [pair for pair in members if not pair.b.is_right]
    best: _Pattern | None = None
    matching: list[AnsweredPair] = wrong
    for pattern in patterns:
        found = [pair for pair in wrong if pattern.matches(pair)]
        is_more = best is None or len(found) > len(matching)
        if len(found) >= max(2, MIN_SHARE * len(wrong)) and is_more:
            best, matching = pattern, found
    return Suggestion(
        slice_name=name,
        num_items=len(members),
        num_wrong=len(wrong),
        accuracy_ci95=_ci95(members),
        pattern="no known pattern in common" if best is None else best.name,
        num_matching=len(matching),
        advice="read the examples" if best is None else best.advice,
        examples=tuple(_example(pair) for pair in matching[:NUM_EXAMPLES]),
    )


def _example(pair: AnsweredPair) -> WrongAnswer:
    questions = [m.content for m in pair.item.messages if m.role == "user"]
    expected = pair.item.reference
    shown = expected if isinstance(expected, str) else json.dumps(expected, ensure_ascii=False)
    return WrongAnswer(
        item_id=pair.item.id,
        trace_id=pair.b.trace_id,
        question=(questions[-1] if questions else "")[:SHOWN_CHARS],
        expected=shown[:SHOWN_CHARS],
        answer=_text(pair.b)[:SHOWN_CHARS],
    )


def describe(s: Suggestion) -> list[str]:
    """Return one suggestion as lines of text."""
    low, high = s.accuracy_ci95
    lines = [
        f"{s.slice_name}: {s.num_wrong} of {s.num_items} wrong "
        f"(accuracy {low:.0%} to {high:.0%}); {s.num_matching} of them: {s.pattern}",
        f"  try: {s.advice}",
    ]
    for e in s.examples:
        lines.append(f"  {e.item_id} (trace {e.trace_id})")
        lines.append(f"    asked    {e.question!r}")
        lines.append(f"    expected {e.expected!r}")
        lines.append(f"    answered {e.answer!r}")
    return lines
