"""Answers that control cuts are not cached, and none over a request's limit is served."""

from evenkeel_runtime.response_cache.settings_file import HitMode
from tests.unit.runtime.response_cache.test_slow_embedding import ASKED, Server, SlowEncoder


async def test_a_cut_answer_is_not_kept_and_a_whole_one_is() -> None:
    server = Server(HitMode.SERVE, SlowEncoder(), 10)
    counts, server.model.finish_reason = server.cache.counts, "length"
    await server.ask(ASKED, 2, is_cut=True)
    await server.settle()
    assert (counts.stored, counts.not_kept) == (0, {"unfinished": 1})
    # One that ends by itself, or where the client wants, is whole.
    await server.ask(ASKED, 2)
    await server.settle()
    assert counts.stored == 1
    await server.cache.close()


async def test_a_cached_answer_over_the_limit_of_the_request_is_not_served() -> None:
    server = Server(HitMode.SERVE, SlowEncoder(), 10)
    await server.ask(ASKED)
    await server.settle()
    await server.ask(ASKED, 1, is_cut=True)
    await server.settle()
    assert server.cache.counts.outcomes == {"miss": 2}
    await server.ask(ASKED, 2, is_cut=True)
    await server.settle()
    assert server.cache.counts.outcomes == {"miss": 2, "exact": 1}
    await server.cache.close()


async def test_a_request_whose_own_cached_answer_is_too_long_is_drafted_from_others() -> None:
    server = Server(HitMode.SERVE, SlowEncoder(), 10)
    await server.know(ASKED)
    await server.know("How do I return an item?")
    assert server.cache.counts.outcomes == {"miss": 1, "draft": 1}
    await server.ask(ASKED, 1, is_cut=True)
    await server.settle()
    assert server.cache.counts.outcomes == {"miss": 1, "draft": 2}
    await server.cache.close()


async def test_an_answer_cut_at_another_servers_limit_is_not_served() -> None:
    # Without `max_tokens` in the request the server's own limits apply; they are no part of the
    # key, and entries in Redis or Qdrant outlive a server.
    server = Server(HitMode.SERVE, SlowEncoder(), 10)
    server.model.finish_reason = "length"
    await server.ask(ASKED, 2)
    await server.settle()
    await server.ask(ASKED, 2)
    assert server.cache.counts.outcomes == {"miss": 1, "exact": 1}
    server.model.finish_reason = "stop"
    await server.ask(ASKED, 16)
    await server.settle()
    assert server.cache.counts.outcomes == {"miss": 2, "exact": 1}
    # The longer answer has replaced it.
    await server.ask(ASKED, 16)
    assert server.cache.counts.outcomes == {"miss": 2, "exact": 2}
    await server.cache.close()


async def test_changed_words_of_the_house_apply_to_the_next_question() -> None:
    server = Server(HitMode.SERVE, SlowEncoder(), 10)
    asked = "I want my boat."
    await server.ask(asked)
    server.cache.configure(server.cache.policy.model_copy(update={"user_words": ("boat",)}))
    await server.ask(asked)
    await server.settle()
    assert server.cache.counts.bypasses == {"about_asker": 1}
    await server.cache.close()
