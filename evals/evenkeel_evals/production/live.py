"""Evaluates one window of production after the other: draws, scores, writes down, estimates."""

from __future__ import annotations

import json
import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel.store import QUERIES, Store
from evenkeel_evals.ask.client import Call, ChatClient
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.production.live_config import JUDGE, LiveConfig, LiveJudge
from evenkeel_evals.production.live_estimate import LiveEstimate, Scored, estimate
from evenkeel_evals.production.live_sample import Drawn, draw, within_budget
from evenkeel_evals.scorers.base import Label, Score

_HERE = Path(__file__).parent
NS_PER_S = 1_000_000_000
HOUR_NS = 3600 * NS_PER_S
NOT_STORED = "no content is stored (record_content, content_tenants)"
INSTRUCTION = (
    "You check one answer of an assistant. {criteria}\n"
    "Reply with one word: good if the answer serves the person who asked, bad if it does not."
)
_VERDICT = re.compile(r"\b(good|bad)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Row:
    """One drawn request and one scorer.

    Attributes:
        trace_id: Of the request.
        request_span_id: Its span.
        span_id: Of this result.
        stratum: It was drawn from.
        probability: With which it was drawn and given to the scorer.
        scorer: The scorer's name.
        value: 0 to 1; None if unscored.
        label: right, wrong or unscored.
        reason: Why.
        lag_s: From the request's end to its score.
        model: Of the request, like the three that follow.
        route: Of the request.
        response_cache: What the response cache did with it; None without one.
    """

    trace_id: str
    request_span_id: str
    span_id: str
    stratum: str
    probability: float
    scorer: str
    value: float | None
    label: str
    reason: str | None
    lag_s: float | None
    model: str | None
    tenant: str | None
    prompt_name: str | None
    prompt_version: str | None
    # A journal of an earlier version has neither.
    route: str | None = None
    response_cache: str | None = None


@dataclass(frozen=True, slots=True)
class LiveWindow:
    """A window that was evaluated.

    Attributes:
        from_ns: Its start; requests count by their arrival.
        to_ns: Its end.
        num_requests: Requests in it, however they ended.
        num_drawn: Drawn from those that were answered.
        skipped: How many were not scored, by reason.
        num_judge_calls: Calls of the judge.
        lag_s: From the window's end to its evaluation.
        rows: What was scored, or could not be.
    """

    from_ns: int
    to_ns: int
    num_requests: int
    num_drawn: int
    skipped: Mapping[str, int]
    num_judge_calls: int
    lag_s: float
    rows: Sequence[Row]


class LiveRun:
    """A live evaluation as its journal knows it; a window is evaluated once, whatever happens.

    Args:
        config: What is evaluated.
        journal: Where it is kept.

    Attributes:
        windows: What was evaluated, in order.
        unsent: Those of them whose results are not in the store yet.
        dialled: What was set back, or would have been, in order.

    Raises:
        ConfigurationError: If the journal belongs to an evaluation of another name.
    """

    def __init__(self, config: LiveConfig, journal: Journal) -> None:
        self._config = config
        self._journal = journal
        self.windows: list[LiveWindow] = []
        self.unsent: list[LiveWindow] = []
        self.dialled: list[dict[str, Any]] = []
        for record in journal.records:
            if record.get("monitor") != config.name:
                raise ConfigurationError(
                    f"{journal.path} belongs to the live evaluation {record.get('monitor')!r}; "
                    "use another --state folder"
                )
            if "sent" in record:
                self.unsent = [w for w in self.unsent if w.to_ns != record["sent"]]
                continue
            if "dialled" in record:
                self.dialled.append(record["dialled"])
                continue
            self.windows.append(_read_window(record))
            self.unsent.append(self.windows[-1])

    @property
    def next_from_ns(self) -> int | None:
        """Return where the next window begins; None before the first."""
        return self.windows[-1].to_ns if self.windows else None

    def budget(self, now_ns: int) -> int:
        """Return the calls that the judge may still make in this hour."""
        if self._config.judge is None:
            return 0
        spent = sum(w.num_judge_calls for w in self.windows if w.to_ns > now_ns - HOUR_NS)
        return max(0, self._config.judge.calls_per_hour - spent)

    def keep(self, window: LiveWindow) -> None:
        """Write a window down."""
        record = {"monitor": self._config.name, **asdict(window)}
        self._journal.append(record)
        self.windows.append(window)
        self.unsent.append(window)

    def record_sent(self, window: LiveWindow) -> None:
        """Write down that a window's results are in the store."""
        self._journal.append({"monitor": self._config.name, "sent": window.to_ns})
        self.unsent.remove(window)

    def record_dialled(self, record: Mapping[str, Any]) -> None:
        """Write down that something was set back, or would have been."""
        self._journal.append({"monitor": self._config.name, "dialled": dict(record)})

    def estimates(self) -> list[LiveEstimate]:
        """Return what all windows so far come to, a line a scorer."""
        found = []
        for name in self._config.scorer_names:
            rows = [
                Scored(number, row.probability, _is_right(row))
                for number, window in enumerate(self.windows)
                for row in window.rows
                if row.scorer == name
            ]
            found.append(estimate(name, rows, self._config.good_at_least.get(name)))
        return found


def _is_right(row: Row) -> bool | None:
    return None if row.label == Label.UNSCORED else row.label == Label.RIGHT


def _read_window(record: Mapping[str, Any]) -> LiveWindow:
    fields = {k: v for k, v in record.items() if k not in ("monitor", "rows")}
    return LiveWindow(**fields, rows=[Row(**row) for row in record["rows"]])


async def evaluate(
    config: LiveConfig,
    store: Store,
    span_ns: tuple[int, int],
    budget: int,
    now_ns: int,
    before: LiveWindow | None = None,
) -> LiveWindow:
    """Return one window, drawn, scored and judged.

    Args:
        config: What is evaluated.
        store: Where the requests are.
        span_ns: Start and end of the window.
        budget: Calls that the judge may make.
        now_ns: Wall clock.
        before: The window before; requests that came to it too late to be drawn are counted here.

    Raises:
        StoreError: If the store does not answer.
    """
    from_ns, to_ns = span_ns
    requests = _requests(config, store, span_ns)
    answered = [request for request in requests if request["status"] == "ok"]
    skipped = _count_skipped(config, store, requests, before)
    drawn = draw(answered, config.plan, f"{config.name} {from_ns}")
    contents = _read_contents(store, drawn, span_ns)
    rows = [
        _row(d, scorer.name, _score(scorer.score, _content(d, contents)), now_ns)
        for d in drawn
        for scorer in config.scorers
    ]
    num_calls = 0
    if config.judge is not None:
        # Only what has content costs a call; a judge that must skip some skips them at random.
        readable = [d for d in drawn if _content(d, contents) is not None]
        judged = within_budget(readable, budget)
        if len(judged) < len(readable):
            skipped["the judge's budget is spent"] += len(readable) - len(judged)
        rows += await _judge_all(config.judge, judged, contents, now_ns)
        num_calls = len(judged)
    missing = sum(_content(d, contents) is None for d in drawn)
    if missing:
        skipped[NOT_STORED] += missing
    return LiveWindow(
        from_ns=from_ns,
        to_ns=to_ns,
        num_requests=len(requests),
        num_drawn=len(drawn),
        skipped=dict(skipped),
        num_judge_calls=num_calls,
        lag_s=(now_ns - to_ns) / NS_PER_S,
        rows=rows,
    )


def _count_skipped(
    config: LiveConfig,
    store: Store,
    requests: Sequence[Mapping[str, Any]],
    before: LiveWindow | None,
) -> Counter[str]:
    """Count the requests that are not scored by why: failed, or too late for the window before."""
    skipped = Counter(
        f"ended as {request['status']}" for request in requests if request["status"] != "ok"
    )
    if before is not None:
        num_now = len(_requests(config, store, (before.from_ns, before.to_ns)))
        if num_now > before.num_requests:
            skipped["arrived too late for the previous window"] = num_now - before.num_requests
    return skipped


def _read_contents(
    store: Store, drawn: Sequence[Drawn], span_ns: tuple[int, int]
) -> dict[tuple[str, str], tuple[str, str]]:
    """Return the stored question and answer of each drawn request by trace and span."""
    if not drawn:
        return {}
    parameters = {
        "from_ns": span_ns[0],
        "to_ns": span_ns[1],
        "trace_ids": sorted({str(d.request["trace_id"]) for d in drawn}),
    }
    return {
        (str(row["trace_id"]), str(row["span_id"])): (
            _text(row["input_messages"]),
            _text(row["output_messages"]),
        )
        for row in store.rows(QUERIES / "request_contents.sql", parameters)
    }


def _requests(config: LiveConfig, store: Store, span_ns: tuple[int, int]) -> list[dict[str, Any]]:
    only = {"model": config.model, "prompt_name": config.prompt_name}
    bounds = {"from_ns": span_ns[0], "to_ns": span_ns[1]}
    return store.rows(_HERE / "live_requests.sql", {**bounds, **only})


Contents = Mapping[tuple[str, str], tuple[str, str]]


def _content(drawn: Drawn, contents: Contents) -> tuple[str, str] | None:
    return contents.get((str(drawn.request["trace_id"]), str(drawn.request["span_id"])))


def _score(score: Any, content: tuple[str, str] | None) -> Score:
    if content is None:
        return Score.unscored(NOT_STORED)
    found: Score = score(content[1])
    return found


def _row(drawn: Drawn, scorer: str, score: Score, now_ns: int) -> Row:
    request = drawn.request
    end_ns = int(request["time_ns"]) + int(float(request["e2e_s"] or 0.0) * NS_PER_S)
    return Row(
        trace_id=str(request["trace_id"]),
        request_span_id=str(request["span_id"]),
        span_id=secrets.token_hex(8),
        stratum=drawn.stratum,
        probability=drawn.probability,
        scorer=scorer,
        value=score.value,
        label=score.label.value,
        reason=score.reason,
        lag_s=(now_ns - end_ns) / NS_PER_S,
        model=request["model"],
        tenant=request["tenant"],
        prompt_name=request["prompt_name"],
        prompt_version=request["prompt_version"],
        route=request["route"],
        response_cache=request["response_cache"],
    )


async def _judge_all(
    judge: LiveJudge, drawn: Sequence[Drawn], contents: Contents, now_ns: int
) -> list[Row]:
    if not drawn:
        return []
    rows = []
    async with ChatClient(1, 60.0) as client:
        model = await client.find_model(judge.side.url, judge.side.model)
        side = replace(judge.side, model=model)
        for d in drawn:
            content = _content(d, contents)
            assert content is not None
            text = f"Request:\n{content[0]}\n\nAnswer:\n{content[1]}\n\nIs it good or bad?"
            call = Call(
                side=side,
                messages=[
                    {"role": "system", "content": INSTRUCTION.format(criteria=judge.criteria)},
                    {"role": "user", "content": text},
                ],
                trace_id=secrets.token_hex(16),
                span_id=secrets.token_hex(8),
                session="live-judge",
                cache_salt=None,
            )
            reply = await client.ask(call)
            rows.append(_row(d, JUDGE, read_verdict(reply.text, reply.error), now_ns))
    return rows


def read_verdict(text: str | None, error: str | None) -> Score:
    """Return what a judge said; nothing, or both words, is unscored."""
    if text is None:
        return Score.unscored(f"the judge did not answer: {error}")
    found = {word.lower() for word in _VERDICT.findall(text)}
    if len(found) != 1:
        return Score.unscored("the judge gave no verdict")
    return Score.of(found == {"good"})


def _text(messages: str) -> str:
    """Return the text of stored messages, a line a turn; as stored where it is something else."""
    try:
        turns = json.loads(messages)
        lines = [
            (str(turn["role"]), "".join(str(p.get("content", "")) for p in turn["parts"]))
            for turn in turns
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return messages
    if len(lines) == 1 and lines[0][0] == "assistant":
        return lines[0][1]
    return "\n".join(f"{role}: {text}" for role, text in lines)
