"""Exports alert rules to Prometheus, based on vLLM's own metrics as far as these allow."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

from evenkeel.durations import prometheus_duration
from evenkeel.errors import ConfigurationError
from evenkeel.slo.rules import Absence, Gauge, GaugeSource, Rule, Threshold

ALERT_NAME = "SloRule"
# vLLM's histogram for each duration (docs.vllm.ai, usage/metrics), by our measure's prefix.
_HISTOGRAMS = {
    "ttft": "vllm:time_to_first_token_seconds",
    "tpot": "vllm:request_time_per_output_token_seconds",
    "queue": "vllm:request_queue_time_seconds",
    "e2e": "vllm:e2e_request_latency_seconds",
}
# A few scrapes, and no longer than any silence that people wait for.
_SILENCE_WINDOW_S = Fraction(300)
_ENDED = "vllm:request_success_total"
_VLLMS = re.compile(r"vllm:\w+")
_NOT_OF_A_LABEL = re.compile(r"[^a-zA-Z0-9_]")
_RESERVED = re.compile(r"^(\d|__)")
# vLLM's name for the only column its metrics have.
_LABELS = {"model": "model_name"}


def prometheus_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return labels under valid Prometheus names, with other characters as underscores.

    One invalid name, or half a template, and Prometheus rejects the whole file.

    Raises:
        ConfigurationError: If two labels would have the same name.
    """
    given: dict[str, str] = {}
    for name in labels:
        valid = _RESERVED.sub(r"label_\g<0>", _NOT_OF_A_LABEL.sub("_", name))
        if valid in given:
            raise ConfigurationError(
                f"labels {given[valid]!r} and {name!r} are both {valid!r} in Prometheus; rename one"
            )
        given[valid] = name
    return {valid: literal(labels[name]) for valid, name in given.items()}


def literal(text: str) -> str:
    """Return a Prometheus template that renders as this text."""
    return text.replace("{{", '{{ "{{" }}')


def equal_to(labels: Mapping[str, str], separator: str = ", ") -> str:
    """Return PromQL's matchers, without braces, for series with exactly these labels' values."""
    # JSON and PromQL strings use the same escapes, except for halves of a character: PromQL refuses
    # them, and with them the whole file.
    return separator.join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in labels.items()
    )


def rule_group(rules: Sequence[Rule]) -> tuple[dict[str, Any], list[str]]:
    """Return a group with an alert per rule, and a line for each that lacks something."""
    alerts, lacking, narrower = [], [], []
    for rule in rules:
        try:
            expression = _expression(rule)
        except ConfigurationError as error:
            lacking.append(f"rule {rule.name} is not exported: {error}")
            continue
        alerts.append(_alert(rule, expression))
        if of_vllm := sorted(set(_VLLMS.findall(expression))):
            narrower.append(
                f"rule {rule.name} reads {', '.join(of_vllm)}: in Prometheus it never holds for "
                "another engine (evenkeel evaluates it for every engine)"
            )
    return {"name": "evenkeel-rules", "rules": alerts}, lacking + narrower


def silence_parts(after_s: Fraction) -> tuple[Fraction, Fraction]:
    """Return the window without an event, and how long it stays so, until a silence is an alert.

    Together they are the silence. One window as long would be without events as well when
    Prometheus has just begun to scrape.
    """
    window_s = min(_SILENCE_WINDOW_S, Fraction(after_s * 500 // 1, 1000))
    return window_s, after_s - window_s


def _alert(rule: Rule, expression: str) -> dict[str, Any]:
    pending_s = rule.pending_s
    if isinstance(rule.test, Absence):
        pending_s += silence_parts(rule.test.after_s)[1]
    durations = {"for": pending_s, "keep_firing_for": rule.keep_firing_s}
    return {
        "alert": ALERT_NAME,
        "expr": expression,
        **{key: prometheus_duration(seconds) for key, seconds in durations.items() if seconds},
        "labels": {
            **prometheus_labels(rule.labels),
            "rule": rule.name,
            "severity": rule.severity.value,
        },
        "annotations": {
            "summary": literal(rule.title),
            "description": literal(f"when {rule.test}"),
        },
    }


def _expression(rule: Rule) -> str:
    match rule.test:
        case Absence(after_s):
            window = prometheus_duration(silence_parts(after_s)[0])
            ended = f"sum(increase({_ENDED}{_matchers(_select(rule))}[{window}]))"
            return f"({ended} or vector(0)) == 0"
        case Threshold() as test:
            return _threshold(test, _matchers(_select(rule)))
        case Gauge() as test:
            return _gauge(test, _select(rule))
        case _:
            raise ConfigurationError("level changes cannot be expressed in PromQL")


def _select(rule: Rule) -> dict[str, str]:
    unknown = [column for column in rule.select if column not in _LABELS]
    if unknown:
        raise ConfigurationError(f"vLLM's metrics have no label for {', '.join(unknown)}")
    return {_LABELS[column]: value for column, value in rule.select.items()}


def _matchers(labels: Mapping[str, str]) -> str:
    inside = equal_to(labels, ",")
    return f"{{{inside}}}" if inside else ""


def _threshold(test: Threshold, selector: str) -> str:
    begin, _, quantile = test.measure.removesuffix("_s").partition("_p")
    histogram = _HISTOGRAMS.get(begin)
    if histogram is None or not quantile.isdecimal():
        raise ConfigurationError(f"vLLM's metrics have no {test.measure}")
    window, side = prometheus_duration(test.over_s), ">" if test.op == "gt" else "<"
    buckets = f"sum by (le) (increase({histogram}_bucket{selector}[{window}]))"
    requests = f"sum(increase({histogram}_count{selector}[{window}]))"
    return (
        f"histogram_quantile({int(quantile) / 100:g}, {buckets}) {side} {test.value!r}"
        f" and on() {requests} >= {test.min_requests}"
    )


def _gauge(test: Gauge, select: Mapping[str, str]) -> str:
    window, side = prometheus_duration(test.over_s), ">" if test.op == "gt" else "<"
    fixed = ", ".join(sorted(_fixed_labels(test)))

    def read(source: GaugeSource) -> str:
        return f"{source.metric}{_matchers({**source.where, **select})}"

    def mean(source: GaugeSource) -> str:
        if test.while_zero is None:
            return f"avg_over_time({read(source)}[{window}])"
        # A subquery, because only readings taken while the other gauge was 0 count.
        idle = f"sum without ({fixed}) ({read(test.while_zero)}) == 0"
        given = f"sum without ({fixed}) ({read(source)})"
        return f"avg_over_time(({given} and ignoring(__name__) {idle})[{window}:])"

    if test.per is None:
        return f"{mean(test.of)} {side} {test.value!r}"
    # Series present on both sides, matched on the labels that neither side fixes.
    of, per = (f"sum without ({fixed}) ({mean(source)})" for source in (test.of, test.per))
    return f"{of} / {per} {side} {test.value!r}"


def _fixed_labels(test: Gauge) -> set[str]:
    """Return the labels that any side of the test fixes."""
    sources = (test.of, test.per, test.while_zero)
    return {label for source in sources if source is not None for label in source.where}
