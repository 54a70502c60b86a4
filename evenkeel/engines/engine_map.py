"""Reads the engines' files: one TOML file per engine, with the version and source of its facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from evenkeel.engines.measures import MEASURES, MeasureKind
from evenkeel.toml_file import read_toml_file

FOLDER = Path(__file__).parent
# What a request's span can be mapped to.
SPAN_FIELDS = (
    "model",
    "request_id",
    "max_tokens",
    "temperature",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "queue_s",
    "prefill_s",
    "decode_s",
    "ttft_s",
    "e2e_s",
)
_NAME = r"^[a-z0-9][a-z0-9.-]{0,39}$"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Facts(_Table):
    """Where an engine's facts come from.

    Attributes:
        version: The version they hold for.
        basis: `recorded` from a running engine, or `documented`: in its documentation, source or
            tests.
        source: Addresses or names of what was read.
    """

    version: str
    basis: Literal["recorded", "documented"]
    source: list[str] = Field(min_length=1)


class SpanRule(_Table):
    """How the engine's own request spans are recognised; every given condition must hold.

    Attributes:
        scope: The instrumentation scope.
        span: The span's name.
        attributes: Attributes that must be present; the first is also what a span is preselected
            by, so it should be rare.
        equals: Attributes that must have one of these values; "" is a missing one.
        fields: Our fields, and the attribute each is read from. Durations are seconds, or a number
            with a unit such as 12.5ms. Without `e2e_s` the span's own duration counts.
    """

    scope: str = ""
    span: str = ""
    attributes: list[str] = Field(min_length=1)
    equals: dict[str, list[str]] = Field(default_factory=dict)
    fields: dict[str, str] = Field(default_factory=dict)

    @property
    def num_conditions(self) -> int:
        """How specific the rule is: the most specific one wins."""
        return bool(self.scope) + bool(self.span) + len(self.attributes) + len(self.equals)

    @model_validator(mode="after")
    def _check_fields(self) -> SpanRule:
        for name in self.fields:
            if name not in SPAN_FIELDS:
                raise ValueError(f"fields.{name} is not one of {', '.join(SPAN_FIELDS)}")
        return self


class MetricSource(_Table):
    """One metric that measures something.

    Attributes:
        metric: Its name, as on the Prometheus page.
        where: The value that one label must have; "" is a missing or empty one.
        scale: Factor to our unit: 0.001 for milliseconds.
        take: `sum` counts up the observations of a histogram or summary.
        is_delta: Whether each point counts for itself, rather than from the engine's start.
        may_count_cached: Whether the share of KV blocks may include ones kept only for reuse.
        note: What differs from our definition.
    """

    metric: str = Field(min_length=1)
    where: dict[str, str] = Field(default_factory=dict, max_length=1)
    scale: float = Field(default=1.0, gt=0)
    take: Literal["value", "sum"] = "value"
    is_delta: bool = False
    may_count_cached: bool = False
    note: str = ""

    @property
    def base(self) -> str:
        """The name without the suffix that only some senders put on counters."""
        return self.metric.removesuffix("_total")

    @property
    def key(self) -> str:
        """What queries compare: `name` or `name{label=value}`, without that suffix."""
        return self._with_label(self.base)

    @property
    def exact_key(self) -> str:
        """The same with the name as it is."""
        return self._with_label(self.metric)

    def _with_label(self, name: str) -> str:
        for label, value in self.where.items():
            return f"{name}{{{label}={value}}}"
        return name


def _as_sources(value: Any) -> Any:
    listed = value if isinstance(value, list) else [value]
    return [{"metric": each} if isinstance(each, str) else each for each in listed]


Sources = Annotated[list[MetricSource], BeforeValidator(_as_sources), Field(min_length=1)]


class VersionHint(_Table):
    """What the presence of a metric says about the engine's version."""

    metric: str
    version: str


class Metrics(_Table):
    """What the engine's Prometheus page means.

    Attributes:
        prefixes: Begins of the names that only this engine uses.
        is_shared: Whether engines of any kind have these names. Then they count only for a source
            without an engine of its own names, and the sender says which engine it is.
        path: Path of the page.
        model_label: The label with the model's name; "" if there is none.
        version_hints: What the presence of a metric says about the version; the first wins.
        names: Our measures, and the metrics each is read from, newer names first.
    """

    prefixes: list[str] = Field(min_length=1)
    is_shared: bool = False
    path: str = "/metrics"
    model_label: str = ""
    version_hints: list[VersionHint] = Field(default_factory=list)
    names: dict[str, Sources]

    @model_validator(mode="after")
    def _check_names(self) -> Metrics:
        for name, sources in self.names.items():
            measure = MEASURES.get(name)
            if measure is None:
                raise ValueError(f"names.{name} is not one of {', '.join(MEASURES)}")
            if any(each.take == "sum" for each in sources) and measure.kind != MeasureKind.COUNTER:
                raise ValueError(f"names.{name}: take = 'sum' is for counters")
        return self


class EngineMap(_Table):
    """All that is known of one engine.

    Attributes:
        name: The value of `requests.engine`.
        title: Its name for people.
        facts: Version and source.
        providers: By which values clients name it in `gen_ai.provider.name`, `gen_ai.system`,
            `llm.provider` or `llm.system`, lower case, besides its own name.
        spans: Its own request spans; None if it sends none.
        metrics: Its metrics; None if it has no Prometheus page.
    """

    name: str = Field(pattern=_NAME)
    title: str
    facts: Facts
    providers: list[str] = Field(default_factory=list)
    spans: SpanRule | None = None
    metrics: Metrics | None = None

    def sources(self, measure: str) -> Sequence[MetricSource]:
        """Return the metrics that a measure is read from; () if it is not reported."""
        return self.metrics.names.get(measure, ()) if self.metrics else ()

    @property
    def fields(self) -> frozenset[str]:
        """The fields of a request that the engine's own spans have."""
        return frozenset({"e2e_s", *self.spans.fields}) if self.spans else frozenset()


def read_engine(path: Path) -> EngineMap:
    """Return the map in a file.

    Raises:
        ConfigurationError: On anything but a valid map; names the file, the line and the key.
    """
    return read_toml_file(path, EngineMap)


@cache
def known_engines() -> Mapping[str, EngineMap]:
    """Return the engines that evenkeel knows, by name."""
    found = [read_engine(path) for path in sorted(FOLDER.glob("*.toml"))]
    return {each.name: each for each in found}


def by_provider(engines: Iterable[EngineMap]) -> Mapping[str, str]:
    """Return the engines' names by what names them in `gen_ai.provider.name`, lower case."""
    return {value: each.name for each in engines for value in (each.name, *each.providers)}


def title_of(engine: str) -> str:
    """Return an engine's name for people; an unknown one is shown as it is."""
    known = known_engines().get(engine)
    return known.title if known else engine


def sources_of(measure: str) -> Iterator[tuple[str, MetricSource]]:
    """Yield the engines that report a measure, with the metrics it is read from."""
    for name, engine in known_engines().items():
        for source in engine.sources(measure):
            yield name, source
