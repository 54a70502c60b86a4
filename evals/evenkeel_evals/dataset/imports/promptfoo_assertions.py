"""Converts promptfoo assertions to equivalent scorers; rejects those without one."""

from __future__ import annotations

import csv
import hashlib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel_evals.dataset.imports.entries import UnfitError
from evenkeel_evals.dataset.imports.promptfoo_text import FILE, Folder, fill_all, to_js_text
from evenkeel_evals.dataset.imports.yaml_text import load_yaml

Spec = tuple[Any, Any]
"""A scorer and its reference."""

SIMILAR_THRESHOLD = 0.75
BLEU_THRESHOLD = 0.5
_IGNORED = {"type", "value", "threshold", "weight", "metric", "provider"}


@dataclass(slots=True)
class Test:
    """Inputs and outputs of converting a test's assertions.

    Attributes:
        variables: Variable values of one combination.
        prompt: The rendered question.
        folder: The folder of the configuration.
        notes: Differences in judging from promptfoo.
        files: Files to write next to the dataset.
    """

    variables: Mapping[str, Any]
    prompt: str
    folder: Folder
    notes: list[str] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)


def to_scorer(assertions: Sequence[Any], test: Test) -> Spec:
    """Return one scorer for all assertions of a test, all of which must hold.

    Raises:
        UnfitError: If there are none, or one has no counterpart.
    """
    members = _read_all(assertions, test)
    if not members:
        raise UnfitError("has no assertions: every answer would be right")
    if len(members) == 1:
        return members[0]
    listed = [{"scorer": scorer, "reference": reference} for scorer, reference in members]
    return {"name": "all", "of": listed}, None


def _read_all(assertions: Sequence[Any], test: Test) -> list[Spec]:
    members: list[Spec] = []
    for assertion in assertions:
        if not isinstance(assertion, Mapping):
            raise UnfitError("an assertion is not an object")
        if assertion.get("weight") == 0:
            # A weight of 0 is only a metric there: it cannot fail.
            test.notes.append("assertions of weight 0 are skipped: they cannot fail")
        elif assertion.get("type") == "assert-set":
            if assertion.get("threshold") is not None:
                raise UnfitError("an assert-set with a threshold has no counterpart")
            members += _read_all(assertion.get("assert") or [], test)
        else:
            members.append(_read_one(assertion, test))
    return members


def _read_one(assertion: Mapping[str, Any], test: Test) -> Spec:
    kind = str(assertion.get("type"))
    base = kind.removeprefix("not-")
    if base not in _READERS:
        raise UnfitError(f"assertion {kind!r:.60} has no counterpart; known: {', '.join(_READERS)}")
    more = sorted(set(assertion) - _IGNORED)
    if more:
        raise UnfitError(f"assertion {kind!r} has {more[0]!r:.40}, which has no counterpart")
    threshold = assertion.get("threshold")
    value = assertion.get("value")
    if base != "python" and isinstance(value, str) and value.startswith(FILE):
        value = test.folder.load(value)
    read = _READERS[base]
    if threshold is not None and base not in _WITH_THRESHOLD:
        raise UnfitError(f"assertion {kind!r} with a threshold has no counterpart")
    if base not in ("is-json", "contains-json") or isinstance(value, str):
        value = fill_all(value, test.variables)
    scorer, reference = read(value, threshold, test)
    if base in _NOTES:
        test.notes.append(_NOTES[base])
    return ({"name": "not", "scorer": scorer}, reference) if kind != base else (scorer, reference)


Reader = Callable[[Any, Any, Test], Spec]


def _equals(value: Any, _: Any, __: Test) -> Spec:
    if isinstance(value, dict | list):
        return {"name": "json", "fence": False}, value
    return "equals", to_js_text(value)


def _contains(is_cased: bool, quantifier: str = "") -> Reader:
    def read(value: Any, _: Any, __: Test) -> Spec:
        spec: dict[str, Any] = {"name": "substring"}
        if quantifier == "any":
            spec["any"] = True
        if not is_cased:
            spec["case_sensitive"] = False
        if quantifier:
            wanted: Any = [to_js_text(text) for text in _listed(value)]
        else:
            wanted = to_js_text(value)
        return spec if len(spec) > 1 else "substring", wanted

    return read


def _listed(value: Any) -> list[Any]:
    """Return a list; a text is split at commas outside quotation marks."""
    if isinstance(value, list):
        found = value
    else:
        text = to_js_text(value).replace("\n", " ")
        cells = next(csv.reader(io.StringIO(text), skipinitialspace=True), [])
        found = [cell.strip() for cell in cells if cell.strip()]
    if not found:
        raise UnfitError("an assertion has an empty list")
    return found


def _starts_with(value: Any, _: Any, __: Test) -> Spec:
    return "starts_with", to_js_text(value)


def _regex(value: Any, _: Any, __: Test) -> Spec:
    # JavaScript has a different syntax for named groups.
    return "regex", re.sub(r"\(\?<(?![=!])", "(?P<", to_js_text(value))


def _is_json(value: Any, _: Any, __: Test) -> Spec:
    return {"name": "json", "schema": _schema(value), "fence": False}, None


def _contains_json(value: Any, _: Any, __: Test) -> Spec:
    schema = _schema(value)
    return {"name": "contains_json", **({"schema": schema} if schema else {})}, None


def _schema(value: Any) -> Any:
    if isinstance(value, str) and value.strip():
        value = load_yaml(value, Path("the schema"))[0]
    if value is None or value == "":
        return {}
    if not isinstance(value, dict | bool):
        raise UnfitError("its JSON schema is not an object")
    return value


def _similar(value: Any, threshold: Any, __: Test) -> Spec:
    return {"name": "embedding", "threshold": _default(threshold, SIMILAR_THRESHOLD)}, value


def _bleu(value: Any, threshold: Any, __: Test) -> Spec:
    return {"name": "bleu", "threshold": _default(threshold, BLEU_THRESHOLD)}, value


def _default(threshold: Any, default: float) -> Any:
    return default if threshold is None else threshold


def _refusal(_: Any, __: Any, ___: Test) -> Spec:
    return "refusal", True


def _latency(_: Any, threshold: Any, __: Test) -> Spec:
    return "latency", _limit("latency", threshold) / 1000


def _cost(_: Any, threshold: Any, __: Test) -> Spec:
    return "cost", _limit("cost", threshold)


def _limit(kind: str, threshold: Any) -> float:
    if isinstance(threshold, bool) or not isinstance(threshold, int | float):
        raise UnfitError(f"assertion {kind!r} has no threshold that is a number")
    return threshold


def _rubric(value: Any, _: Any, __: Test) -> Spec:
    if not isinstance(value, str):
        raise UnfitError("assertion 'llm-rubric' has a rubric that is not text")
    return "rubric", value


def _python(value: Any, _: Any, test: Test) -> Spec:
    if not isinstance(value, str) or not value.strip():
        raise UnfitError("assertion 'python' has no code")
    function = "get_assert"
    if value.startswith(FILE):
        name, _sep, named = value.removeprefix(FILE).partition(".py:")
        path = test.folder.find(f"{name}.py" if named else name)
        function = named or function
        file = path.relative_to(test.folder.path).as_posix()
        code = path.read_bytes()
    else:
        code = _wrapped(value).encode()
        file = f"inline-{hashlib.sha256(code).hexdigest()[:10]}.py"
    test.files[file] = code
    scorer = {"name": "python", "file": file, "function": function}
    return scorer, {"vars": dict(test.variables), "prompt": test.prompt}


def _wrapped(code: str) -> str:
    """Return a module for inline code: one expression, or a function body."""
    is_body = "\n" in code.strip()
    lines = code.rstrip().split("\n") if is_body else [f"return {code.strip()}"]
    body = "\n".join(f"    {line}" for line in lines)
    return f"import json\n\n\ndef get_assert(output, context):\n{body}\n"


_READERS: Mapping[str, Reader] = {
    "equals": _equals,
    "contains": _contains(True),
    "icontains": _contains(False),
    "contains-any": _contains(True, "any"),
    "icontains-any": _contains(False, "any"),
    "contains-all": _contains(True, "all"),
    "icontains-all": _contains(False, "all"),
    "starts-with": _starts_with,
    "regex": _regex,
    "is-json": _is_json,
    "contains-json": _contains_json,
    "latency": _latency,
    "cost": _cost,
    "llm-rubric": _rubric,
    "python": _python,
    "similar": _similar,
    "bleu": _bleu,
    "is-refusal": _refusal,
}
# Every promptfoo assertion type that a table cell may begin with.
KINDS = frozenset(_READERS) | frozenset(
    """answer-relevance classifier contains-html contains-sql contains-xml context-faithfulness
    context-recall context-relevance factuality finish-reason g-eval gleu guardrails is-html is-sql
    is-valid-function-call is-valid-openai-function-call is-valid-openai-tools-call is-xml
    levenshtein meteor model-graded-closedqa model-graded-factuality moderation perplexity
    perplexity-score pi rouge-n ruby search-rubric select-best tool-call-f1 trace-error-spans
    webhook word-count ends-with""".split()
)
_WITH_THRESHOLD = ("latency", "cost", "similar", "bleu")
_NOTES: Mapping[str, str] = {
    "similar": "'similar' is judged with embeddings of all-MiniLM-L6-v2, not with promptfoo's",
    "bleu": "'bleu' is sacrebleu's, not promptfoo's",
    "is-refusal": "'is-refusal' is judged by evenkeel's rules, not by promptfoo's list of phrases",
    "contains-json": "'contains-json' takes JSON as written; promptfoo also repairs broken JSON",
    "cost": "'cost' takes the cost in the answers; without one add input_per_million and "
    "output_per_million to the scorer",
    "llm-rubric": "'llm-rubric' is judged by the --judge model, yes or no",
    "python": "'python' runs only with --allow-python; read the code first",
}
