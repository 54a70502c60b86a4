"""Scorers for JSON: the whole answer or a part of it, against a value or a JSON schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.scorers.base import Judge, Options, Score
from evenkeel_evals.scorers.options import read_flag
from evenkeel_evals.scorers.time_limit import limited

# Limit of characters parsed per answer: unclosed brackets are parsed again and again.
MAX_PARSED = 20_000_000


class _OverBudget(Exception):
    """An answer takes too long to search."""


def json_answer(reference: Any, options: Options) -> Judge:
    """Judge by equality of parsed JSON, or by a JSON schema given as the option `schema`.

    A Markdown code fence around the answer is removed unless the option `fence` is false.
    """
    schema = options.get("schema")
    has_fence = read_flag("json", options, "fence", True)
    try:
        # Python also reads NaN, which no answer equals.
        is_text = isinstance(reference, str)
        expected = parse(reference if is_text else json.dumps(reference))
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"reference is not JSON: {error}") from error
    validator = None if schema is None else _Validator(schema)

    def judge(answer: str) -> Score:
        try:
            parsed = parse(_without_fence(answer) if has_fence else answer)
        except (ValueError, RecursionError):
            return Score.of(False, "not JSON")
        if validator is not None:
            try:
                problem = validator.problem(parsed)
            except ConfigurationError as error:
                return Score.unscored(str(error))
            if problem is not None:
                return Score.of(False, f"against the schema: {problem}")
            if expected is None:
                return Score.of(True)
        return Score.of(_same_json(parsed, expected))

    return judge if validator is None else limited(judge)


def contains_json(_: Any, options: Options) -> Judge:
    """Judge whether the answer contains a JSON object or list that satisfies `schema`."""
    schema = options.get("schema")
    validator = None if schema is None else _Validator(schema)

    def judge(answer: str) -> Score:
        reason = "no JSON in the answer"
        try:
            for found in _find_json(answer):
                problem = None if validator is None else validator.problem(found)
                if problem is None:
                    return Score.of(True)
                reason = f"against the schema: {problem}"
        except _OverBudget:
            return Score.unscored("takes too long to search for JSON")
        except ConfigurationError as error:
            return Score.unscored(str(error))
        return Score.of(False, reason)

    return judge if validator is None else limited(judge)


def parse(text: str) -> Any:
    """Return parsed JSON; rejects NaN and Infinity, which Python accepts but JSON does not.

    Raises:
        ValueError: If it is not JSON.
        RecursionError: If it is nested too deeply.
    """
    return _DECODER.decode(text)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


_OPENING = re.compile(r"[{\[]")
_DECODER = json.JSONDecoder(parse_constant=_refuse)


def _find_json(answer: str) -> Iterator[Any]:
    """Yield the outermost objects and lists in a text.

    Raises:
        _OverBudget: If that takes too long.
    """
    start, left = 0, MAX_PARSED
    while (match := _OPENING.search(answer, start)) is not None:
        begin = start = match.start()
        try:
            found, start = _DECODER.raw_decode(answer, begin)
        except json.JSONDecodeError as error:
            # Creating the error counts all preceding lines, which is slow.
            left -= 1 + error.pos - begin + error.pos // 50
            start += 1
        except (ValueError, RecursionError):
            left -= 10_000
            start += 1
        else:
            yield found
        if left < 0:
            raise _OverBudget


class _Validator:
    """A JSON schema; references to external addresses are not followed.

    Raises:
        ConfigurationError: If it is not a JSON schema.
    """

    def __init__(self, schema: Any) -> None:
        from jsonschema import Draft202012Validator, SchemaError
        from referencing import Registry

        try:
            Draft202012Validator.check_schema(schema)
        except SchemaError as error:
            raise ConfigurationError(f"schema is not a JSON schema: {error.message}") from error
        except RecursionError as error:
            raise ConfigurationError("schema is nested too deeply") from error
        registry: Registry[Any] = Registry()
        self._validator = Draft202012Validator(schema, registry=registry)
        self.problem({})

    def problem(self, parsed: Any) -> str | None:
        """Return the error in a value, or None.

        Raises:
            ConfigurationError: If the schema refers to something outside it.
        """
        from referencing.exceptions import Unresolvable

        try:
            first = next(iter(self._validator.iter_errors(parsed)), None)
        except Unresolvable as error:
            raise ConfigurationError(
                f"schema refers to something outside it: {str(error)[:80]}"
            ) from error
        except re.error as error:
            raise ConfigurationError(f"schema has a wrong expression: {error}") from error
        except RecursionError:
            return "nested too deeply"
        return None if first is None else str(first.message)[:120]


def _without_fence(answer: str) -> str:
    fenced = re.fullmatch(r"\s*```(?:json)?\s*\n(.*?)\n?\s*```\s*", answer, re.DOTALL)
    return fenced.group(1) if fenced else answer


def _same_json(one: Any, other: Any) -> bool:
    """Return whether two values are equal as JSON: 1 equals 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same_json(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same_json, one, other))
    return bool(one == other)
