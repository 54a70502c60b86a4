"""Scorers that combine others: all of several, or the negation of one."""

from __future__ import annotations

from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.scorers.base import Context, Label, Options, Score, Scorer, make_scorer

MAX_MEMBERS = 200
MAX_DEPTH = 8


def all_of(_: Any, options: Options) -> Scorer:
    """Judge whether every assertion in the list `of`, each a `scorer` and `reference`, holds.

    The value is the share that holds. A failed one makes the answer wrong; otherwise an unscored
    one makes it unscored.
    """
    listed = options.get("of")
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_MEMBERS:
        raise ConfigurationError(
            f"scorer 'all' needs 1 to {MAX_MEMBERS} assertions in the list 'of'"
        )
    _check_depth(listed)
    members = [_member(number, entry) for number, entry in enumerate(listed, start=1)]

    def judge(answer: str, context: Context) -> Score:
        scores = [member.score(answer, context) for member in members]
        wrong = [i for i, score in enumerate(scores) if score.label is Label.WRONG]
        open_ = [i for i, score in enumerate(scores) if score.label is Label.UNSCORED]
        if wrong:
            first = wrong[0]
            reason = _reason(first, members[first], scores[first])
            return Score(
                sum(s.label is Label.RIGHT for s in scores) / len(scores),
                Label.WRONG,
                f"{len(wrong)} of {len(scores)} fail; {reason}",
            )
        if open_:
            return Score.unscored(_reason(open_[0], members[open_[0]], scores[open_[0]]))
        return Score.of(True)

    checks = tuple(dict.fromkeys(check for member in members for check in member.checks))
    return Scorer("all", judge, checks, any(member.is_timed for member in members))


def negated(reference: Any, options: Options) -> Scorer:
    """Judge whether the option `scorer`, given `reference`, finds the answer wrong."""
    spec = options.get("scorer")
    if not isinstance(spec, str | dict):
        raise ConfigurationError("scorer 'not' needs the option 'scorer': which one is negated")
    _check_depth(spec)
    inner = make_scorer(spec, reference)

    def judge(answer: str, context: Context) -> Score:
        score = inner.score(answer, context)
        if score.label is Label.UNSCORED:
            return score
        return Score.of(
            score.label is Label.WRONG, f"not {inner.name}: {score.reason or ''}".rstrip(": ")
        )

    return Scorer("not", judge, inner.checks, inner.is_timed)


def _member(number: int, entry: Any) -> Scorer:
    if not isinstance(entry, dict) or not set(entry) <= {"scorer", "reference"}:
        raise ConfigurationError(
            f"assertion {number} of scorer 'all' needs scorer and reference, and nothing else"
        )
    try:
        return make_scorer(entry.get("scorer", "exact"), entry.get("reference"))
    except ConfigurationError as error:
        raise ConfigurationError(f"assertion {number}: {error}") from error


def _reason(index: int, member: Scorer, score: Score) -> str:
    return f"assertion {index + 1} ({member.name}){f': {score.reason}' if score.reason else ''}"


def _check_depth(spec: Any) -> None:
    """Reject specifications that are nested unreasonably deeply."""
    level, depth = [spec], 0
    while level:
        if depth > 4 * MAX_DEPTH:
            raise ConfigurationError(f"scorers are nested more than {MAX_DEPTH} deep")
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (
                outer.values()
                if isinstance(outer, dict)
                else outer
                if isinstance(outer, list)
                else ()
            )
            if isinstance(inner, dict | list)
        ]
