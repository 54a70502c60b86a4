"""Whether a value is missing because its sender never reports it."""

from __future__ import annotations

from collections.abc import Iterable

from evenkeel.engines.engine_map import EngineMap, known_engines, title_of
from evenkeel.engines.measures import PagePart

# `requests.source` of our own runtime's spans.
OURS = "evenkeel"
NOT_REPORTED = "not reported"
# What the spans of instrumented clients can have; TTFT only with events for the first token.
CLIENT_FIELDS = frozenset(
    {
        "e2e_s",
        "ttft_s",
        "input_tokens",
        "output_tokens",
        "cached_tokens",
        "max_tokens",
        "temperature",
    }
)
# Derived from others.
_NEEDED = {"tpot_s": ("decode_s", "output_tokens")}
_SOURCE_TITLES = {
    "openinference": "OpenInference's client spans",
    "openllmetry": "OpenLLMetry's client spans",
    "gen_ai": "OpenTelemetry's client spans",
}


def is_reported(source: str, field: str) -> bool:
    """Tell whether requests of a source can have a field.

    Args:
        source: `requests.source`: who sent the span.
        field: A column of `requests`.
    """
    if source == OURS:
        return True
    engine = known_engines().get(source)
    fields = CLIENT_FIELDS if engine is None else engine.fields
    return all(needed in fields for needed in _NEEDED.get(field, (field,)))


def silent_sources(sources: Iterable[str], field: str) -> list[str]:
    """Return the titles of the sources whose requests cannot have a field."""
    return [
        _SOURCE_TITLES.get(source) or title_of(source)
        for source in sources
        if not is_reported(source, field)
    ]


def fills_by_spans(engine: EngineMap, part: PagePart) -> bool:
    """Tell whether the engine's own spans fill a part of a page."""
    return any(field in engine.fields for field in part.fields)
