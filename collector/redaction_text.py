"""Finds secrets in a text by their form, and replaces them by tokens that reveal nothing.

A token is `[rule]`, or `[rule:1a2b3c4d5e6f]` where the rule hashes: the first 48 bits of
HMAC-SHA256(key, rule, normalised secret), so that the same e-mail address can be counted and
followed without being known. Tokens are never looked into again, and a text is searched until
nothing is found: redacting twice changes nothing.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from collector.redaction_checks import CHECKS, Check
from collector.redaction_phone import PhoneCheck
from collector.redaction_rules import (
    PHONE_CHECK,
    Action,
    Normal,
    ValueRule,
    compile_bytes,
    compile_set,
    without_anchors,
)

NUM_HASH_DIGITS = 12
# Replacing a secret may lay bare another one behind it. A text that is still not clean after as
# many rounds was made to cost time, and is replaced as a whole.
MAX_ROUNDS = 8
MAX_LOOKUPS = 2000
# The shortest text that a rule could match; a rule of a user may match anything.
MIN_BYTES = 5
# In texts up to this length one search says which rules could match, instead of one a rule.
MAX_SHORT_BYTES = 1024


@dataclass(slots=True)
class Tally:
    """What one request's redaction did, and how much it may still spend.

    Attributes:
        counts: Replacements and removals by rule.
        num_lookups_left: Candidates that may still be looked up in the numbering plans; a request
            with more was made to cost time, and the rest is taken for phone numbers.
    """

    counts: Counter[str] = field(default_factory=Counter)
    num_lookups_left: int = MAX_LOOKUPS


@dataclass(frozen=True, slots=True)
class Finding:
    """A secret in a text: UTF-8 bytes from `start` to `end`, and the rule that found it."""

    rule: ValueRule
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Matcher:
    rule: ValueRule
    priority: int
    prefilter: Any
    pattern: Any
    secret_group: int
    check: Check | None


class Tokens:
    """Writes and recognises what stands in the place of a secret; without a key, masks."""

    def __init__(self, key: bytes | None, rule_names: Sequence[str]) -> None:
        self._key = key
        names = "|".join(sorted(rule_names, key=len, reverse=True))
        self._form = re.compile(rf"\[(?:{names})(?::[0-9a-f]{{{NUM_HASH_DIGITS}}})?\]".encode())

    def write(self, rule_name: str, action: Action, secret: bytes) -> bytes:
        """Return the token for a secret that was already normalised."""
        if action is Action.HASH and self._key is not None:
            message = rule_name.encode() + b"\0" + secret
            digest = hmac.digest(self._key, message, "sha256").hex()
            return f"[{rule_name}:{digest[:NUM_HASH_DIGITS]}]".encode()
        return f"[{rule_name}]".encode()

    def is_token(self, text: bytes) -> bool:
        """Whether the whole text is one token."""
        return self._form.fullmatch(text) is not None

    def split(self, text: bytes) -> list[tuple[int, bytes]]:
        """Return the parts between tokens, each with its offset."""
        parts, start = [], 0
        for match in self._form.finditer(text):
            parts.append((start, text[start : match.start()]))
            start = match.end()
        parts.append((start, text[start:]))
        return parts


class TextRedactor:
    """Applies value rules to texts."""

    def __init__(self, rules: Sequence[ValueRule], tokens: Tokens) -> None:
        self._tokens = tokens
        self._matchers = [_build(rule, priority) for priority, rule in enumerate(rules)]
        self.prefilter = "|".join(f"(?:{prefilter_of(rule)})" for rule in rules)
        self._prefilter = compile_bytes(self.prefilter) if rules else None
        self._prefilters = compile_set([prefilter_of(rule) for rule in rules])

    def may_match(self, text: bytes) -> bool:
        """Whether a rule could match: False is certain, True is not."""
        return self._prefilter is not None and self._prefilter.search(text) is not None

    def find(self, text: bytes, tally: Tally) -> list[Finding]:
        """Return the secrets in order; those that overlap are one, of the first rule's name."""
        found = [
            (offset + start, offset + end, matcher)
            for offset, part in self._tokens.split(text)
            if len(part) >= MIN_BYTES
            for matcher in self._candidates(part)
            for start, end in _match(matcher, part, tally)
        ]
        found.sort(key=lambda item: (item[0], item[2].priority))
        merged: list[tuple[int, int, _Matcher]] = []
        for start, end, matcher in found:
            if merged and start < merged[-1][1]:
                first_start, first_end, first = merged[-1]
                winner = min(first, matcher, key=lambda m: m.priority)
                merged[-1] = (first_start, max(first_end, end), winner)
            else:
                merged.append((start, end, matcher))
        return [Finding(matcher.rule, start, end) for start, end, matcher in merged]

    def redact(self, text: bytes, tally: Tally, *, may_drop: bool = True) -> bytes | None:
        """Return the text without its secrets, the same object if it has none.

        None if a rule demands that the whole value is dropped; where that cannot be done
        (`may_drop` is False), such a rule masks.
        """
        for round_index in range(MAX_ROUNDS):
            if round_index and not self.may_match(text):
                return text
            findings = self.find(text, tally)
            if not findings:
                return text
            tally.counts.update(finding.rule.name for finding in findings)
            if may_drop and any(finding.rule.action is Action.DROP for finding in findings):
                return None
            text = self._replace(text, findings)
        findings = self.find(text, tally)
        if not findings:
            return text
        tally.counts[findings[0].rule.name] += 1
        return self._tokens.write(findings[0].rule.name, Action.MASK, b"")

    def _candidates(self, part: bytes) -> Sequence[_Matcher]:
        """Return the matchers that could match, in their order: all where the search says none.

        None is also what it says when its automaton ran out of room.
        """
        indexes = self._prefilters.Match(part) if len(part) <= MAX_SHORT_BYTES else None
        return [self._matchers[index] for index in sorted(indexes)] if indexes else self._matchers

    def _replace(self, text: bytes, findings: Sequence[Finding]) -> bytes:
        pieces, position = [], 0
        for finding in findings:
            secret = normalise(text[finding.start : finding.end], finding.rule.normal)
            pieces.append(text[position : finding.start])
            pieces.append(self._tokens.write(finding.rule.name, finding.rule.action, secret))
            position = finding.end
        return b"".join((*pieces, text[position:]))


def normalise(secret: bytes, normal: Normal | None) -> bytes:
    """Return the form of a secret that is hashed."""
    if normal is Normal.ALNUM:
        return re.sub(rb"[^0-9A-Za-z]", b"", secret).upper()
    if normal is Normal.LOWER:
        return secret.lower()
    return secret


def prefilter_of(rule: ValueRule) -> str:
    """Return the pattern that finds every text in which the rule could match."""
    return rule.prefilter or without_anchors(rule.pattern)


def _build(rule: ValueRule, priority: int) -> _Matcher:
    check = PhoneCheck(rule.regions) if rule.check == PHONE_CHECK else CHECKS.get(rule.check or "")
    pattern = compile_bytes(rule.pattern)
    return _Matcher(
        rule=rule,
        priority=priority,
        prefilter=compile_bytes(prefilter_of(rule)),
        pattern=pattern,
        secret_group=dict(pattern.groupindex).get(b"secret", 0),
        check=check,
    )


def _match(matcher: _Matcher, part: bytes, tally: Tally) -> list[tuple[int, int]]:
    # The prefilter decides first here too: a rule sees the same in a text as in a whole request.
    if matcher.prefilter.search(part) is None:
        return []
    found: list[tuple[int, int]] = []
    for match in matcher.pattern.finditer(part):
        start, end = match.span(matcher.secret_group)
        spans: Iterable[tuple[int, int]] = [(start, end)]
        if isinstance(matcher.check, PhoneCheck):
            if tally.num_lookups_left > 0:
                tally.num_lookups_left -= 1
                spans = matcher.check(part, start, end)
        elif matcher.check is not None:
            spans = matcher.check(part, start, end)
        found.extend(_snap(part, *span) for span in spans)
    return [span for span in found if span[0] < span[1]]


def _snap(text: bytes, start: int, end: int) -> tuple[int, int]:
    """Widen a span to whole UTF-8 characters."""
    while 0 < start < len(text) and text[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(text) and text[end] & 0xC0 == 0x80:
        end += 1
    return start, end
