"""Scorers whose result is determined beforehand, by a judge model or a Python function."""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.scorers.base import Context, LateCheck, Options, Score, Scorer, read_text

RUBRIC = "rubric"
PYTHON = "python"
MAX_CRITERION = 20_000
DEFAULT_FUNCTION = "get_assert"
_HINTS = {
    RUBRIC: "rubric: no model judged it; pass --judge FILE to `eval run` or `eval judge`",
    PYTHON: "python: was not run; pass --allow-python to `eval run` or `eval judge`",
}


def rubric(reference: Any, _: Options) -> Scorer:
    """Judge by asking a model whether the answer meets the criterion in `reference`."""
    criterion = read_text(RUBRIC, reference).strip()
    if not 0 < len(criterion) <= MAX_CRITERION:
        raise ConfigurationError(
            f"scorer 'rubric' needs a criterion of 1 to {MAX_CRITERION:,} characters"
        )
    return _late(LateCheck(RUBRIC, criterion))


def python(reference: Any, options: Options) -> Scorer:
    """Judge by `function` (default: get_assert) in `file`, a path in the dataset's folder."""
    file, function = options.get("file"), options.get("function", DEFAULT_FUNCTION)
    if not isinstance(file, str) or not file.endswith(".py"):
        raise ConfigurationError("scorer 'python' needs the option 'file', such as checks.py")
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts:
        raise ConfigurationError(f"file {file!r:.80} of scorer 'python' is outside the dataset")
    if not isinstance(function, str) or re.fullmatch(r"[A-Za-z_]\w*", function) is None:
        raise ConfigurationError(f"function {function!r:.40} of scorer 'python' is not a name")
    return _late(LateCheck(PYTHON, f"{path}:{function}", json.dumps(reference, sort_keys=True)))


def _late(check: LateCheck) -> Scorer:
    def judge(_: str, context: Context) -> Score:
        return context.found.get(check) or Score.unscored(_HINTS[check.kind])

    return Scorer(check.kind, judge, (check,))
