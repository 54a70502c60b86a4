"""Scorers for the latency and cost of an answer; unknown values are unscored, never right."""

from __future__ import annotations

from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel_evals.scorers.base import Context, Options, Score, Scorer
from evenkeel_evals.scorers.options import check_number

METRICS = ("e2e", "ttft")


def latency(reference: Any, options: Options) -> Scorer:
    """Judge whether the answer took at most `reference` seconds (e2e, or `metric`: ttft)."""
    limit_s = check_number("latency", "reference", reference)
    metric = options.get("metric", METRICS[0])
    if metric not in METRICS:
        raise ConfigurationError(
            f"option 'metric' of scorer 'latency' is {metric!r:.40}, expected e2e or ttft"
        )

    def judge(_: str, context: Context) -> Score:
        took_s = context.e2e_s if metric == "e2e" else context.ttft_s
        if took_s is None:
            return Score.unscored(f"latency: the answer has no {metric}_s")
        return Score.of(took_s <= limit_s, f"took {took_s:g} s")

    return Scorer("latency", judge, is_timed=True)


def cost(reference: Any, options: Options) -> Scorer:
    """Judge whether the answer cost at most `reference`.

    Uses the answer's recorded cost if it has one, else its tokens × the prices
    `input_per_million` and `output_per_million`.
    """
    limit = check_number("cost", "reference", reference)
    prices = [
        check_number("cost", f"option {name!r}", options[name]) if name in options else None
        for name in ("input_per_million", "output_per_million")
    ]

    def judge(_: str, context: Context) -> Score:
        spent = context.cost
        if spent is None:
            tokens = (context.input_tokens, context.output_tokens)
            parts = [
                None if price is None or count is None else price * count / 1e6
                for price, count in zip(prices, tokens, strict=True)
            ]
            if None in parts:
                return Score.unscored("cost: the answer has no cost, or no tokens and prices")
            spent = sum(part for part in parts if part is not None)
        return Score.of(spent <= limit, f"cost {spent:g}")

    return Scorer("cost", judge)
