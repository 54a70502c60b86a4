"""Why one request took as long as it did: from the runtime's answer or the store, as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import isfinite
from textwrap import wrap
from typing import Any

from pydantic import TypeAdapter

from evenkeel.durations import measured_duration
from evenkeel.why.advice import advise
from evenkeel.why.causes import cause_name
from evenkeel.why.ledger import (
    PHASES,
    LedgerEntry,
    counterfactuals,
    missed_prefix,
    read_ledger,
    worst_causes,
)

_BAR_CHARS = 24
# Of an id; whole ids of vLLM and of traces have at least 32 characters.
_SHORTEST_TAIL, _LONGEST_TAIL = 6, 16
# An answer whose share of repeated 4-grams is at least this loops (docs/guide/anomalies.md).
_REPEATS = 0.5
_RIVALS = "evenkeel.rivals."
_PREFIX = "evenkeel.prefix."


def id_tail(text: str) -> str:
    """Return the end of an id if the text is only that, as tables show it; "" for a whole id."""
    tail = text.lstrip("…. ")
    is_part = tail != text or len(text) <= _LONGEST_TAIL
    return tail if is_part and len(tail) >= _SHORTEST_TAIL else ""


@dataclass(frozen=True, slots=True)
class Rival:
    """A concurrent request, and the time that this one would have saved without it.

    `request_id` is None for a request of another tenant.
    """

    request_id: str | None
    spared_s: float
    prefill_tokens: int
    decode_tokens: int


@dataclass(frozen=True, slots=True)
class PrefixUse:
    """Why the prefix cache lacked part of the prompt, and what that cost.

    Attributes:
        miss: The reason, such as `evicted`.
        missed_tokens: Tokens that were not found; None if unknown.
        cost_s: Time to compute them; None if unknown.
        evicted_s: How long before the arrival they were evicted; None if they were not.
        evicted_by: The request that took their place; None if unknown.
    """

    miss: str
    missed_tokens: int | None
    cost_s: float | None
    evicted_s: float | None
    evicted_by: str | None


@dataclass(frozen=True, slots=True)
class AnswerFacts:
    """What the answer's tokens say of it; None if unknown. The names are those of `requests`."""

    reasoning_tokens: int | None = None
    visible_tokens: int | None = None
    visible_ttft_s: float | None = None
    repeated_share: float | None = None
    tool_calls_failed: int | None = None

    def sentences(self) -> Iterator[str]:
        """Yield what is unusual about the answer."""
        if self.reasoning_tokens:
            yield f"The answer has {self.reasoning_tokens:,} tokens of reasoning."
        if self.visible_tokens == 0:
            yield "It shows nothing."
        elif self.reasoning_tokens and self.visible_ttft_s is not None:
            yield f"Its first visible token came after {measured_duration(self.visible_ttft_s)}."
        if self.repeated_share is not None and self.repeated_share >= _REPEATS:
            yield f"{self.repeated_share:.0%} of the answer repeats what it has said before."
        if self.tool_calls_failed:
            yield f"Tool calls in the answer that did not parse: {self.tool_calls_failed:,}."


@dataclass(frozen=True, slots=True)
class RequestWhy:
    """What is known about the time of one request.

    Attributes:
        request_id: Its id; `trace_id` is its trace.
        arrival: When it arrived, ISO 8601.
        status: How it ended.
        response_cache: What the response cache did; None if it is off.
        ttft_s: Time to the first token; None without one. `decode_s` is the time from then on, and
            `e2e_s` the whole.
        ledger: Seconds by `<phase>.<cause>`; {} if the engine's records are missing.
        without: Concurrent requests, the one that cost most first.
        prefix: What the prefix cache lacked; None if unknown.
        answer: What its tokens say of it; a runtime does not tell.
        num_found: Requests with the ID asked for, such as those of a trace; this is the newest.
    """

    request_id: str
    trace_id: str
    model: str
    tenant: str | None
    status: str
    arrival: str
    response_cache: str | None
    ttft_s: float | None
    decode_s: float | None
    e2e_s: float | None
    ledger: Mapping[str, float] = field(default_factory=dict)
    without: Sequence[Rival] = ()
    prefix: PrefixUse | None = None
    answer: AnswerFacts = AnswerFacts()
    num_found: int = 1

    def sentences(self) -> list[str]:
        """Return the explanation in sentences, most important first."""
        said = counterfactuals(read_ledger(self.ledger), measured_duration)
        if self.ttft_s is not None:
            said.append(f"The first token came after {measured_duration(self.ttft_s)}.")
        elif self.e2e_s is not None:
            took = measured_duration(self.e2e_s)
            said.append(
                f"It took {took}; its sender does not report when the first token came."
                if self.status == "ok"
                else f"It ended without a token after {took}: {self.status}."
            )
        return [*said, *self.answer.sentences()]

    def to_json(self) -> dict[str, Any]:
        """Return everything known, with the explanation and what would help."""
        worst = worst_causes(read_ledger(self.ledger))
        helps = [(e.cause, advice) for e in worst if (advice := advise(e.cause)) is not None]
        return asdict(self) | {
            "explanation": self.sentences(),
            "what_would_help": [
                {"cause": cause, "text": advice.text, "flags": list(advice.flags)}
                for cause, advice in helps
            ],
        }


def from_runtime(answer: Mapping[str, Any]) -> RequestWhy:
    """Return the answer of a runtime's `GET /why/{id}`.

    Raises:
        ValueError: If a value is not what a runtime answers.
        LookupError: If one is missing; so are AttributeError and TypeError.
    """
    prefix = answer.get("prefix_cache")
    evicted = (prefix or {}).get("evicted") or {}
    found = {name: answer.get(name) for name in _SAME_NAMES} | {
        "ledger": answer.get("ledger") or {},
        "without": [
            {name: rival[name] for name in _RIVAL_NAMES} for rival in answer.get("without") or ()
        ],
        "prefix": None
        if not prefix
        else {
            **{name: prefix[name] for name in ("miss", "missed_tokens", "cost_s")},
            "evicted_s": evicted.get("before_arrival_s"),
            "evicted_by": evicted.get("for_request"),
        },
    }
    return _CHECK.validate_python(found)


_CHECK = TypeAdapter(RequestWhy)
_RIVAL_NAMES = ("request_id", "spared_s", "prefill_tokens", "decode_tokens")
_SAME_NAMES = (
    "request_id",
    "trace_id",
    "model",
    "tenant",
    "status",
    "arrival",
    "response_cache",
    "ttft_s",
    "decode_s",
    "e2e_s",
)


def from_store(row: Mapping[str, Any]) -> RequestWhy:
    """Return a row of the query `request_why`."""
    attributes: Mapping[str, str] = row["attributes"] or {}
    miss = attributes.get(f"{_PREFIX}miss")
    lists = [
        _list(attributes, name)
        for name in ("request_ids", "cost_s", "prefill_tokens", "decode_tokens")
    ]
    missed = _number(attributes, "missed_tokens")
    return RequestWhy(
        **{name: row[name] for name in _SAME_NAMES},
        ledger=row["ledger"] or {},
        without=list(_rivals(*lists)),
        prefix=None
        if miss is None
        else PrefixUse(
            miss,
            None if missed is None else round(missed),
            _number(attributes, "cost_s"),
            _number(attributes, "evicted_s"),
            attributes.get(f"{_PREFIX}evicted_by") or None,
        ),
        answer=AnswerFacts(**{each.name: row.get(each.name) for each in fields(AnswerFacts)}),
        num_found=row["num_found"],
    )


def _rivals(*lists: Sequence[Any]) -> Iterator[Rival]:
    """Yield the rivals; spans come from anyone, so lists that are none are left out."""
    for rid, cost_s, prefill, decode in zip(*lists, strict=False):
        try:
            rival = Rival(str(rid or "") or None, float(cost_s), int(prefill), int(decode))
        except (TypeError, ValueError, OverflowError):
            continue
        if isfinite(rival.spared_s):
            yield rival


def _list(attributes: Mapping[str, str], name: str) -> list[Any]:
    try:
        found = json.loads(attributes.get(_RIVALS + name) or "[]")
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []


def _number(attributes: Mapping[str, str], name: str) -> float | None:
    try:
        found = float(attributes[_PREFIX + name])
    except (KeyError, ValueError):
        return None
    return found if isfinite(found) else None


def tell(found: RequestWhy, width: int = 100) -> Iterator[str]:
    """Yield the explanation as lines of text.

    Args:
        found: What is known.
        width: Longest line, in characters.
    """
    about = [found.request_id, found.status, found.model, found.tenant, found.arrival]
    yield "  ".join(part for part in about if part)
    if found.num_found > 1:
        yield f"{found.num_found:,} requests have this ID; this is the newest."
    yield ""
    yield from wrap(" ".join(found.sentences()), width)
    listed = read_ledger(found.ledger)
    if not listed:
        yield from wrap(_without_ledger(found), width)
    for phase, words in PHASES.items():
        yield from _phase(words, [e for e in listed if e.phase == phase])
    if found.without:
        yield ""
        yield "sooner without"
        for rival in found.without:
            name = rival.request_id or "another tenant's request"
            yield f"  {measured_duration(rival.spared_s):>8}  {name}, {_work(rival)}"
    if found.prefix is not None and (words := _prefix_words(found.prefix)):
        yield ""
        yield from wrap(words, width)
    yield from _help(worst_causes(listed), width)


def _without_ledger(found: RequestWhy) -> str:
    if found.response_cache in ("exact", "semantic"):
        return "The response cache answered it, so the engine did no work."
    return "It has no ledger: the engine's step records are missing (docs/inside/ledger.md)."


def _phase(words: str, listed: Sequence[LedgerEntry]) -> Iterator[str]:
    if not listed:
        return
    total_s = sum(e.seconds for e in listed)
    yield ""
    yield f"{words}, {measured_duration(total_s)}"
    longest = max(len(cause_name(e.cause)) for e in listed)
    for e in listed:
        bar = "█" * round(_BAR_CHARS * e.share) or "▏"
        name = cause_name(e.cause).ljust(longest)
        share = f"{e.share:.0%}" if e.share >= 0.005 else "<1%"
        yield f"  {name}  {measured_duration(e.seconds):>8} {share:>4}  {bar}"


def _work(rival: Rival) -> str:
    work = []
    if rival.prefill_tokens:
        work.append(f"prompt of {rival.prefill_tokens:,} tokens")
    if rival.decode_tokens:
        work.append(f"{rival.decode_tokens:,} tokens decoded")
    return " and ".join(work)


def _prefix_words(prefix: PrefixUse) -> str:
    why = missed_prefix(prefix.miss, prefix.evicted_s, measured_duration)
    if not why:
        return ""
    tokens = "" if prefix.missed_tokens is None else f"{prefix.missed_tokens:,} "
    by = f" by {prefix.evicted_by}" if prefix.evicted_by else ""
    cost = f"; computing them took {measured_duration(prefix.cost_s)}" if prefix.cost_s else ""
    return f"{tokens}prompt tokens (whole blocks) were not in the prefix cache: {why}{by}{cost}."


def _help(worst: Sequence[LedgerEntry], width: int) -> Iterator[str]:
    helps = [(e, advice) for e in worst if (advice := advise(e.cause)) is not None]
    if not helps:
        return
    yield ""
    yield "what would help"
    for entry, advice in helps:
        flags = f" Flags: {', '.join(advice.flags)}" if advice.flags else ""
        name = cause_name(entry.cause)
        yield from wrap(
            f"{name}: {advice.text}{flags}",
            width,
            initial_indent="  ",
            subsequent_indent="    ",
            break_on_hyphens=False,
        )
