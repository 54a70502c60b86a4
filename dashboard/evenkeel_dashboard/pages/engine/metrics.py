"""Engines' own metrics in the columns of the step records, and which of them no engine reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from evenkeel.engines.engine_map import known_engines, title_of
from evenkeel.engines.measures import MEASURES, MeasureKind
from evenkeel_dashboard.draw import formats
from evenkeel_dashboard.pages.engine.model import COLUMNS, Row

# What the series are read from, and the histograms.
SERIES_MEASURES = tuple(n for n, m in MEASURES.items() if m.kind is not MeasureKind.HISTOGRAM)
HISTOGRAMS = {
    "ttft_s": "time to first token",
    "itl_s": "gap between tokens",
    "tpot_s": "time per output token",
    "queue_s": "queue",
    "prefill_s": "prefill",
    "decode_s": "decode",
    "e2e_s": "total",
}
SHARES = (0.5, 0.95, 0.99)
# The measures that each column comes from; without any, only step records have it.
_MEASURES_OF = {
    "num_running": ("num_running",),
    "num_waiting": ("num_waiting",),
    "kv_live_ratio": ("kv_live_ratio",),
    "num_preempted": ("num_preempted",),
    "prefill_tokens_per_s": ("prefill_tokens",),
    "output_tokens_per_s": ("output_tokens",),
    "acceptance_rate": ("accepted_tokens", "acceptance_rate"),
    "prefix_hit_ratio": ("prefix_hit_tokens", "prefix_hit_ratio"),
    "waiting_by_reason": ("num_waiting_by_reason",),
}
_SUMMED = ("num_running", "num_waiting", "num_preempted")


def state_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return engines' metrics as rows of `COLUMNS`; None if no engine reported the value.

    Several engines are added up; their ratios are averaged.

    Args:
        rows: Of the query `engine_state_series`.
    """
    by_bucket: dict[Any, dict[str, dict[str, float]]] = {}
    for row in rows:
        values = by_bucket.setdefault(row["bucket"], {}).setdefault(row["engine"], {})
        values[row["measure"]] = values.get(row["measure"], 0.0) + row["value"]
        if row["per_s"] is not None:
            name = f"{row['measure']}_per_s"
            values[name] = values.get(name, 0.0) + row["per_s"]
    return [
        {"bucket": bucket, **_combined(by_bucket[bucket].values())} for bucket in sorted(by_bucket)
    ]


def _combined(engines: Collection[Mapping[str, float]]) -> dict[str, float | None]:
    def total(measure: str) -> float | None:
        found = [each[measure] for each in engines if measure in each]
        return sum(found) if found else None

    def mean(values: Iterable[float | None]) -> float | None:
        found = [value for value in values if value is not None]
        return fmean(found) if found else None

    columns: dict[str, float | None] = dict.fromkeys(COLUMNS)
    return columns | {
        **{name: total(name) for name in _SUMMED},
        "kv_live_ratio": mean(each.get("kv_live_ratio") for each in engines),
        "prefill_tokens_per_s": total("prefill_tokens_per_s"),
        "output_tokens_per_s": total("output_tokens_per_s"),
        "acceptance_rate": mean(map(_acceptance, engines)),
        "prefix_hit_ratio": mean(map(_hits, engines)),
    }


def _acceptance(engine: Mapping[str, float]) -> float | None:
    counted = _ratio(engine.get("accepted_tokens"), engine.get("drafted_tokens"))
    return engine.get("acceptance_rate") if counted is None else counted


def _hits(engine: Mapping[str, float]) -> float | None:
    # Some engines count only hits: then all prompt tokens were looked up.
    queried = engine.get("prefix_queried_tokens", engine.get("prefill_tokens"))
    counted = _ratio(engine.get("prefix_hit_tokens"), queried)
    return engine.get("prefix_hit_ratio") if counted is None else counted


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def waiting_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return waiting requests by reason from engines' own gauges."""
    return [
        {"bucket": row["bucket"], "reason": row["label"] or "other", "num_waiting": row["value"]}
        for row in rows
        if row["measure"] == "num_waiting_by_reason"
    ]


def engines_of(rows: Iterable[Row]) -> list[str]:
    """Return the engines that rows come from, by name."""
    return sorted({row["engine"] for row in rows})


def names_of(engines: Sequence[str]) -> str:
    """Return the engines' titles as a list in words."""
    titles = [title_of(engine) for engine in engines]
    return " and ".join([", ".join(titles[:-1]), titles[-1]] if len(titles) > 1 else titles)


def is_column_reported(column: str, engines: Sequence[str]) -> bool:
    """Tell whether any of these engines has a metric for a column; step records have them all."""
    return not engines or any(
        known_engines()[engine].sources(measure)
        for engine in engines
        if engine in known_engines()
        for measure in _MEASURES_OF.get(column, ())
    )


@dataclass(frozen=True, slots=True)
class HistogramRow:
    """One of an engine's histograms over a range, in words.

    Attributes:
        engine: The engine's title.
        name: What is measured.
        values: The median, 95th and 99th percentile.
        num_observations: Observations in the range, in words.
        note: What differs from our definition.
    """

    engine: str
    name: str
    values: tuple[str, ...]
    num_observations: str
    note: str


def histogram_rows(rows: Sequence[Row], engines: Sequence[str]) -> list[HistogramRow]:
    """Return a row per engine and measure; what an engine does not report says so.

    Args:
        rows: Of the query `engine_histograms`.
        engines: The engines to list.
    """
    found: list[HistogramRow] = []
    for engine in engines:
        known = known_engines().get(engine)
        for measure, name in HISTOGRAMS.items():
            sources = known.sources(measure) if known else ()
            mine = [r for r in rows if (r["engine"], r["measure"]) == (engine, measure)]
            # Instances with other buckets cannot be added up: the one that counted most stands.
            best = max(mine, key=lambda r: sum(r["counts"]), default=None)
            if best is not None:
                # Read by its own file, or by the one of names that engines share.
                sources = known_engines()[best["mapped_as"]].sources(measure)
            if not sources:
                values: tuple[str, ...] = (formats.NOT_REPORTED,) * len(SHARES)
                num, note = formats.NOT_REPORTED, ""
            elif best is None or not sum(best["counts"]):
                values, num = (formats.NO_DATA,) * len(SHARES), formats.count(0 if best else None)
                note = sources[0].note
            else:
                values = tuple(quantile_words(best["bounds"], best["counts"], s) for s in SHARES)
                num, note = formats.count(sum(best["counts"])), sources[0].note
            found.append(HistogramRow(title_of(engine), name, values, num, note))
    return found


def quantile_words(bounds: Sequence[float], counts: Sequence[int], share: float) -> str:
    """Return a quantile, interpolated within its bucket; beyond the last bound "> bound".

    In the first bucket it is "≤ bound": half of vLLM's for the queue, which ends at 300 ms, would
    be 150 ms for requests that never waited.
    """
    wanted, below, low = share * sum(counts), 0.0, 0.0
    for number, (bound, count) in enumerate(zip(bounds, counts, strict=False)):
        if count and below + count >= wanted:
            if not number:
                return f"≤ {formats.seconds(bound)}"
            return formats.seconds(low + (bound - low) * (wanted - below) / count)
        below, low = below + count, bound
    return f"> {formats.seconds(low)}" if bounds else formats.NO_DATA
