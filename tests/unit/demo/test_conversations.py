"""Chats of several turns, on a clock of the test."""

from evenkeel_demo.conversations import PAUSE_S, TURNS, Conversations

QUESTION = [{"role": "user", "content": "Where is my order?"}]


def test_a_chat_goes_on_after_a_pause_with_what_was_said() -> None:
    chats = Conversations(("acme",), seed=3)
    chat = next(c for c in (chats.next(0.0) for _ in range(100)) if c.turns_left > 1)
    chats.answered(chat, QUESTION, "On its way.", 10.0)
    assert chats.next(10.0) is not chat, "nobody asks again at once"
    assert chats.next(10.0 + PAUSE_S[1]) is chat
    assert chat.history == [*QUESTION, {"role": "assistant", "content": "On its way."}]


def test_a_chat_ends_after_its_turns() -> None:
    chats = Conversations(("acme",), seed=3)
    seen: dict[str, int] = {}
    for second in range(0, 2_000, 6):
        chat = chats.next(float(second))
        seen[chat.session_id] = seen.get(chat.session_id, 0) + 1
        chats.answered(chat, QUESTION, "Yes.", float(second))
    assert set(seen.values()) == {1, *range(TURNS[0], TURNS[1] + 1)}
