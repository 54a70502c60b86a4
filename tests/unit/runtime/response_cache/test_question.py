"""What makes two chat requests the same, and which are none for the cache."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from evenkeel_runtime.request.headers import read_headers
from evenkeel_runtime.response_cache.private_text import PrivateText
from evenkeel_runtime.response_cache.question import (
    Bypass,
    Question,
    Rendered,
    Sampling,
    read_question,
    subject_tag,
)
from evenkeel_runtime.response_cache.settings_file import (
    CachePolicy,
    HitMode,
    RoutePolicy,
    TimeToLive,
)
from evenkeel_runtime.wire.caller import Caller
from tests.unit.runtime.response_cache.questions import GREEDY, SERVING, question, read

SYSTEM = {"role": "system", "content": "Be brief."}
ASKED = {"role": "user", "content": "How do I return an item?"}

SAME: dict[str, dict[str, Any]] = {
    "streamed or not": {"stream": True, "stream_options": {"include_usage": True}},
    "another user": {"user": "ann"},
    "its own id": {"request_id": "17"},
    "space around it": {"text": "\n How do I return an item?  \r\n"},
    "text in parts": {
        "messages": [{"role": "user", "content": [{"type": "text", "text": ASKED["content"]}]}]
    },
}
OTHER: dict[str, dict[str, Any]] = {
    "another question": {"text": "How do I return two items?"},
    "a system prompt": {"messages": [SYSTEM, ASKED]},
    "another tenant": {"caller": Caller(tenant="other")},
    "another prompt version": {
        "caller": Caller(tenant="acme", prompt_name="p", prompt_version="2")
    },
    "another route": {"caller": Caller(tenant="acme", route="faq")},
    "another length": {"max_tokens": 7},
    "another sampling": {"sampling": replace(GREEDY, values={"temperature": 0.0, "top_k": 3})},
    "other weights": {"model": "other weights"},
    "a field of its own": {"extra": 1},
    "another form of answer": {"response_format": {"type": "json_object"}},
    "another salt": {"cache_salt": "s"},
}
BYPASSED: dict[str, tuple[str, dict[str, Any]]] = {
    "tools": ("tools", {"tools": [{"type": "function"}]}),
    "a tool's answer": ("tools", {"messages": [{"role": "tool", "content": "4"}, ASKED]}),
    "a call of a tool": (
        "tools",
        {"messages": [{"role": "assistant", "content": "", "tool_calls": [{}]}, ASKED]},
    ),
    "two answers": ("several_answers", {"sampling": replace(GREEDY, num_sequences=2)}),
    "a beam search": ("several_answers", {"use_beam_search": True}),
    "log probabilities": ("logprobs", {"sampling": replace(GREEDY, wants_logprobs=True)}),
    "hot sampling": ("sampled", {"sampling": Sampling(0.7, {})}),
    "a picture": (
        "not_text",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
    ),
    "no message": ("no_question", {"messages": []}),
    "an answer to go on with": (
        "no_question",
        {"messages": [ASKED, {"role": "assistant", "content": "You"}]},
    ),
    "no object among the messages": ("unreadable", {"messages": ["hi"]}),
    "personal data": ("personal_data", {"text": "Write to ann@example.org"}),
    "personal data before": (
        "personal_data",
        {"messages": [{"role": "system", "content": "Customer ann@example.org"}, ASKED]},
    ),
    "a question about its asker": ("about_asker", {"text": "Where is my order?"}),
    "a cache moved elsewhere": ("transfer", {"kv_transfer_params": {"a": 1}}),
    "a tenant in Latin-1": (
        "unreadable_header",
        {"caller": read_headers([(b"x-evenkeel-tenant", "Zürich".encode("latin-1"))])},
    ),
    "an endless session": (
        "unreadable_header",
        {"caller": read_headers([(b"x-evenkeel-session", b"s" * 300)])},
    ),
    "a session of another's header": (
        "unreadable_header",
        {"caller": read_headers([(b"x-session-id", b"\xe9")])},
    ),
    "a route with a control character": (
        "unreadable_header",
        {"caller": read_headers([(b"x-evenkeel-route", b"secret\x01")])},
    ),
}


@pytest.mark.parametrize("case", SAME)
def test_the_same_question_has_the_same_id(case: str) -> None:
    assert question(**SAME[case]).id == question().id


@pytest.mark.parametrize("case", OTHER)
def test_what_may_change_the_answer_changes_the_id(case: str) -> None:
    assert question(**OTHER[case]).id != question().id


def test_only_the_last_message_differs_within_a_scope() -> None:
    assert question("Do you have lamps?").scope == question().scope
    for case in set(OTHER) - {"another question"}:
        assert question(**OTHER[case]).scope != question().scope, case


@pytest.mark.parametrize("case", BYPASSED)
def test_it_is_none_for_the_cache(case: str) -> None:
    reason, request = BYPASSED[case]
    found = read(**request)
    assert isinstance(found, Bypass)
    assert found.reason == reason
    # The model may verify answers to others as its own, but only where the text is no secret.
    assert (found.question is not None) == (reason == "about_asker")


def test_a_repeat_of_an_evaluation_is_asked_again() -> None:
    # Both have the run's own cache_salt, and would be answered from the cache.
    assert read(caller=Caller(route="eval"), cache_salt="run-A") == Bypass("route_off")


def test_a_seed_makes_hot_sampling_cacheable() -> None:
    assert question(sampling=Sampling(0.7, {}, seed=3))


@pytest.mark.parametrize("body", [b"", b"[1]", b'{"messages": [', b"\xff", b"[" * 100_000])
def test_what_is_no_object_is_unreadable(body: bytes) -> None:
    found = read_question(body, Caller(), GREEDY, "w", SERVING, PrivateText())
    assert found == Bypass("unreadable")


def rendered(text: str, day: str = "1 May", tokens: Sequence[int] = (1, 2)) -> Rendered:
    return Rendered(tokens, f"System: today is {day}.\nUser: {text}\nAssistant:")


ASKS = ASKED["content"]
AROUND = question(rendered=rendered(ASKS))


@pytest.mark.parametrize("shown", [f"\n {ASKS}  \r\n", ASKS], ids=["as sent", "trimmed"])
def test_space_around_the_last_message_does_not_matter(shown: str) -> None:
    asked = question(f"\n {ASKS}  \r\n", rendered=rendered(shown, tokens=(1, 2, 3)))
    assert (asked.id, asked.scope) == (AROUND.id, AROUND.scope)


def test_only_the_question_differs_in_a_scope() -> None:
    text = "Do you have lamps?"
    asked = question(text, rendered=rendered(text))
    assert asked.scope == AROUND.scope and asked.is_comparable


def test_another_day_or_template_is_another_question() -> None:
    for other in (rendered(ASKS, "2 May"), Rendered((1, 2), f"<user>{ASKS}</user>")):
        asked = question(rendered=other)
        assert asked.id != AROUND.id and asked.scope != AROUND.scope


def test_parts_that_a_template_joins_otherwise_are_another_question() -> None:
    def ask(content: object, shown: str) -> str:
        messages = [{"role": "user", "content": content}]
        return question(messages=messages, rendered=rendered(shown)).id

    parts = [{"type": "text", "text": "Return it?"}, {"type": "text", "text": "How?"}]
    assert ask(parts, "Return it?\nHow?") == ask("Return it?\nHow?", "Return it?\nHow?")
    assert ask(parts, "Return it?How?") != ask(parts, "Return it?\nHow?")


def test_a_question_that_the_template_rewrites_is_told_by_its_tokens_and_only_exactly() -> None:
    def ask(*tokens: int) -> Question:
        return question(rendered=Rendered(tokens, "User: how do i return an item?"))

    assert ask(1, 2).id == ask(1, 2).id != ask(1, 3).id
    assert not ask(1, 2).is_comparable


def test_a_prompt_that_is_made_of_tokens_is_told_by_them() -> None:
    one, other = (question(rendered=Rendered(tokens)) for tokens in ((1, 2), (1, 3)))
    assert one.id != other.id and one.scope == other.scope and one.is_comparable


def test_headers_that_it_does_not_need_may_be_unreadable() -> None:
    sent = [(b"x-evenkeel-tenant", b"acme"), (b"x-evenkeel-slo-class", b"\xff")]
    assert question(caller=read_headers(sent)).id == question().id


def test_a_route_that_is_off_is_left_alone() -> None:
    assert read(policy=CachePolicy(routes=(RoutePolicy(mode=HitMode.OFF),))) == Bypass("route_off")


def test_a_person_is_found_by_user_and_by_session() -> None:
    asked = question(user="ann", caller=Caller(tenant="acme", session_id="s1"))
    assert set(asked.subjects) == {subject_tag("acme", "ann"), subject_tag("acme", "s1")}
    assert subject_tag("other", "ann") not in asked.tags
    assert "ann" not in "".join(asked.tags)


@pytest.mark.parametrize(
    ("ttl", "text", "seconds"),
    [
        (TimeToLive.AUTO, "How do I return an item?", 86400),
        (TimeToLive.AUTO, "What is the current price?", 600),
        (TimeToLive.STATIC, "What is the current price?", 86400),
        (TimeToLive.DYNAMIC, "How do I return an item?", 600),
    ],
)
def test_answers_live_as_long_as_their_class(ttl: TimeToLive, text: str, seconds: int) -> None:
    policy = CachePolicy(routes=(RoutePolicy(mode=HitMode.SERVE, ttl=ttl),))
    assert question(text, policy=policy).ttl_s == seconds


def test_a_long_question_is_only_compared_exactly() -> None:
    assert not question("word " * 1000).is_comparable
    assert question().is_comparable
