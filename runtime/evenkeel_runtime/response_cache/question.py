"""Parse a chat request: its identity, and whether it may be cached at all."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.embedding import MAX_TOKENS
from evenkeel.spans import (
    HEADER_ROUTE,
    HEADER_SESSION,
    HEADER_TENANT,
    HEADERS_SESSION_OTHERS,
)
from evenkeel_runtime.request.content import read_object
from evenkeel_runtime.response_cache.knowledge import find_knowledge
from evenkeel_runtime.response_cache.private_text import PrivateText
from evenkeel_runtime.response_cache.settings_file import (
    CachePolicy,
    HitMode,
    RoutePolicy,
    TimeToLive,
)
from evenkeel_runtime.wire.caller import Caller

# Fields that affect delivery or accounting of an answer, not its content.
_NOT_IN_KEY = frozenset(
    "stream stream_options stream_interval user safety_identifier request_id session_id priority "
    "metadata store service_tier prompt_cache_key messages".split()
)
# Whose answer it is, what deletes it, and which policy applies.
_NEEDED_HEADERS = frozenset((HEADER_TENANT, HEADER_SESSION, *HEADERS_SESSION_OTHERS, HEADER_ROUTE))
_TOOL_KEYS = ("tools", "functions", "function_call")
_TRANSFER_KEYS = ("kv_transfer_params", "ec_transfer_params", "mm_processor_kwargs")
_VOLATILE = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday|now|current|currently|latest|newest|recent|price|cost|"
    r"costs|cheap|sale|offer|discount|stock|available|availability|open|weather|news|score|rate|"
    r"this (?:week|month|year)|status)\b",
    re.IGNORECASE,
)
# MiniLM's input limit; a token is at least one character.
MAX_QUESTION_CHARS = 8 * MAX_TOKENS


@dataclass(frozen=True, slots=True)
class Sampling:
    """The sampling parameters of the engine, server defaults included.

    Attributes:
        temperature: 0 is greedy.
        values: Everything that affects the answer and does not depend on the prompt's length.
        num_sequences: `n`.
        wants_logprobs: Whether log-probabilities of the answer or prompt are requested.
        seed: None if not given.
    """

    temperature: float
    values: Mapping[str, Any]
    num_sequences: int = 1
    wants_logprobs: bool = False
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt as the engine receives it.

    Attributes:
        tokens: Its tokens.
        text: Its text; None if the model's chat format is made of tokens from the start.
    """

    tokens: Sequence[int]
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """A request that may be cached.

    Attributes:
        id: Hash of everything that identifies an identical request, the rendered prompt included.
        scope: The same hash without the last message.
        text: The last message.
        is_comparable: Whether its text may be compared with others: short enough, and allowed by
            its route.
        policy: The route's.
        ttl_s: How long its answer may live.
        tags: Tags to find its answer by, for deletion.
        route: Value of its route header; empty if none.
        prompt: Name and version of its prompt, if it names one.
        knowledge: `name@version` of each source of its answer.
    """

    id: str
    scope: str
    text: str
    is_comparable: bool
    tenant: str
    policy: RoutePolicy
    ttl_s: float
    subjects: tuple[str, ...]
    route: str = ""
    prompt: tuple[str, str] | None = None
    knowledge: tuple[str, ...] = ()

    @property
    def tags(self) -> list[str]:
        """Tags to find its answer by."""
        tags = [tenant_tag(self.tenant), *self.subjects]
        # The route's own name, and the one it goes by in the cache's file.
        tags += [route_tag(name) for name in sorted({self.route, self.policy.route}) if name]
        versioned = [("prompt", "@".join(self.prompt))] if self.prompt else []
        versioned += [("knowledge", item) for item in self.knowledge]
        for kind, item in versioned:
            tags += [source_tag(kind, item.rpartition("@")[0]), source_tag(kind, item)]
        return tags


@dataclass(frozen=True, slots=True)
class Bypass:
    """The request bypasses the cache: it is neither answered from it nor stored.

    Attributes:
        reason: Is counted.
        question: Finds answers to others that the model may verify as drafts; None if nothing may.
    """

    reason: str
    question: Question | None = None


def subject_tag(tenant: str, subject: str) -> str:
    """Return the hashed tag of an end user: the request's `user`, or the session header."""
    return f"subject-{_hash(['subject', tenant, subject])}"


def tenant_tag(tenant: str) -> str:
    """Return the hashed tag of a tenant."""
    return f"tenant-{_hash(['tenant', tenant])}"


def route_tag(route: str) -> str:
    """Return the hashed tag of a route, by its header or as in the cache's file."""
    return f"route-{_hash(['route', route])}"


def source_tag(kind: str, name: str) -> str:
    """Return the hashed tag of a `prompt` or of `knowledge`: `name`, or `name@version`."""
    return f"{kind}-{_hash([kind, name])}"


def read_question(
    body: bytes,
    caller: Caller,
    sampling: Sampling,
    model: str,
    policy: CachePolicy,
    private: PrivateText,
    rendered: Rendered | None = None,
) -> Question | Bypass:
    """Return the question of a chat request, or why it bypasses the cache.

    Args:
        body: The request's JSON.
        caller: The caller.
        sampling: The sampling parameters.
        model: Identifies the weights that answer, beyond the name the client uses.
        policy: The cache's.
        private: Judges texts.
        rendered: The prompt; None if no engine renders it.
    """
    route = policy.find_route(caller.route)
    asked = _read_asked(body, caller, sampling, route)
    if isinstance(asked, Bypass):
        return asked
    messages = _read_messages(asked["messages"], private)
    if isinstance(messages, Bypass):
        return messages
    knowledge = find_knowledge(route, caller)
    if knowledge is None:
        return Bypass("unknown_knowledge")

    *context, last = messages
    tenant = caller.tenant or ""
    prompt = None
    if caller.prompt_name is not None and caller.prompt_version is not None:
        prompt = (caller.prompt_name, caller.prompt_version)
    common = {
        "tenant": tenant,
        # Its lifetime and what deletes it depend on the route that stored it.
        "route": caller.route or "",
        "prompt": [caller.prompt_name, caller.prompt_version],
        "served": model,
        "sampling": dict(sampling.values),
        "body": {k: v for k, v in asked.items() if k not in _NOT_IN_KEY},
        "context": context,
        "last": {k: v for k, v in last.items() if k != "content"},
    }
    if knowledge:
        common["knowledge"] = knowledge
    frame = _find_frame(rendered, asked["messages"][-1]["content"])
    if frame is not None:
        common["frame"] = frame
    # Without a frame, the prompt itself takes its place.
    tokens = None if rendered is None or frame is not None else _hash_tokens(rendered.tokens)
    question = Question(
        id=_hash(["entry", common, last["content"], tokens]),
        scope=_hash(["scope", common]),
        text=last["content"],
        is_comparable=route.semantic
        and len(last["content"]) <= MAX_QUESTION_CHARS
        and (frame is not None or rendered is None or rendered.text is None),
        tenant=tenant,
        policy=route,
        ttl_s=_find_ttl(route, policy, last["content"]),
        subjects=_list_subjects(asked, caller),
        route=caller.route or "",
        prompt=prompt,
        knowledge=knowledge,
    )
    is_about_asker = private.is_any_about_asker(_list_user_lines(messages))
    return Bypass("about_asker", question) if is_about_asker else question


def _read_asked(
    body: bytes, caller: Caller, sampling: Sampling, route: RoutePolicy
) -> dict[str, Any] | Bypass:
    """Return the request's JSON, or why such a request bypasses the cache."""
    if not _NEEDED_HEADERS.isdisjoint(caller.unreadable):
        return Bypass("unreadable_header")
    if route.mode is HitMode.OFF:
        return Bypass("route_off")
    asked = read_object(body)
    if asked is None:
        return Bypass("unreadable")
    reason = _find_bypass(asked, sampling, route)
    return asked if reason is None else Bypass(reason)


def _read_messages(
    messages: list[dict[str, Any]], private: PrivateText
) -> list[dict[str, Any]] | Bypass:
    """Return the normalised messages, which end with a question, or why they bypass the cache."""
    normal = _normalise(messages)
    if normal is None:
        return Bypass("not_text")
    last = normal[-1]
    if last["role"] != "user" or not isinstance(last["content"], str) or not last["content"]:
        return Bypass("no_question")
    everything = "\n".join(str(message["content"]) for message in normal)
    if private.find_personal(everything) is not None:
        return Bypass("personal_data")
    return normal


def _list_user_lines(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    said = (str(message["content"]) for message in messages if message["role"] == "user")
    return [line for text in said for line in text.split("\n")]


def _list_subjects(asked: dict[str, Any], caller: Caller) -> tuple[str, ...]:
    persons = (asked.get("user"), asked.get("safety_identifier"), caller.session_id)
    tenant = caller.tenant or ""
    return tuple(sorted({subject_tag(tenant, each) for each in persons if isinstance(each, str)}))


def _find_bypass(asked: dict[str, Any], sampling: Sampling, route: RoutePolicy) -> str | None:
    if any(asked.get(key) for key in _TOOL_KEYS) or asked.get("tool_choice") not in (None, "none"):
        return "tools"
    if sampling.num_sequences != 1 or asked.get("use_beam_search"):
        return "several_answers"
    if sampling.wants_logprobs:
        return "logprobs"
    if any(asked.get(key) for key in _TRANSFER_KEYS):
        return "transfer"
    if sampling.seed is None and sampling.temperature > route.max_temperature:
        return "sampled"
    if not isinstance(asked.get("messages"), list) or not asked["messages"]:
        return "no_question"
    for message in asked["messages"]:
        if not isinstance(message, dict):
            return "unreadable"
        if message.get("role") in ("tool", "function") or message.get("tool_calls"):
            return "tools"
    return None


def _normalise(messages: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the messages with normalised texts; None if one has non-text content."""
    result = []
    for message in messages:
        content = message.get("content")
        if isinstance(content, list):
            parts = [p.get("text") if _is_text(p) else None for p in content]
            if not all(isinstance(part, str) for part in parts):
                return None
            # vLLM's templates join text parts with line breaks.
            content = "\n".join(map(str, parts))
        if not isinstance(content, str) or not isinstance(message.get("role"), str):
            return None
        result.append({**message, "content": normalise_text(content)})
    return result


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text"


def normalise_text(text: str) -> str:
    """Return a text with normalised characters and line ends, stripped of outer whitespace."""
    lines = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip()


def _find_frame(rendered: Rendered | None, content: str | list[dict[str, Any]]) -> str | None:
    """Return a hash of the prompt around the last message; None if it cannot be found in there.

    The frame holds what the request does not name: the template, its defaults, the date.
    """
    if rendered is None or rendered.text is None:
        return None
    question = content if isinstance(content, str) else "\n".join(p["text"] for p in content)
    for text in (question, question.strip()):
        before, found, after = rendered.text.rpartition(text)
        if found:
            # Prompts are long: hash their bytes, not their JSON.
            parts = (part.encode("utf-8", "surrogatepass") for part in (before, after))
            return "".join(hashlib.sha256(part).hexdigest() for part in parts)
    return None


def _hash_tokens(tokens: Sequence[int]) -> str:
    return hashlib.sha256(array("q", tokens).tobytes()).hexdigest()


def _find_ttl(route: RoutePolicy, policy: CachePolicy, text: str) -> float:
    is_dynamic = route.ttl is TimeToLive.DYNAMIC or (
        route.ttl is TimeToLive.AUTO and _VOLATILE.search(text) is not None
    )
    return policy.dynamic_ttl_s if is_dynamic else policy.static_ttl_s


def _hash(value: Any) -> str:
    packed = json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(packed.encode("utf-8", "surrogatepass")).hexdigest()[:40]
