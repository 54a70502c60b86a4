"""Reads answers recorded elsewhere: JSON Lines with an id and a text, or an Inspect log."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.ask.stream import count_cached, count_reasoning, time_per_output_token_s
from evenkeel_evals.dataset.imports.conversations import to_text
from evenkeel_evals.dataset.imports.entries import UnfitError, as_object
from evenkeel_evals.dataset.imports.inspect_samples import answers_of, read_log

MAX_FILE_BYTES = 1024 * 1024 * 1024
MAX_LINE_BYTES = 16 * 1024 * 1024
MAX_ANSWERS = 500_000
# Problems listed individually; the rest are only counted.
MAX_PROBLEMS = 100
ID_KEYS = ("custom_id", "id", "item_id", "item")
TEXT_KEYS = ("answer", "output", "response", "completion", "text", "choices", "messages")


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """One recorded answer.

    Attributes:
        reply: Text or error, with times and tokens if they were recorded.
        cost: Its cost; None if not recorded.
        trace_id: Trace id of the request, 32 hex digits; empty if not recorded.
        model: The model that answered; empty if not recorded.
    """

    reply: Reply
    cost: float | None = None
    trace_id: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True)
class AnswerFile:
    """An answers file.

    Attributes:
        name: Name of the file, without its extension.
        content_hash: `sha256:` and the digest of the file.
        answers: Answers by item id.
        problems: One message per line that was skipped or lost a value; up to MAX_PROBLEMS,
            followed by how many more.
    """

    name: str
    content_hash: str
    answers: Mapping[str, FileAnswer]
    problems: tuple[str, ...]


_TIMED_OUT = re.compile(r"time[sd]?[ -]*out|deadline", re.IGNORECASE)


def read_answers(path: Path) -> AnswerFile:
    """Read an answers file; if an id is repeated, the first answer counts.

    Raises:
        ConfigurationError: If it cannot be read, is too large, or holds no answer.
    """
    digest = hashlib.sha256()
    answers: dict[str, FileAnswer] = {}
    places: dict[str, str] = {}
    problems = _Problems()
    for place, value in _records(path, digest):
        try:
            name, answer, doubts = _read(value)
        except UnfitError as error:
            problems.add(f"{place}: {error}")
            continue
        for doubt in doubts:
            problems.add(f"{place}: {doubt}")
        if name in answers:
            problems.add(f"{place}: id {name!r:.80} is already at {places[name]}, which is used")
            continue
        if len(answers) == MAX_ANSWERS:
            raise ConfigurationError(f"{path} has more than {MAX_ANSWERS:,} answers; split it")
        answers[name], places[name] = answer, place
    longest_s = max((a.reply.e2e_s or 0.0 for a in answers.values()), default=0.0)
    for name, answer in answers.items():
        reply = answer.reply
        if reply.has_timed_out and reply.e2e_s is None and longest_s:
            # The timeout is unknown: it was at least as long as the longest answer.
            timed = replace(reply, ttft_s=reply.ttft_s or longest_s, e2e_s=longest_s)
            answers[name] = replace(answer, reply=timed)
    if not answers:
        first = f"; first problem: {problems.lines[0]}" if problems.lines else ""
        raise ConfigurationError(f"{path} has no answers{first}")
    return AnswerFile(path.stem, f"sha256:{digest.hexdigest()}", answers, problems.summary())


class _Problems:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self._num_more = 0

    def add(self, line: str) -> None:
        if len(self.lines) < MAX_PROBLEMS:
            self.lines.append(line)
        else:
            self._num_more += 1

    def summary(self) -> tuple[str, ...]:
        more = [f"and {self._num_more:,} more"] if self._num_more else []
        return (*self.lines, *more)


def _records(path: Path, digest: Any) -> Iterator[tuple[str, Any]]:
    """Yield every record with its position, parsed or not, and update the digest."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ConfigurationError(
                f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB; split it"
            )
        if path.suffix.lower() in (".json", ".eval") and (log := read_log(path)) is not None:
            digest.update(path.read_bytes())
            for entry, record in answers_of(log[1]):
                yield entry.place, record
            return
        with path.open("rb") as file:
            yield from _lines(path, file, digest)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from error


def _lines(path: Path, file: Any, digest: Any) -> Iterator[tuple[str, Any]]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise ConfigurationError(
                f"{path}:{number} is longer than {MAX_LINE_BYTES // 2**20} MiB; "
                "expected JSON Lines, one answer per line"
            )
        digest.update(line)
        if not line.strip():
            continue
        try:
            yield f"{path.name}:{number}", line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path}:{number} is not UTF-8: {error.reason}") from error


def _read(value: Any) -> tuple[str, FileAnswer, Sequence[str]]:
    """Return id, answer, and the problems with its values.

    Raises:
        UnfitError: If it has no id, or neither an answer nor an error.
    """
    record = as_object(value)
    name = next((record[key] for key in ID_KEYS if record.get(key) is not None), None)
    if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
        raise UnfitError(f"has no id; expected one of {', '.join(ID_KEYS)}")
    inner = _body(record)
    error = _error(record, inner)
    text = None if error is not None else _text(inner)
    if text is None and error is None and any(key in inner for key in (*TEXT_KEYS, "content")):
        # How many harnesses record a failed request.
        error = "its answer has no text"
    if text is None and error is None:
        raise UnfitError(f"has no answer; expected one of {', '.join(TEXT_KEYS)}, or error")
    doubts: list[str] = []
    figures = {key: _figure(record, key, doubts) for key in ("ttft_s", "e2e_s", "cost")}
    ttft_s, e2e_s = figures["ttft_s"], figures["e2e_s"]
    if ttft_s is not None and e2e_s is not None and ttft_s > e2e_s:
        doubts.append(f"ttft_s {ttft_s:g} is above e2e_s {e2e_s:g}; neither is used")
        ttft_s = e2e_s = None
    tokens = _tokens(record, inner)
    has_timed_out = error is not None and _TIMED_OUT.search(error) is not None
    # Measured from the first text, not from the end that replaces it below.
    tpot_s = time_per_output_token_s(ttft_s, e2e_s, tokens[1])
    if error is not None and not has_timed_out:
        # The time to a failure is not a latency.
        ttft_s = e2e_s = tpot_s = None
    elif has_timed_out:
        ttft_s = e2e_s if ttft_s is None else ttft_s
    reply = Reply(
        start_ns=0,
        end_ns=0,
        text=text,
        error=error,
        ttft_s=ttft_s,
        e2e_s=e2e_s,
        tpot_s=tpot_s,
        has_timed_out=has_timed_out,
        input_tokens=tokens[0],
        output_tokens=tokens[1],
        cached_tokens=_detail(
            record, inner, ("cached_tokens", "cached_input_tokens"), count_cached
        ),
        reasoning_tokens=_detail(record, inner, ("reasoning_tokens",), count_reasoning),
    )
    trace_id = record.get("trace_id")
    if not isinstance(trace_id, str) or re.fullmatch("[0-9a-f]{32}", trace_id) is None:
        trace_id = ""
    model = next((m for each in (record, inner) if isinstance(m := each.get("model"), str)), "")
    return str(name), FileAnswer(reply, figures["cost"], trace_id, model), doubts


def _body(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object with the answer; for an OpenAI batch line, the response body."""
    for key in ("response", "output"):
        inner = record.get(key)
        if isinstance(inner, dict):
            body = inner.get("body")
            return body if isinstance(body, dict) else inner
    return record


def _error(record: Mapping[str, Any], body: Mapping[str, Any]) -> str | None:
    for found in (record.get("error"), body.get("error")):
        if isinstance(found, dict):
            found = found.get("message") or json.dumps(found)
        if found not in (None, "", False, "{}", []):
            return (str(found).strip().splitlines() or ["error"])[0][:200]
    return None


def _text(record: Mapping[str, Any]) -> str | None:
    for key in TEXT_KEYS:
        value = record.get(key)
        if key in ("choices", "messages"):
            value = (
                value[0 if key == "choices" else -1] if isinstance(value, list) and value else None
            )
            if isinstance(value, dict) and "text" in value:
                value = value["text"]
        if isinstance(value, dict):
            value = value.get("message", value)
            value = value.get("content") if isinstance(value, dict) else value
        text = to_text(value)
        if text is not None:
            return text
    content = to_text(record.get("content"))
    return content


def _figure(record: Mapping[str, Any], key: str, doubts: list[str]) -> float | None:
    value = record.get(key)
    if value is None:
        return None
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # Compared first: an integer may be too large for a float.
    if is_number and 0 <= value < 1e12 and math.isfinite(value):
        return float(value)
    doubts.append(f"{key} is {value!r:.40}, expected a number of 0 or more; it is not used")
    return None


def _detail(
    record: Mapping[str, Any],
    body: Mapping[str, Any],
    names: Sequence[str],
    count: Callable[[Mapping[str, Any]], int | None],
) -> int | None:
    """Return a count that the line states, or else its `usage`."""
    stated = _count([record], names)
    if stated is not None:
        return stated
    usages = [u for each in (record, body) if isinstance(u := each.get("usage"), dict)]
    return next((n for usage in usages if (n := count(usage)) is not None), None)


def _tokens(record: Mapping[str, Any], body: Mapping[str, Any]) -> tuple[int | None, int | None]:
    sources: Iterable[Any] = (record, record.get("usage"), body.get("usage"))
    known = [source for source in sources if isinstance(source, dict)]
    return _count(known, ("input_tokens", "prompt_tokens")), _count(
        known, ("output_tokens", "completion_tokens")
    )


def _count(sources: Sequence[Mapping[str, Any]], names: Sequence[str]) -> int | None:
    for source in sources:
        for name in names:
            value = source.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53:
                return value
    return None
