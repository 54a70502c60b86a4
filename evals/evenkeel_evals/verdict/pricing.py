"""Prices answers: by a price file, or in seconds of your own engine."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from evenkeel.errors import CannotMeasureError
from evenkeel.prices.cost import Usage, price_at, request_cost
from evenkeel.prices.price_file import PriceFile
from evenkeel_evals.ask.answers import Answer, AnsweredPair, ServerTimes
from evenkeel_evals.verdict.gates import CostGate, Gate

ENGINE_UNIT = "s of engine"


@dataclass(frozen=True, slots=True)
class Pricing:
    """How the answers of a comparison are priced.

    Attributes:
        file: The price file; None for seconds of the engine.
        at: The moment whose prices count, for both sides: prices that change between two answers
            are no difference between the sides.
        models: Model of each side, by "A" and "B", for answers that do not name theirs.
        server_times: What the store has of the requests, by trace id.
    """

    file: PriceFile | None
    at: dt.datetime
    models: Mapping[str, str | None] = field(default_factory=dict)
    server_times: Mapping[str, ServerTimes] = field(default_factory=dict)

    def apply(self, pairs: Sequence[AnsweredPair]) -> list[AnsweredPair]:
        """Return the pairs with the cost of each answer, or why it has none."""
        return [
            replace(pair, a=self._priced(pair.a, "A"), b=self._priced(pair.b, "B"))
            for pair in pairs
        ]

    def _priced(self, answer: Answer, letter: str) -> Answer:
        if answer.has_failed:
            return answer
        times = self.server_times.get(answer.trace_id)
        engine_s = None if times is None else times.engine_s
        if self.file is None:
            problem = "" if engine_s is not None else "the store has no engine seconds of it"
            return replace(answer, cost=engine_s, cost_problem=problem)
        reply, model = answer.reply, answer.model or self.models.get(letter) or ""
        usage = Usage(
            model,
            reply.input_tokens,
            reply.output_tokens,
            reply.cached_tokens,
            reasoning_tokens=reply.reasoning_tokens,
            engine_s=engine_s,
            energy_j=None if times is None else times.energy_j,
            num_devices=1 if times is None else times.num_devices,
        )
        cost = request_cost(self.file, usage, self.at)
        problem = "" if cost is not None else _problem(self.file, usage, self.at)
        return replace(answer, cost=cost, cost_problem=problem)


def _problem(file: PriceFile, usage: Usage, at: dt.datetime) -> str:
    """Return why a request has no cost."""
    if not usage.model:
        return "its model is not known"
    if price_at(file.model, usage.model, at) is not None:
        if usage.input_tokens is None or usage.output_tokens is None:
            return "its tokens are not known"
        if not usage.has_whole_parts:
            return "it has more cached than input tokens, or more reasoning than output"
        return f"a kind of its tokens has no price for {usage.model!r:.80}"
    if price_at(file.engine, usage.model, at) is not None:
        what = "engine seconds" if usage.engine_s is None else "energy"
        return f"the store has no {what} of it"
    return f"no price of {usage.model!r:.80} on {at:%Y-%m-%d}"


def with_unit(gates: Sequence[Gate], file: PriceFile | None) -> list[Gate]:
    """Return the gates, with the unit of costs on the gate that needs it."""
    unit = ENGINE_UNIT if file is None else file.currency
    return [replace(gate, unit=unit) if isinstance(gate, CostGate) else gate for gate in gates]


def needs_engine_seconds(
    file: PriceFile | None, models: Sequence[str | None], at: dt.datetime
) -> bool:
    """Return whether a cost takes seconds of the engine: without a price per token."""
    return file is None or any(price_at(file.model, model or "", at) is None for model in models)


def require_prices(file: PriceFile, models: Sequence[str | None], at: dt.datetime) -> None:
    """Check, before anything is asked, that every model that is known has a price.

    Raises:
        CannotMeasureError: If one has none.
    """
    for model in models:
        prices = (file.model, file.engine)
        if model and all(price_at(each, model, at) is None for each in prices):
            raise CannotMeasureError(
                f"gate cost: the price file has no price of {model!r:.80} on {at:%Y-%m-%d} "
                "(no requests were made); add one, or remove the gate"
            )
