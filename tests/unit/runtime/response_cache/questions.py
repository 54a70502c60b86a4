"""Builds chat requests and questions for the tests of the cache."""

import json
from typing import Any

from evenkeel_runtime.response_cache.entry import CacheEntry
from evenkeel_runtime.response_cache.private_text import PrivateText
from evenkeel_runtime.response_cache.question import (
    Bypass,
    Question,
    Rendered,
    Sampling,
    read_question,
)
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from evenkeel_runtime.wire.caller import Caller

# Embeddings have all the time that a busy machine takes for them.
SERVING = CachePolicy(
    embedding_timeout_s=10, routes=(RoutePolicy(mode=HitMode.SERVE, similarities=(0.7,)),)
)
GREEDY = Sampling(temperature=0.0, values={"temperature": 0.0})


def read(
    text: str = "How do I return an item?",
    caller: Caller = Caller(tenant="acme"),  # noqa: B008
    sampling: Sampling = GREEDY,
    model: str = "weights",
    policy: CachePolicy = SERVING,
    rendered: Rendered | None = None,
    **body: Any,
) -> Question | Bypass:
    whole = {"model": "m", "messages": [{"role": "user", "content": text}]} | body
    asked = json.dumps(whole).encode()
    return read_question(asked, caller, sampling, model, policy, PrivateText(), rendered)


def question(text: str = "How do I return an item?", **more: Any) -> Question:
    result = read(text, **more)
    assert isinstance(result, Question), result
    return result


def entry(of: Question, text: str = "Send it back within 30 days.") -> CacheEntry:
    return CacheEntry(
        id=of.id,
        scope=of.scope,
        tenant=of.tenant,
        subjects=of.subjects,
        question=of.text,
        text=text,
        token_ids=(1, 2, 3),
        finish_reason="stop",
        stop_reason=None,
        generation_s=1.5,
        expires_at_s=0.0,
    )
