"""Reads the file that describes a live evaluation."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from evenkeel.durations import parse_duration_s
from evenkeel.errors import ConfigurationError
from evenkeel.secret_text import hide_password
from evenkeel.toml_file import read_toml_file
from evenkeel_evals.ask.pair_judge import DEFAULT_CRITERIA
from evenkeel_evals.ask.sides import Side, base_url
from evenkeel_evals.production.live_sample import SamplingPlan
from evenkeel_evals.scorers.base import Scorer, make_scorer

Column = Literal["model", "tenant", "slo_class", "route", "prompt_name", "prompt_version"]
JUDGE = "judge"
_GATE = re.compile(r"(?P<scorer>[a-z0-9_]+)\s*>=\s*(?P<percent>[0-9]{1,3}(?:\.[0-9]{1,6})?)\s*%")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Filter(_Strict):
    model: str = ""
    prompt_name: str = ""


class _Scorer(BaseModel):
    """A scorer that needs no per-request reference; further keys are its options."""

    model_config = ConfigDict(extra="allow")
    name: str
    reference: Any = None
    good_at_least: float | None = Field(default=None, gt=0, lt=1)


class _Judge(_Strict):
    url: str = Field(pattern="^https?://")
    model: str | None = None
    criteria: str = DEFAULT_CRITERIA
    calls_per_hour: int = Field(default=60, ge=1)
    good_at_least: float | None = Field(default=None, gt=0, lt=1)


class _DialBack(_Strict):
    gate: str
    prompt: str | None = Field(default=None, pattern="^[a-z0-9][a-z0-9_-]{0,99}$")
    label: Literal["production", "canary"] = "production"
    cache_route: str | None = Field(default=None, min_length=1, max_length=256)
    url: str | None = Field(default=None, pattern="^https?://")

    @model_validator(mode="after")
    def _is_one(self) -> _DialBack:
        if _GATE.fullmatch(self.gate) is None:
            raise ValueError(f"gate is {self.gate[:60]!r}, expected one such as judge>=95%")
        if (self.prompt is None) == (self.cache_route is None):
            raise ValueError("a [[dial_back]] needs exactly one of prompt and cache_route")
        if (self.cache_route is None) != (self.url is None):
            raise ValueError("cache_route and url must be given together")
        if self.cache_route is not None and "label" in self.model_fields_set:
            raise ValueError("label is only valid with prompt")
        return self


class _File(_Strict):
    name: str = Field(pattern="^[A-Za-z0-9._-]{1,64}$")
    window: str = "60s"
    settle: str = "30s"
    probability: float = Field(default=0.05, gt=0, le=1)
    min_per_stratum: int = Field(default=3, ge=1)
    strata: list[Column] = ["prompt_version"]
    filter: _Filter = _Filter()
    scorer: list[_Scorer] = []
    judge: _Judge | None = None
    dial_back: Annotated[list[_DialBack], Field(max_length=50)] = []

    @field_validator("scorer")
    @classmethod
    def _once(cls, scorers: list[_Scorer]) -> list[_Scorer]:
        names = [scorer.name for scorer in scorers]
        if len(set(names)) < len(names) or JUDGE in names:
            raise ValueError("each scorer may be named once, and none may be named judge")
        return scorers


@dataclass(frozen=True, slots=True)
class LiveJudge:
    """A model that judges whether a single answer is good.

    Attributes:
        side: The judge's server, model and sampling.
        criteria: What makes an answer good.
        calls_per_hour: Its budget of calls per hour.
    """

    side: Side
    criteria: str
    calls_per_hour: int


@dataclass(frozen=True, slots=True)
class DialBack:
    """What to dial back when a scorer's share of right answers is shown to be below a gate.

    Attributes:
        gate: The gate as it was written.
        scorer: Name of the scorer.
        least: The lowest acceptable share, 0 to 1.
        prompt: The prompt whose label to roll back; None for a cache.
        label: The label to roll back.
        cache_route: The route to put into shadow mode; None for a prompt.
        url: The runtime with that cache.
    """

    gate: str
    scorer: str
    least: float
    prompt: str | None
    label: str
    cache_route: str | None
    url: str | None

    @property
    def target(self) -> str:
        """Return its readable name."""
        if self.prompt is not None:
            return f"{self.prompt}@{self.label}"
        return f"the cache of route {self.cache_route} at {hide_password(self.url or '')}"


@dataclass(frozen=True, slots=True)
class LiveConfig:
    """Settings of a live evaluation.

    Attributes:
        name: Its name in the store.
        window_s: Length of a window, in seconds.
        settle_s: Delay after a window's end before it is read; spans arrive when requests end.
        plan: How many requests to sample.
        model: Only requests to this model; empty for all.
        prompt_name: Only requests with this prompt; empty for all.
        scorers: Scorers that see only the answer.
        judge: The judge; None for none.
        good_at_least: The lowest acceptable share of right answers, by scorer.
        dial_backs: What to dial back when production gets worse.
    """

    name: str
    window_s: float
    settle_s: float
    plan: SamplingPlan
    model: str
    prompt_name: str
    scorers: tuple[Scorer, ...]
    judge: LiveJudge | None
    good_at_least: dict[str, float]
    dial_backs: tuple[DialBack, ...] = ()

    @property
    def scorer_names(self) -> list[str]:
        """Return every scorer, the judge last."""
        return [scorer.name for scorer in self.scorers] + ([JUDGE] if self.judge else [])


def load_config(path: Path) -> LiveConfig:
    """Read a live evaluation from TOML.

    Raises:
        ConfigurationError: If the file cannot be read, a key is unknown or wrong, or it has no
            scorer.
    """
    file = read_toml_file(path, _File, secrets=frozenset({"url"}))
    if not file.scorer and file.judge is None:
        raise ConfigurationError(
            f"{path} has neither [[scorer]] nor [judge], so nothing would be scored"
        )
    limits = {s.name: s.good_at_least for s in file.scorer if s.good_at_least is not None}
    if file.judge is not None and file.judge.good_at_least is not None:
        limits[JUDGE] = file.judge.good_at_least
    names = [s.name for s in file.scorer] + ([JUDGE] if file.judge else [])
    scorers = tuple(
        make_scorer({"name": s.name, **(s.model_extra or {})}, s.reference) for s in file.scorer
    )
    for scorer in scorers:
        if scorer.checks:
            raise ConfigurationError(
                f"{path}: scorer {scorer.name!r} needs a {scorer.checks[0].kind} check, which live "
                "evaluations do not make; write the criterion in [judge]"
            )
    return LiveConfig(
        name=file.name,
        window_s=float(parse_duration_s(file.window)),
        settle_s=float(parse_duration_s(file.settle)),
        plan=SamplingPlan(tuple(file.strata), file.probability, file.min_per_stratum),
        model=file.filter.model,
        prompt_name=file.filter.prompt_name,
        scorers=scorers,
        judge=_judge(file.judge),
        good_at_least=limits,
        dial_backs=tuple(_dial_back(path, d, names) for d in file.dial_back),
    )


def _dial_back(path: Path, dial: _DialBack, names: list[str]) -> DialBack:
    match = _GATE.fullmatch(dial.gate)
    assert match is not None
    scorer, least = match["scorer"], float(match["percent"]) / 100
    if scorer not in names:
        known = ", ".join(names)
        raise ConfigurationError(
            f"{path}: gate {dial.gate!r}: no scorer {scorer!r}; known: {known}"
        )
    if not 0 < least < 1:
        raise ConfigurationError(
            f"{path}: gate {dial.gate!r}: expected more than 0% and less than 100%"
        )
    url = None if dial.url is None else base_url(dial.url)
    return DialBack(dial.gate, scorer, least, dial.prompt, dial.label, dial.cache_route, url)


def _judge(judge: _Judge | None) -> LiveJudge | None:
    if judge is None:
        return None
    # Enough for a reasoning model; others stop after one word.
    sampling = {"temperature": 0.0, "max_tokens": 512}
    url = base_url(judge.url)
    side = Side(JUDGE, url, judge.model, "evenkeel-live-judge", "1", None, sampling)
    return LiveJudge(side, judge.criteria, judge.calls_per_hour)
