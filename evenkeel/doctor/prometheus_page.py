"""Reads which metrics a Prometheus page has, line by line and within bounds."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

# A series of the text format: name, labels, value; OpenMetrics adds an exemplar. Label values, and
# names in quotation marks within the braces, may hold any escaped character. Nothing is tried in
# more than two ways: a hostile line takes no longer. The collector's parser accepts the same lines.
_TEXT = r"\"(?:[^\"\\]|\\.)*+\""
_END = r"\s*+(?:,\s*+|(?=\}))"
_SERIES = re.compile(
    r"(?:([a-zA-Z_:][a-zA-Z0-9_:]*+(?:[./][a-zA-Z0-9_:./]*+(?=\s*+\{))?+)|(?=\{\s*+\"))"
    rf"(?:\s*+\{{\s*+(?:({_TEXT}){_END})?+"
    rf"((?:(?!\"?__)(?:[a-zA-Z_][a-zA-Z0-9_]*+|{_TEXT})\s*+=\s*+{_TEXT}{_END})*+)\}}\s*+|\s++)"
    r"([^\s_]++)(?:\s++[-+0-9.eE]++)?+(?:\s++\#\s*+\{.*+)?+$"
)
_LINE = re.compile(r"[^\r\n]++")
_LABEL = re.compile(
    r'\s*(?:([a-zA-Z_][a-zA-Z0-9_]*)|"((?:[^"\\]|\\.)*)")\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)'
)
_ESCAPED = {r"\n": "\n", r"\"": '"', r"\\": "\\"}
_SUFFIXES = ("_bucket", "_sum", "_count", "_created")
# Of a page that is no text format at all, this many lines are enough.
MAX_WRONG = 20
# What a page has beyond these is not kept, so that no page takes much memory.
MAX_LINE = 64 << 10
MAX_METRICS = 20_000
_MAX_LABELS, _MAX_VALUES, _MAX_VALUE = 64, 1_000, 1_000


@dataclass(slots=True)
class FoundMetric:
    """A metric on a page.

    Attributes:
        name: As on the page, or a histogram's name without its suffix.
        labels: The values of each label.
        num_series: Its series.
        num_values: Those whose value is a number; NaN is none.
    """

    name: str
    labels: dict[str, set[str]] = field(default_factory=dict)
    num_series: int = 0
    num_values: int = 0


@dataclass(frozen=True, slots=True)
class PrometheusPage:
    """What a page has.

    Attributes:
        metrics: Its metrics by name, the first `MAX_METRICS`.
        num_wrong: Lines that are not in the format, or too long.
        wrong_line: The beginning of the first of them.
    """

    metrics: dict[str, FoundMetric]
    num_wrong: int = 0
    wrong_line: str = ""

    def has(self, metric: str, where: Sequence[tuple[str, str]] = ()) -> bool:
        """Tell whether the page has a metric, with these label values; "" is a missing label."""
        found = self.metrics.get(metric) or self.metrics.get(f"{metric}_total")
        return found is not None and all(
            value in found.labels.get(label, {""}) for label, value in where
        )

    def has_value(self, metric: str) -> bool:
        """Tell whether a metric has a number, and not only NaN."""
        found = self.metrics.get(metric) or self.metrics.get(f"{metric}_total")
        return found is not None and found.num_values > 0


def read_prometheus_page(text: str) -> PrometheusPage:
    """Return what a page has; lines that are not in the format are counted, not read."""
    metrics: dict[str, FoundMetric] = {}
    num_wrong, wrong_line = 0, ""
    for found_line in _LINE.finditer(text):
        line = found_line[0].strip()
        if not line or line.startswith("#"):
            continue
        match = _SERIES.match(line) if len(line) <= MAX_LINE else None
        of_line = "" if match is None else match[1] or (match[2] or "")[1:-1]
        if match is None or not of_line or _number(match[4]) is None:
            num_wrong += 1
            wrong_line = wrong_line or line[:80]
            if num_wrong >= MAX_WRONG and not metrics:
                break
            continue
        for name in {of_line, _family(of_line)}:
            found = metrics.get(name)
            if found is None:
                if len(metrics) >= MAX_METRICS:
                    continue
                found = metrics[name] = FoundMetric(name)
            found.num_series += 1
            found.num_values += not math.isnan(_number(match[4]) or 0.0)
            for plain, quoted, value in _LABEL.findall(match[3] or ""):
                label = plain or quoted
                if label not in found.labels and len(found.labels) >= _MAX_LABELS:
                    continue
                values = found.labels.setdefault(label, set())
                if len(values) < _MAX_VALUES and len(value) <= _MAX_VALUE:
                    values.add(re.sub(r"\\[n\"\\]", lambda m: _ESCAPED[m[0]], value))
    return PrometheusPage(metrics, num_wrong, wrong_line)


def _family(name: str) -> str:
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix)
    return name


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
