"""Finds secrets in a text by their form and replaces them with opaque tokens.

A text is searched as sent and after removing each layer of escapes (privacy/disguise.py); matches
in decoded layers are replaced in the text as sent.

A token is `[rule]`, or `[rule:1a2b3c4d5e6f]` if the rule hashes: the first 48 bits of
HMAC-SHA256(key, rule, normalised secret), so that the same e-mail address can be counted and
followed without being revealed. Tokens are never searched again, and a text is searched until
nothing is found: redacting twice changes nothing. A text that exceeds its budget is replaced as a
whole with `[over_budget]`.
"""

from __future__ import annotations

import hmac
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from evenkeel.privacy.checks import CHECKS, Check
from evenkeel.privacy.cpu_budget import CpuBudget, OverBudgetError
from evenkeel.privacy.disguise import DISGUISED, views
from evenkeel.privacy.phone import PhoneCheck
from evenkeel.privacy.rules import (
    PHONE_CHECK,
    Action,
    Normal,
    RuleKind,
    ValueRule,
    built_in_rules,
    compile_bytes,
    compile_set,
    without_anchors,
)

NUM_HASH_DIGITS = 12
# Replacing a secret may expose another one. A text that is still not clean after this many rounds
# was crafted to cost time, and is replaced as a whole.
MAX_ROUNDS = 8
# The shortest text that a rule could match; a user's rule may match anything.
MIN_BYTES = 5
OVER_BUDGET = "over_budget"
# Searching 1 KiB for all rules takes a few microseconds.
BYTES_PER_UNIT = 1024


@dataclass(slots=True)
class RedactionTally:
    """The state of one request's redaction: replacements so far and the budget left.

    Attributes:
        counts: Replacements and removals per rule.
        budget: The CPU that is left.
    """

    counts: Counter[str] = field(default_factory=Counter)
    budget: CpuBudget = field(default_factory=CpuBudget)


@dataclass(frozen=True, slots=True)
class SecretMatch:
    """A secret in a text.

    Attributes:
        rule: The rule that matched.
        start: Its start in the text, in UTF-8 bytes.
        end: Its end.
        secret: The secret, without the escapes it was sent with.
    """

    rule: ValueRule
    start: int
    end: int
    secret: bytes


@dataclass(frozen=True, slots=True)
class _Matcher:
    rule: ValueRule
    priority: int
    prefilter: Any
    pattern: Any
    secret_group: int
    check: Check | None


class _Hit(NamedTuple):
    """A match of one rule. Sorted by start, then by the rule that names it."""

    start: int
    priority: int
    height: int  # 0 in the text as sent, one less per decoded layer
    end: int
    secret: bytes
    rule: ValueRule


class Tokens:
    """Writes and recognises the tokens that replace secrets; masks if it has no key."""

    def __init__(self, key: bytes | None, rule_names: Sequence[str]) -> None:
        self._key = key
        names = "|".join(sorted((*rule_names, OVER_BUDGET), key=len, reverse=True))
        self._form = re.compile(rf"\[(?:{names})(?::[0-9a-f]{{{NUM_HASH_DIGITS}}})?\]".encode())

    def write(self, rule_name: str, action: Action, secret: bytes) -> bytes:
        """Return the token for a normalised secret."""
        if action is Action.HASH and self._key is not None:
            message = rule_name.encode() + b"\0" + secret
            digest = hmac.digest(self._key, message, "sha256").hex()
            return f"[{rule_name}:{digest[:NUM_HASH_DIGITS]}]".encode()
        return f"[{rule_name}]".encode()

    def is_token(self, text: bytes) -> bool:
        """Return whether the whole text is one token."""
        return self._form.fullmatch(text) is not None

    def first(self, text: bytes) -> str | None:
        """Return the first token in a text; None if it has none."""
        match = self._form.search(text)
        return None if match is None else match[0].decode()

    def split(self, text: bytes) -> list[tuple[int, bytes]]:
        """Return the parts between tokens, each with its offset."""
        parts, start = [], 0
        for match in self._form.finditer(text):
            parts.append((start, text[start : match.start()]))
            start = match.end()
        parts.append((start, text[start:]))
        return parts


class TextRedactor:
    """Applies value rules to texts; safe to share between threads."""

    def __init__(self, rules: Sequence[ValueRule], tokens: Tokens) -> None:
        self._tokens = tokens
        self._matchers = [_build(rule, priority) for priority, rule in enumerate(rules)]
        prefilters = [prefilter_of(rule) for rule in rules]
        if rules:
            prefilters.append(DISGUISED)
        # Case-insensitive: half the letters means half the automaton's states; the automaton also
        # scans random IDs. False hits only cost a closer look.
        self.prefilter = f"(?i:{'|'.join(f'(?:{prefilter})' for prefilter in prefilters)})"
        self._prefilter = compile_bytes(self.prefilter) if rules else None
        self._prefilters = compile_set(prefilters)

    def may_match(self, text: bytes) -> bool:
        """Return whether a rule could match: False is certain, True is not."""
        return self._prefilter is not None and self._prefilter.search(text) is not None

    def find(self, text: bytes, tally: RedactionTally) -> list[SecretMatch]:
        """Return the secrets in order; overlapping ones are merged under the first rule's name.

        Raises:
            OverBudgetError: If it takes too long. The caller must have started the text's budget.
        """
        hits: list[_Hit] = []
        for offset, part in self._tokens.split(text):
            if len(part) >= MIN_BYTES:
                hits += self._hits(part, offset, tally.budget)
        hits.sort(key=_place)
        merged: list[SecretMatch] = []
        winner: _Hit | None = None
        for hit in hits:
            if winner is not None and hit.start < merged[-1].end:
                winner = min(winner, hit, key=_rank)
                start, end = merged[-1].start, max(merged[-1].end, hit.end)
                merged[-1] = SecretMatch(winner.rule, start, end, winner.secret)
            else:
                winner = hit
                merged.append(SecretMatch(hit.rule, hit.start, hit.end, hit.secret))
        return merged

    def redact(self, text: bytes, tally: RedactionTally, *, may_drop: bool = True) -> bytes | None:
        """Return the text without its secrets, the same object if it has none.

        None if a rule drops the whole value; if that is not possible (`may_drop` is False), such
        a rule masks.

        Raises:
            OverBudgetError: If it takes too long and the budget is hasty; otherwise
                `[over_budget]` replaces the whole text.
        """
        try:
            tally.budget.begin(len(text))
            return self._redact(text, tally, may_drop)
        except OverBudgetError:
            if tally.budget.is_hasty:
                raise
            tally.counts[OVER_BUDGET] += 1
            return self._tokens.write(OVER_BUDGET, Action.MASK, b"")

    def _redact(self, text: bytes, tally: RedactionTally, may_drop: bool) -> bytes | None:
        for round_index in range(MAX_ROUNDS):
            if round_index and not self.may_match(text):
                return text
            findings = self.find(text, tally)
            if not findings:
                return text
            for finding in findings:
                tally.counts[finding.rule.name] += 1
            if may_drop and any(finding.rule.action is Action.DROP for finding in findings):
                return None
            text = self._replace(text, findings)
        findings = self.find(text, tally)
        if not findings:
            return text
        tally.counts[findings[0].rule.name] += 1
        return self._tokens.write(findings[0].rule.name, Action.MASK, b"")

    def _hits(self, part: bytes, offset: int, budget: CpuBudget) -> Iterator[_Hit]:
        """Yield the matches in a part of a text and in each decoded layer."""
        candidates = self._candidates(part, budget) if self._matchers else None
        if candidates is None:
            # A search of the whole request for rules and escapes would find no more.
            return
        for view in views(part, budget):
            if view.text is not part:
                candidates = self._candidates(view.text, budget)
            for matcher in candidates or ():
                for found in _match(matcher, view.text, budget):
                    start, end = view.locate(*found)
                    yield _Hit(
                        start + offset,
                        matcher.priority,
                        -len(view.above),
                        end + offset,
                        view.text[found[0] : found[1]],
                        matcher.rule,
                    )

    def _candidates(self, text: bytes, budget: CpuBudget) -> Sequence[_Matcher] | None:
        """Return the matchers whose prefilter hits, in order; None if no escape hits either.

        A rule finds the same in a text as in a whole request, where the prefilter runs first.
        """
        budget.spend(1 + len(text) // BYTES_PER_UNIT)
        indexes = self._prefilters.Match(text)
        if indexes:
            return [self._matchers[i] for i in sorted(indexes) if i < len(self._matchers)]
        # The set also finds nothing if its automaton ran out of memory.
        if not self.may_match(text):
            return None
        return [matcher for matcher in self._matchers if matcher.prefilter.search(text)]

    def _replace(self, text: bytes, findings: Sequence[SecretMatch]) -> bytes:
        pieces, position = [], 0
        for finding in findings:
            secret = normalise(finding.secret, finding.rule.normal)
            pieces.append(text[position : finding.start])
            pieces.append(self._tokens.write(finding.rule.name, finding.rule.action, secret))
            position = finding.end
        return b"".join((*pieces, text[position:]))


def _place(hit: _Hit) -> tuple[int, int, int]:
    return hit[:3]


def _rank(hit: _Hit) -> tuple[int, int]:
    return hit[1:3]


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


def _match(matcher: _Matcher, part: bytes, budget: CpuBudget) -> Iterator[tuple[int, int]]:
    covered = 0
    for match in matcher.pattern.finditer(part):
        budget.spend()
        first, last = match.span(matcher.secret_group)
        if first < 0:  # an alternative of the pattern without the group
            first, last = match.span()
        if first < covered:  # a check may extend a match
            continue
        spans: Iterable[tuple[int, int]] = [(first, last)]
        if matcher.check is not None:
            spans = matcher.check(part, first, last, budget)
        for start, end in spans:
            if start < end:
                covered = end
                yield _snap(part, start, end)


def _snap(text: bytes, start: int, end: int) -> tuple[int, int]:
    """Return a span widened to whole UTF-8 characters."""
    while 0 < start < len(text) and text[start] & 0xC0 == 0x80:
        start -= 1
    while end < len(text) and text[end] & 0xC0 == 0x80:
        end += 1
    return start, end


@cache
def built_in(*, kind: RuleKind | None = None, broad: bool = False) -> TextRedactor:
    """Return a redactor with the built-in rules and no key: it masks.

    Args:
        kind: What to search for; None for everything.
        broad: Whether to include rules that are too broad for replacing their matches.
    """
    rules = [
        rule
        for rule in built_in_rules()
        if (rule.enabled or broad) and (kind is None or rule.kind is kind)
    ]
    return TextRedactor(rules, Tokens(None, [rule.name for rule in rules]))
