"""A generator of agents' sessions that holds the truth: whose each request is, and where time went.

Turns come from recorded sessions: times, tokens, API and think seconds, stop reasons, sub-agents.
Everything else is drawn here, from a literal seed:

- A turn waits in a queue (exponential, mean 0.05 s) before its recorded API seconds, of which 10
  to 40% are prefill, 0 to 2% of what remains nobody's, and the rest decode. Without recorded API
  seconds it takes 5 s.
- The pause after a turn that stopped to use a tool is 1 to 3 tools at once and up to 0.3 s of the
  client's before and after them; the longest tool takes the rest. Other pauses are the client's.
- A recorded sub-agent is a tool `Task` in that pause: an agent of 2 to 6 turns with one tool each.
- In 10% of the pauses with tools, and 5% of the others, the prefix is evicted at a random moment;
  the next turn computes 20 to 80% of its prefill again. With tools, that moment is while the tool
  runs that the session waits for, or in the client's time before and after it, which is then no
  eviction during a tool. Two in three engines say so; of the third, only the cached tokens are
  known, of which the same 20 to 80% are missing.
- The session is named by an agent's header (x-session-id, x-claude-code-session-id, session-id,
  x-session-affinity), or not at all but the requests have one trace, or not even a trace. Of the
  last, one in five begins with one of 20 prompts that others send too, and a prompt that has shrunk
  to less than half is a new beginning: the agent has summarised the past.
"""

import gzip
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evenkeel_dashboard.sessions.work import Work, WorkKind

HEADERS = ("x-session-id", "x-claude-code-session-id", "session-id", "x-session-affinity")
NAMINGS = ("header", "trace", "chain")
_SHARED_PROMPTS = 20
_BEGIN_NS = 1_790_000_000_000_000_000


@dataclass(slots=True)
class Turn:
    """A request as the server sees it: its work, and the body of a chat as role and text."""

    work: Work
    messages: list[tuple[str, str]] = field(default_factory=list)
    answer: str = ""


@dataclass(slots=True)
class Session:
    """One generated session.

    Attributes:
        number: Its number.
        naming: How it can be found without our header: header, trace or chain.
        turns: Its requests.
        others: Its tools and agents.
        seconds: The truth, by cause; tools are one cause, `tool`.
        evicted_in_tool: Requests whose prefix was evicted while a tool ran, and that tool.
        says_evictions: Whether its engine records evictions; if not, they are to be inferred.
        wall_s: From its first arrival to its end.
    """

    number: int
    naming: str
    turns: list[Turn] = field(default_factory=list)
    others: list[Work] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    evicted_in_tool: dict[str, str] = field(default_factory=dict)
    says_evictions: bool = True
    wall_s: float = 0.0

    @property
    def works(self) -> list[Work]:
        """All of its work."""
        return [turn.work for turn in self.turns] + self.others


def read_sessions(path: Path) -> list[list[dict[str, Any]]]:
    """Return the turns of each recorded session."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line)["requests"] for line in lines]


def generate(
    recorded: Sequence[Sequence[dict[str, Any]]], number: int, max_turns: int = 10**9
) -> Session:
    """Return session `number`: a recorded one, drawn with replacement, and what is made up."""
    draw = random.Random(f"session {number}")
    while True:
        turns = draw.choice(recorded)
        if any("subagent" not in turn for turn in turns):
            return _Generator(number, draw).run(turns[:max_turns])


class _Generator:
    def __init__(self, number: int, draw: random.Random) -> None:
        self._draw = draw
        self._session = Session(number, draw.choice(NAMINGS))
        self._trace = f"{draw.getrandbits(128):032x}"
        self._says_evictions = self._session.says_evictions = draw.random() < 2 / 3
        self._now_s = draw.uniform(0, 3600)
        self._num_ids = 0
        self._loss: tuple[float, float, bool] | None = None
        self._num_previous_tokens = 0
        self._messages: list[tuple[str, str]] = []
        shared = draw.random() < 0.2
        self._first = f"prompt {draw.randrange(_SHARED_PROMPTS)}" if shared else f"task {number}"

    def run(self, recorded: Sequence[dict[str, Any]]) -> Session:
        began_s = self._now_s
        subs = [turn["subagent"] for turn in recorded if "subagent" in turn]
        turns = [turn for turn in recorded if "subagent" not in turn]
        for place, turn in enumerate(turns):
            self._ask(turn, "main", "")
            if place + 1 == len(turns):
                break
            following = turns[place + 1]
            gap_s = float(following.get("think") or 0.0) or max(
                0.0, following["t"] - turn["t"] - (turn.get("api") or 5.0)
            )
            if turn.get("stop") == "tool_use" and gap_s > 0:
                is_sub = bool(subs) and subs[0]["t"] <= following["t"]
                self._use_tools(gap_s, subs.pop(0) if is_sub else None)
            elif gap_s > 0:
                self._pause(gap_s)
        self._session.wall_s = self._now_s - began_s
        return self._session

    def _id(self) -> str:
        self._num_ids += 1
        return f"{self._session.number:08x}{self._num_ids:08x}"

    def _charge(self, cause: str, seconds: float) -> None:
        self._session.seconds[cause] = self._session.seconds.get(cause, 0.0) + seconds

    def _ask(self, turn: dict[str, Any], thread: str, parent: str) -> None:
        draw, tokens = self._draw, int(turn["in"])
        is_new = thread == "main" and tokens < self._num_previous_tokens / 2
        queue_s, api_s = draw.expovariate(20), float(turn.get("api") or 5.0)
        prefill_s = api_s * draw.uniform(0.1, 0.4)
        decode_s = (api_s - prefill_s) * draw.uniform(0.98, 1.0)
        loss, recompute_s, evicted_s, cached = None, 0.0, None, None
        if thread == "main":
            cached = min(tokens, self._num_previous_tokens) // 64 * 64
            if self._loss is not None and not is_new and tokens >= self._num_previous_tokens:
                loss = self._loss
            self._loss = None
        request_id = self._id()
        if loss is not None:
            at_s, share, in_tool = loss
            if in_tool:
                self._session.evicted_in_tool[request_id] = self._last_tool
            evicted_s = self._now_s - at_s
            if self._says_evictions:
                recompute_s = prefill_s * share
            else:
                cached = int(self._num_previous_tokens * (1 - share)) // 64 * 64
        work = self._work(
            WorkKind.REQUEST, self._now_s, queue_s + api_s, "model", parent, request_id=request_id,
            queue_s=queue_s, prefill_s=prefill_s, decode_s=decode_s,
            recompute_s=recompute_s if self._says_evictions else None,
            evicted_s=evicted_s if self._says_evictions else None,
            input_tokens=tokens, cached_tokens=cached,
        )  # fmt: skip
        charged_s = recompute_s if self._says_evictions else 0.0
        self._charge("model.queue", queue_s)
        self._charge("model.recompute", charged_s)
        self._charge("model.prefill", prefill_s - charged_s)
        self._charge("model.decode", decode_s)
        self._charge("model.other", api_s - prefill_s - decode_s)
        self._say(work, thread, is_new)
        if thread == "main":
            self._num_previous_tokens = tokens
        self._now_s += queue_s + api_s

    def _say(self, work: Work, thread: str, is_new: bool) -> None:
        answer = f"answer {self._draw.randrange(1000)}"
        if thread != "main":
            self._session.turns.append(Turn(work, [("user", f"{thread} of {work.id}")], answer))
            return
        if not self._messages or is_new:
            past = f"summary {self._num_ids} of " if is_new else ""
            self._messages = [("system", "You are an agent."), ("user", past + self._first)]
        else:
            self._messages.append(("user", f"result {self._num_ids}"))
        self._session.turns.append(Turn(work, list(self._messages), answer))
        self._messages.append(("assistant", answer))

    def _use_tools(self, gap_s: float, sub: dict[str, Any] | None) -> None:
        draw = self._draw
        before_s = min(gap_s * 0.1, draw.uniform(0, 0.3))
        after_s = min(gap_s * 0.1, draw.uniform(0, 0.3))
        self._charge("client", before_s + after_s)
        self._now_s += before_s
        began_s, longest_s = self._now_s, gap_s - before_s - after_s
        self._last_tool = f"tool-{draw.randrange(8)}"
        if sub is None:
            self._work(WorkKind.TOOL, began_s, longest_s, self._last_tool)
            self._charge("tool", longest_s)
            self._now_s += longest_s
        else:
            self._last_tool = "Task"
            self._delegate(longest_s)
        for _ in range(draw.randrange(3)):
            self._work(
                WorkKind.TOOL, began_s, (self._now_s - began_s) * draw.uniform(0.05, 0.9), "short"
            )
        if draw.random() < 0.1:
            at_s = draw.uniform(began_s - before_s, self._now_s + after_s)
            self._loss = (at_s, draw.uniform(0.2, 0.8), began_s <= at_s <= self._now_s)
        self._now_s += after_s

    def _delegate(self, own_s: float) -> None:
        """Run a sub-agent inside a tool, which adds up to 0.5 s of its own around it."""
        began_s, task, agent = self._now_s, self._id(), self._id()
        edge_s = min(0.5, own_s / 4)
        self._now_s += edge_s
        for number in range(self._draw.randint(2, 6)):
            turn = {"in": 3000 + 500 * number, "api": self._draw.uniform(1, 6)}
            self._ask(turn, f"sub {agent} {number}", agent)
            used_s = self._draw.uniform(0.1, 3)
            self._work(WorkKind.TOOL, self._now_s, used_s, "read", agent)
            self._charge("tool", used_s)
            self._now_s += used_s
        inner_s = self._now_s - began_s
        self._now_s += edge_s
        self._charge("tool", 2 * edge_s)
        self._work(WorkKind.AGENT, began_s, inner_s, "sub", task, id=agent)
        self._work(WorkKind.TOOL, began_s, self._now_s - began_s, "Task", id=task)

    def _pause(self, gap_s: float) -> None:
        self._charge("client", gap_s)
        if self._draw.random() < 0.05:
            at_s = self._draw.uniform(self._now_s, self._now_s + gap_s)
            self._loss = (at_s, self._draw.uniform(0.2, 0.8), False)
        self._now_s += gap_s

    def _work(
        self,
        kind: WorkKind,
        start_s: float,
        seconds: float,
        name: str,
        parent: str = "",
        **more: Any,
    ) -> Work:
        start_ns = _BEGIN_NS + round(start_s * 1e9)
        more.setdefault("id", self._id())
        work = Work(
            kind, start_ns, start_ns + round(seconds * 1e9), name,
            parent_id=parent, trace_id=self._trace, **more,
        )  # fmt: skip
        if kind is not WorkKind.REQUEST:
            self._session.others.append(work)
        return work


def generate_all(
    recorded: Sequence[Sequence[dict[str, Any]]], num: int, max_turns: int = 10**9
) -> Iterator[Session]:
    """Yield the first `num` sessions."""
    for number in range(num):
        yield generate(recorded, number, max_turns)
