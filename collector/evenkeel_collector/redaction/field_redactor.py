"""Removes secrets, prompts and answers from traces and logs before they are written anywhere.

    redactor = Redactor(load_rules(path), settings.hash_key, settings.content_tenants)
    redacted = redactor.redact(message, tenant)   # changes the message in place
    log.append(redacted.payload)                  # the redacted message, encoded

Most requests contain nothing to redact. They cost one RE2 search over the encoded request, which is
needed anyway; only the parts that this search hit are checked attribute by attribute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import SecretStr

from evenkeel import conventions, spans
from evenkeel.errors import ConfigurationError
from evenkeel.privacy.cpu_budget import CpuBudget
from evenkeel.privacy.rules import Action, compile_bytes
from evenkeel.privacy.text_redactor import (
    MIN_BYTES,
    OVER_BUDGET,
    RedactionTally,
    TextRedactor,
    Tokens,
)
from evenkeel_collector.redaction.answer_id import ANSWER, keep_id
from evenkeel_collector.redaction.field_rules import CONTENT, KeyRule, Rules
from evenkeel_collector.redaction.frames import (
    TRACES,
    Shape,
    SpanPath,
    UnframedError,
    every_place,
    locate,
)
from evenkeel_collector.redaction.patterns import any_of, is_in, prefilter_of
from evenkeel_collector.redaction.repeated_fields import remove

EVERY_TENANT = "*"
MIN_KEY_BYTES = 16
# Attribute names are few; a sender with unlimited names must not fill the memory.
MAX_KNOWN_NAMES = 4096
MAX_KNOWN_NAME_LENGTH = 128
# Values nested deeper than protobuf can parse (100 messages, two per level) are dropped: they
# cannot be checked for secrets.
MAX_DEPTH = 64
TOO_DEEP = "too_deep"
# A request with more hits is crafted to be slow; each of its parts is checked instead.
MAX_RANGES = 1 << 16


@dataclass(frozen=True, slots=True)
class Redacted:
    """A request after redaction: its protobuf encoding, and replacements or removals per rule."""

    payload: bytes
    counts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Name:
    """What an attribute's name implies for its redaction."""

    text: str  # the name itself, without any secret in it
    rule: KeyRule | None
    is_content: bool
    is_agent_content: bool  # only in an agent's log event
    is_dropped: bool


@dataclass(slots=True)
class _Pass:
    """The redaction of one request, with the state of the current part."""

    tenant: str | None
    tally: RedactionTally
    shape: Shape
    is_by_agent: bool = False
    stores_content: bool = False
    has_secrets: bool = False  # False: no value rule matches anywhere in the part
    depth: int = 0


class Redactor:
    """Applies rules to requests with spans or log records; thread-safe.

    Attributes:
        rule_names: Every possible key of `Redacted.counts`.
        prefilter: The pattern that matches every encoded request in which a rule could match.

    Args:
        rules: From `load_rules`.
        hash_key: HMAC key for the action `hash`; without it, such rules mask instead.
        content_tenants: Tenants whose prompts and answers are stored; `*` for all.
        clock: CPU seconds of the calling thread, for the budget.

    Raises:
        ConfigurationError: If the key is too short, or a region of a rule is unknown.
    """

    def __init__(
        self,
        rules: Rules,
        hash_key: SecretStr | None,
        content_tenants: Collection[str] = (),
        clock: Callable[[], float] = time.thread_time,
    ) -> None:
        key = hash_key.get_secret_value().encode() if hash_key is not None else None
        if key is not None and len(key) < MIN_KEY_BYTES:
            raise ConfigurationError(
                f"redaction.hash_key has {len(key)} bytes, expected at least {MIN_KEY_BYTES}; "
                "make one with: openssl rand -hex 32"
            )
        self._rules = rules
        self._content_tenants = frozenset(content_tenants)
        self._clock = clock
        rule_names = [*(rule.name for rule in rules.keys), *(rule.name for rule in rules.values)]
        self.rule_names = (CONTENT, TOO_DEEP, OVER_BUDGET, *rule_names)
        self._tokens = Tokens(key, rule_names)
        self._text = TextRedactor(rules.values, self._tokens)
        self._key_patterns = [(rule, any_of(rule.names)) for rule in rules.keys]
        self._content = any_of(rules.content.names)
        self._exceptions = any_of(rules.content.exceptions)
        self._content_events = any_of(rules.content.events)
        self._agents = any_of(rules.content.agents)
        self._agent_content = any_of(rules.content.agent_names)
        self.prefilter = prefilter_of(rules, self._text.prefilter)
        self._prefilter = compile_bytes(self.prefilter)
        self._names: dict[str, _Name] = {}

    def may_match(self, payload: bytes) -> bool:
        """Whether a rule could match in encoded attributes; False is definite."""
        return self._prefilter.search(payload) is not None

    def redact(
        self,
        message: Any,
        tenant: str | None = None,
        *,
        shape: Shape = TRACES,
        is_hasty: bool = False,
    ) -> Redacted:
        """Redact an export request in place and return its encoding.

        Idempotent. Spans, events that are not content, links, order, ids, times and numbers stay.
        Fields unknown to the message's schema are removed from the parts that are checked. Never
        raises because of a rule's match.

        Args:
            message: The request, of any class with OTLP's fields.
            tenant: The tenant that the sender proved with a token; `evenkeel.tenant` is then
                ignored. None: each span's `evenkeel.tenant`, or else its resource's, decides
                whether its content is stored.
            shape: Which signal it is.
            is_hasty: Whether to give up early instead of withholding parts that take too long.

        Raises:
            EncodeError: If protobuf cannot encode the message; it is then unchanged.
            OverBudgetError: If a hasty redaction takes too long; discard the message.
        """
        payload: bytes = message.SerializeToString()
        ranges = [m.span() for m in islice(self._prefilter.finditer(payload), MAX_RANGES)]
        if not ranges:
            return Redacted(payload, {})
        budget = CpuBudget(len(payload), self._clock, is_hasty=is_hasty)
        state = _Pass(tenant, RedactionTally(budget=budget), shape)
        num_bytes_removed = 0
        places: Iterable[SpanPath]
        try:
            if len(ranges) == MAX_RANGES:
                raise UnframedError("too many hits")
            places = list(locate(payload, ranges, shape))
        except UnframedError:
            num_bytes_removed = _discard_unknown(message)
            places = every_place(message, shape)
        for place in places:
            num_bytes_removed += self._redact_place(message, place, state)
        if not state.tally.counts and not num_bytes_removed:
            return Redacted(payload, {})
        return Redacted(message.SerializeToString(), state.tally.counts)

    def _redact_place(self, message: Any, place: SpanPath, state: _Pass) -> int:
        """Redact one part and return the number of bytes of unknown fields removed."""
        shape = state.shape
        of_resource = getattr(message, shape.resources)[place.resource]
        resource = of_resource.resource
        if place.scope is None:
            self._enter(of_resource, state, resource.attributes)
            self._redact_attributes(resource.attributes, state)
            self._redact_field(of_resource, "schema_url", state)
            size: int = of_resource.ByteSize()
            resource.ClearField("entity_refs")  # names of attributes, which nothing reads
            return size - int(of_resource.ByteSize()) + _discard_unknown(of_resource)
        of_scope = getattr(of_resource, shape.scopes)[place.scope]
        if place.span is None:
            self._enter(of_scope, state, resource.attributes)
            self._redact_attributes(of_scope.scope.attributes, state)
            self._redact_field(of_scope.scope, "name", state)
            self._redact_field(of_scope.scope, "version", state)
            self._redact_field(of_scope, "schema_url", state)
            return _discard_unknown(of_scope)
        record = getattr(of_scope, shape.records)[place.span]
        has_own_rules = shape is not TRACES and self._is_special(record)
        if place.attributes is not None and not has_own_rules:
            return self._redact_some(record, place.attributes, state, resource.attributes)
        self._enter(record, state, record.attributes, resource.attributes)
        if shape is TRACES:
            self._redact_span(record, state)
        else:
            self._redact_log_record(record, state)
        return _discard_unknown(record)

    def _redact_some(
        self, span: Any, indexes: Sequence[int], state: _Pass, resource_attributes: Any
    ) -> int:
        """Redact some attributes of a span; returns the same as `_redact_place`."""
        attributes = span.attributes
        state.has_secrets = True
        state.stores_content = self._stores_content(state.tenant, attributes, resource_attributes)
        removed = [index for index in indexes if self._drops(attributes[index], state)]
        num_bytes = sum(_discard_unknown(attributes[index]) for index in indexes)
        remove(attributes, removed)
        return num_bytes

    def _enter(self, part: Any, state: _Pass, *tenant_attributes: Any) -> None:
        state.has_secrets = self._text.may_match(part.SerializeToString())
        state.stores_content = self._stores_content(state.tenant, *tenant_attributes)

    def _redact_span(self, span: Any, state: _Pass) -> None:
        self._redact_attributes(span.attributes, state)
        self._redact_field(span, "name", state)
        if span.HasField("status"):
            self._redact_field(span.status, "message", state)
        for link in span.links:
            self._redact_attributes(link.attributes, state)
        if not span.events:
            return
        removed = []
        for index, event in enumerate(span.events):
            name = event.name.encode()
            if not state.stores_content and is_in(self._content_events, name):
                state.tally.counts[CONTENT] += 1
                # When something was said is no content.
                if not is_in(self._exceptions, name):
                    removed.append(index)
                    continue
                del event.attributes[:]
            self._redact_attributes(event.attributes, state)
            self._redact_field(event, "name", state)
        remove(span.events, removed)

    def _is_special(self, record: Any) -> bool:
        """Whether a log record is an event whose content is not told by attributes' names alone."""
        return any(
            is_in(self._agents, name) or is_in(self._content_events, name)
            for name in map(str.encode, _event_names(record))
        )

    def _redact_log_record(self, record: Any, state: _Pass) -> None:
        names = [name.encode() for name in _event_names(record)]
        state.is_by_agent = any(is_in(self._agents, name) for name in names)
        self._redact_attributes(record.attributes, state)
        state.is_by_agent = False
        if not state.stores_content and any(is_in(self._content_events, name) for name in names):
            state.tally.counts[CONTENT] += record.HasField("body")
            record.ClearField("body")
        elif self._drops_value(record.body, state):
            record.ClearField("body")
        self._redact_field(record, "event_name", state)
        self._redact_field(record, "severity_text", state)

    def _redact_field(self, holder: Any, name: str, state: _Pass) -> None:
        """Redact a text that is not an attribute and cannot be dropped."""
        text = getattr(holder, name).encode() if state.has_secrets else b""
        if len(text) < MIN_BYTES or not self._text.may_match(text):
            return
        redacted = self._text.redact(text, state.tally, may_drop=False)
        if redacted is not None and redacted is not text:
            setattr(holder, name, redacted.decode())

    def _redact_attributes(self, attributes: Any, state: _Pass) -> None:
        removed = [i for i, pair in enumerate(attributes) if self._drops(pair, state)]
        remove(attributes, removed)

    def _drops(self, pair: Any, state: _Pass) -> bool:
        """Redact one attribute; True if it must be removed."""
        known = self._names.get(pair.key) or self._learn(pair.key, state)
        if known.is_dropped:
            return True
        is_content = known.is_content or (known.is_agent_content and state.is_by_agent)
        if is_content and not state.stores_content:
            state.tally.counts[CONTENT] += 1
            return pair.key != ANSWER or not keep_id(pair)
        if known.text != pair.key:
            pair.key = known.text
        if known.rule is not None:
            return self._apply(known.rule, pair.value, state)
        return self._drops_value(pair.value, state)

    def _learn(self, key: str, state: _Pass) -> _Name:
        name = key.encode()
        redacted = self._text.redact(name, state.tally) if self._text.may_match(name) else name
        text = name if redacted is None else redacted
        known = _Name(
            text=text.decode(),
            rule=next((r for r, p in self._key_patterns if p.fullmatch(text)), None),
            is_content=is_in(self._content, name) and not is_in(self._exceptions, name),
            is_agent_content=is_in(self._agent_content, name),
            is_dropped=redacted is None,
        )
        if redacted is name and len(key) <= MAX_KNOWN_NAME_LENGTH:
            if len(self._names) >= MAX_KNOWN_NAMES:
                self._names.clear()
            self._names[key] = known
        return known

    def _apply(self, rule: KeyRule, value: Any, state: _Pass) -> bool:
        kind = value.WhichOneof("value")
        if kind is None:
            return False
        if kind == "string_value":
            secret = value.string_value.encode()
            if not secret or self._tokens.is_token(secret):
                return False
        else:
            secret = value.SerializeToString(deterministic=True)
        state.tally.counts[rule.name] += 1
        if rule.action is Action.DROP:
            return True
        value.string_value = self._tokens.write(rule.name, rule.action, secret).decode()
        return False

    def _drops_value(self, value: Any, state: _Pass) -> bool:
        kind = value.WhichOneof("value")
        if kind == "string_value":
            text = value.string_value.encode() if state.has_secrets else b""
            if len(text) < MIN_BYTES or not self._text.may_match(text):
                return False
            redacted = self._text.redact(text, state.tally)
            if redacted is not None and redacted is not text:
                value.string_value = redacted.decode()
            return redacted is None
        if kind == "array_value" or kind == "kvlist_value":
            return self._drops_nested(value, state)
        if kind == "bytes_value" and state.has_secrets:
            binary = value.bytes_value
            redacted = self._text.redact(binary, state.tally)
            if redacted is not None and redacted is not binary:
                value.bytes_value = redacted
            return redacted is None
        return False

    def _drops_nested(self, value: Any, state: _Pass) -> bool:
        if state.depth == MAX_DEPTH:
            state.tally.counts[TOO_DEEP] += 1
            return True
        state.depth += 1
        is_dropped = False
        if value.HasField("kvlist_value"):
            self._redact_attributes(value.kvlist_value.values, state)
        else:
            state.tally.budget.visit(len(value.array_value.values))
            # A rule that drops removes the whole attribute: arrays never get shorter.
            for element in value.array_value.values:
                is_dropped |= self._drops_value(element, state)
        state.depth -= 1
        return is_dropped

    def _stores_content(self, tenant: str | None, *holders: Any) -> bool:
        if not self._content_tenants:
            return False
        if EVERY_TENANT in self._content_tenants:
            return True
        for attributes in holders if tenant is None else ():
            for pair in attributes:
                if pair.key == spans.TENANT:
                    return pair.value.string_value in self._content_tenants
        return tenant in self._content_tenants


def _event_names(record: Any) -> Iterator[str]:
    """Yield what may be the name of a log record's event: senders write it in four places."""
    yield record.event_name
    yield record.body.string_value
    for pair in record.attributes:
        # LiteLLM writes it with an underscore.
        if pair.key in (conventions.EVENT_NAME, "event_name"):
            yield pair.value.string_value


def _discard_unknown(message: Any) -> int:
    before: int = message.ByteSize()
    message.DiscardUnknownFields()
    return before - int(message.ByteSize())
