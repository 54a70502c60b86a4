"""Evaluates production window by window: samples, scores, records and estimates."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel.store import QUERIES, Store
from evenkeel_evals.ask.journal import Journal
from evenkeel_evals.production.live_config import JUDGE, LiveConfig
from evenkeel_evals.production.live_estimate import LiveEstimate, Scored, estimate
from evenkeel_evals.production.live_judge import ask_judge
from evenkeel_evals.production.live_sample import Drawn, draw, within_budget
from evenkeel_evals.scorers.base import Context, Label, Score, Scorer

_HERE = Path(__file__).parent
NS_PER_S = 1_000_000_000
HOUR_NS = 3600 * NS_PER_S
NOT_STORED = "no content is stored (record_content, content_tenants)"


@dataclass(frozen=True, slots=True)
class Row:
    """The result of one scorer on one sampled request.

    Attributes:
        trace_id: Trace id of the request.
        request_span_id: Span id of the request.
        span_id: Span id of this result.
        stratum: The stratum it was sampled from.
        probability: Probability of being sampled and scored.
        scorer: The scorer's name.
        value: 0 to 1; None if unscored.
        label: right, wrong or unscored.
        reason: Why it got this label.
        lag_s: Time from the request's end to its score.
        model: Model of the request; the next three are also its attributes.
        route: Route of the request.
        response_cache: The response cache's result for it; None without a cache.
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
    # Journals of earlier versions have neither.
    route: str | None = None
    response_cache: str | None = None


@dataclass(frozen=True, slots=True)
class LiveWindow:
    """An evaluated window.

    Attributes:
        from_ns: Its start; requests belong to the window in which they arrived.
        to_ns: Its end.
        num_requests: Requests in it, whatever their outcome.
        num_drawn: Answered requests that were sampled.
        skipped: Number of requests not scored, by reason.
        num_judge_calls: Calls to the judge.
        lag_s: Time from the window's end to its evaluation.
        rows: The results, unscored ones included.
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
    """A live evaluation as recorded in its journal; each window is evaluated exactly once.

    Args:
        config: Settings of the evaluation.
        journal: The journal that stores it.

    Attributes:
        windows: The evaluated windows, in order.
        unsent: Windows whose results are not in the store yet.
        dialled: Dial-backs, dry runs included, in order.

    Raises:
        ConfigurationError: If the journal belongs to an evaluation with another name.
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
        """Return the start of the next window; None before the first."""
        return self.windows[-1].to_ns if self.windows else None

    def budget(self, now_ns: int) -> int:
        """Return the number of judge calls left in this hour."""
        if self._config.judge is None:
            return 0
        spent = sum(w.num_judge_calls for w in self.windows if w.to_ns > now_ns - HOUR_NS)
        return max(0, self._config.judge.calls_per_hour - spent)

    def keep(self, window: LiveWindow) -> None:
        """Record a window."""
        record = {"monitor": self._config.name, **asdict(window)}
        self._journal.append(record)
        self.windows.append(window)
        self.unsent.append(window)

    def record_sent(self, window: LiveWindow) -> None:
        """Record that a window's results are in the store."""
        self._journal.append({"monitor": self._config.name, "sent": window.to_ns})
        self.unsent.remove(window)

    def record_dialled(self, record: Mapping[str, Any]) -> None:
        """Record a dial-back or a dry run of one."""
        self._journal.append({"monitor": self._config.name, "dialled": dict(record)})

    def estimates(self, num_windows: int | None = None) -> list[LiveEstimate]:
        """Return the estimates over all windows so far or the first ones, one per scorer."""
        found = []
        for name in self._config.scorer_names:
            rows = [
                Scored(number, row.probability, _is_right(row))
                for number, window in enumerate(self.windows[:num_windows])
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
    judge_key: str | None = None,
) -> LiveWindow:
    """Sample, score and judge one window, and return it.

    Args:
        config: Settings of the evaluation.
        store: The store with the requests.
        span_ns: Start and end of the window.
        budget: Number of judge calls left.
        now_ns: Wall-clock time.
        before: The previous window; its requests that arrived too late are counted here.
        judge_key: Bearer token of the judge's server.

    Raises:
        StoreError: If the store does not answer.
        CannotMeasureError: If the judge does not answer, or refuses the key.
    """
    from_ns, to_ns = span_ns
    requests = _requests(config, store, span_ns)
    answered = [request for request in requests if request["status"] == "ok"]
    skipped = _count_skipped(config, store, requests, before)
    drawn = draw(answered, config.plan, f"{config.name} {from_ns}")
    contents = _read_contents(store, drawn, span_ns)
    rows = [
        _row(d, scorer.name, _score(scorer, d, _content(d, contents)), now_ns)
        for d in drawn
        for scorer in config.scorers
    ]
    num_calls = 0
    if config.judge is not None:
        # Only requests with content cost a call; if the budget is short, random ones are skipped.
        readable = [d for d in drawn if _content(d, contents) is not None]
        judged = within_budget(readable, budget)
        if len(judged) < len(readable):
            skipped["the judge's budget is spent"] += len(readable) - len(judged)
        texts = [text for d in judged if (text := _content(d, contents)) is not None]
        scores = await ask_judge(config.judge, texts, judge_key)
        rows += [_row(d, JUDGE, score, now_ns) for d, score in zip(judged, scores, strict=True)]
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
    """Count unscored requests by reason: failed, or too late for the previous window."""
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
    """Return the stored question and answer of each sampled request by trace and span."""
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


def _score(scorer: Scorer, drawn: Drawn, content: tuple[str, str] | None) -> Score:
    if content is None:
        return Score.unscored(NOT_STORED)
    request = drawn.request
    context = Context(
        ttft_s=request["ttft_s"],
        e2e_s=request["e2e_s"],
        input_tokens=request["input_tokens"],
        output_tokens=request["output_tokens"],
        cost=request["cost"],
        # The collector replaces personal data and secrets before it stores a content.
        is_redacted=True,
    )
    return scorer.score(content[1], context)


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


def _text(messages: str) -> str:
    """Return the text of stored messages, one line per turn; other content is returned as is."""
    try:
        turns = json.loads(messages)
        lines = [
            (str(turn["role"]), "".join(str(p.get("content", "")) for p in turn["parts"]))
            for turn in turns
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return messages
    if len(lines) == 1 and lines[0][0] == "assistant":
        return lines[0][1]
    return "\n".join(f"{role}: {text}" for role, text in lines)
