"""Chats of several turns: which client asks next, and what was said before."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

MULTI_TURN_RATIO = 0.1
TURNS = (2, 5)
# How long a client reads an answer before it asks again.
PAUSE_S = (1.0, 5.0)

Message = dict[str, str]


@dataclass(slots=True)
class Conversation:
    """One client's chat.

    Attributes:
        session_id: Sent with each of its requests.
        tenant: Who pays for it.
        turns_left: Questions it still asks.
        history: What was said so far.
        due_s: When it asks next, on the clock of `Conversations.next`.
    """

    session_id: str
    tenant: str
    turns_left: int
    history: list[Message] = field(default_factory=list)
    due_s: float = 0.0


class Conversations:
    """The chats that are going on.

    Args:
        tenants: Whose clients there are.
        seed: Makes lengths and pauses repeatable.
    """

    def __init__(self, tenants: tuple[str, ...], seed: int) -> None:
        self._random = random.Random(seed)
        self._tenants = tenants
        self._waiting: list[Conversation] = []

    def next(self, now_s: float) -> Conversation:
        """Return the chat that asks now: one that goes on, if any has paused long enough."""
        for conversation in self._waiting:
            if conversation.due_s <= now_s:
                self._waiting.remove(conversation)
                return conversation
        has_many = self._random.random() < MULTI_TURN_RATIO
        return self.begin(self._random.randint(*TURNS) if has_many else 1)

    def answered(
        self, conversation: Conversation, question: list[Message], answer: str, now_s: float
    ) -> None:
        """Continue a chat after an answer, unless that was its last question."""
        conversation.turns_left -= 1
        if conversation.turns_left < 1:
            return
        conversation.history += [*question, {"role": "assistant", "content": answer}]
        conversation.due_s = now_s + self._random.uniform(*PAUSE_S)
        self._waiting.append(conversation)

    def begin(self, num_turns: int) -> Conversation:
        """Return a new chat."""
        return Conversation(
            session_id=f"chat-{self._random.getrandbits(32):08x}",
            tenant=self._random.choice(self._tenants),
            turns_left=num_turns,
        )
