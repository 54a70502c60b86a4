"""Our names for what engines measure, and which part of which page each of them fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class MeasureKind(StrEnum):
    """How a measure behaves over time."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class EngineMeasure:
    """Something that engines measure: its kind, and its unit and meaning in one line."""

    kind: MeasureKind
    meaning: str


_GAUGE, _COUNTER, _HISTOGRAM = MeasureKind.GAUGE, MeasureKind.COUNTER, MeasureKind.HISTOGRAM

MEASURES: Mapping[str, EngineMeasure] = MappingProxyType(
    {
        "num_running": EngineMeasure(_GAUGE, "requests being computed"),
        "num_waiting": EngineMeasure(_GAUGE, "requests in the queue"),
        "num_waiting_by_reason": EngineMeasure(_GAUGE, "requests in the queue, by reason"),
        "kv_live_ratio": EngineMeasure(_GAUGE, "share of the KV cache that requests use"),
        "acceptance_rate": EngineMeasure(_GAUGE, "accepted / drafted tokens, by the engine itself"),
        "prefix_hit_ratio": EngineMeasure(
            _GAUGE, "share of prompt tokens found in the prefix cache, by the engine itself"
        ),
        "num_preempted": EngineMeasure(_COUNTER, "requests evicted from the batch to make room"),
        "num_requests": EngineMeasure(_COUNTER, "requests that ended"),
        "prefill_tokens": EngineMeasure(_COUNTER, "prompt tokens"),
        "output_tokens": EngineMeasure(_COUNTER, "generated tokens"),
        "drafted_tokens": EngineMeasure(_COUNTER, "tokens proposed by speculation"),
        "accepted_tokens": EngineMeasure(_COUNTER, "of those, accepted"),
        "prefix_queried_tokens": EngineMeasure(
            _COUNTER, "prompt tokens looked up in the prefix cache"
        ),
        "prefix_hit_tokens": EngineMeasure(_COUNTER, "of those, found"),
        "ttft_s": EngineMeasure(_HISTOGRAM, "s, arrival → first token"),
        "itl_s": EngineMeasure(_HISTOGRAM, "s between tokens"),
        "tpot_s": EngineMeasure(_HISTOGRAM, "s per output token after the first, by request"),
        "e2e_s": EngineMeasure(_HISTOGRAM, "s, arrival → end"),
        "queue_s": EngineMeasure(_HISTOGRAM, "s in the queue"),
        "prefill_s": EngineMeasure(_HISTOGRAM, "s, first scheduled → first token"),
        "decode_s": EngineMeasure(_HISTOGRAM, "s, first → last token"),
    }
)


@dataclass(frozen=True, slots=True)
class PagePart:
    """A chart, table or column of a page, and what fills it.

    Attributes:
        page: The dashboard's page, or Alerts for rules.
        part: The chart, table or column.
        measures: Metrics that fill it; any of them is enough.
        fields: Fields of a request's span that fill it; any of them is enough.
        needs_all: Whether all measures are needed.
        is_live_only: Whether KV blocks kept only for reuse must not count.
    """

    page: str
    part: str
    measures: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    needs_all: bool = False
    is_live_only: bool = False


# In the order in which `evenkeel doctor --scrape` and docs/start/engines.md list them.
PAGE_PARTS = (
    PagePart("Requests", "requests with status and duration", fields=("e2e_s",)),
    PagePart("Requests", "input tokens", fields=("input_tokens",)),
    PagePart("Requests", "output tokens", fields=("output_tokens",)),
    PagePart("Requests", "cached tokens", fields=("cached_tokens",)),
    PagePart("Latency", "total", fields=("e2e_s",)),
    PagePart("Latency", "TTFT", fields=("ttft_s",)),
    PagePart("Latency", "queue", fields=("queue_s",)),
    PagePart("Latency", "prefill", fields=("prefill_s",)),
    PagePart("Latency", "decode, TPOT", fields=("decode_s",)),
    PagePart("Engine", "requests running", ("num_running",)),
    PagePart("Engine", "requests waiting", ("num_waiting",)),
    PagePart("Engine", "why requests wait", ("num_waiting_by_reason",)),
    PagePart("Engine", "KV cache", ("kv_live_ratio",)),
    PagePart("Engine", "preemptions", ("num_preempted",)),
    PagePart("Engine", "prompt tokens per second", ("prefill_tokens",)),
    PagePart("Engine", "output tokens per second", ("output_tokens",)),
    PagePart("Engine", "prefix cache hits", ("prefix_hit_tokens", "prefix_hit_ratio")),
    PagePart("Engine", "draft acceptance", ("accepted_tokens", "acceptance_rate")),
    PagePart("Engine", "TTFT histogram", ("ttft_s",)),
    PagePart("Engine", "ITL histogram", ("itl_s",)),
    PagePart("Engine", "TPOT histogram", ("tpot_s",)),
    PagePart("Engine", "total time histogram", ("e2e_s",)),
    PagePart("Engine", "queue time histogram", ("queue_s",)),
    PagePart("Engine", "batch and step time"),
    PagePart("SLO", "availability, total time", fields=("e2e_s",)),
    PagePart("SLO", "TTFT", fields=("ttft_s",)),
    PagePart("Alerts", "rule kv-live-vllm", ("kv_live_ratio",)),
    PagePart(
        "Alerts",
        "rule kv-leak",
        ("kv_live_ratio", "num_running"),
        needs_all=True,
        is_live_only=True,
    ),
)
