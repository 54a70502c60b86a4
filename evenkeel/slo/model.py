"""What an SLO file says, once parsed: objectives, selectors, windows, receivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from evenkeel.slo.arithmetic import (
    AlertWindow,
    Counts,
    Severity,
    Significance,
    WindowRule,
    alert_windows,
    exceeds,
)
from evenkeel.slo.budget_policy import BudgetStep
from evenkeel.slo.calendar import Calendar
from evenkeel.slo.receiver import Receiver
from evenkeel.slo.routing import InhibitRule, Maintenance
from evenkeel.slo.rules import Rule
from evenkeel.slo.selection import Filter, SelectOperator, StatusRange, selection_text


class Metric(StrEnum):
    """What an objective judges of a request; docs/metrics.md defines each.

    TTFT to e2e are durations with a threshold; `itl` is the request's 99th percentile. `joint`
    judges several of them at once. `acceptance` and `cache_hit` count tokens, not requests:
    accepted of drafted ones, cached of input ones. `eval_pass` counts scored answers of
    evaluations, `composite` the weighted events of other SLOs.
    """

    TTFT = "ttft"
    TPOT = "tpot"
    ITL = "itl"
    STALL = "stall"
    E2E = "e2e"
    AVAILABILITY = "availability"
    JOINT = "joint"
    ACCEPTANCE = "acceptance"
    CACHE_HIT = "cache_hit"
    EVAL_PASS = "eval_pass"
    COMPOSITE = "composite"


DURATIONS = (Metric.TTFT, Metric.TPOT, Metric.ITL, Metric.STALL, Metric.E2E)
TOKEN_RATIOS = (Metric.ACCEPTANCE, Metric.CACHE_HIT)


class Method(StrEnum):
    """What spends the budget, in OpenSLO's words.

    Attributes:
        OCCURRENCES: Each event once.
        TIMESLICES: Each slice of time with events once: bad if its share of good events is below
            the slice's target.
        RATIO_TIMESLICES: Each slice of time with events once, by its share of bad events.
    """

    OCCURRENCES = "Occurrences"
    TIMESLICES = "Timeslices"
    RATIO_TIMESLICES = "RatioTimeslices"


class Treatment(StrEnum):
    """How a request that did not end well counts.

    Attributes:
        BAD: Valid, not good.
        MEASURED: Judged by its metric like any other; for availability it counts as good.
        EXCLUDED: Not a valid event.
    """

    BAD = "bad"
    MEASURED = "measured"
    EXCLUDED = "excluded"


SELECTOR_COLUMNS = ("model", "tenant", "slo_class", "route", "prompt_name", "prompt_version")
EVAL_SELECTOR_COLUMNS = ("dataset", "model", "prompt_name", "prompt_version", "scorer")


@dataclass(frozen=True, slots=True)
class Indicator:
    """Which requests are valid events, and which of these are good.

    Attributes:
        metric: What is judged.
        threshold_s: A request is good up to and including this many seconds; None where the
            metric takes none.
        select: Column → the value it must have; empty selects everything.
        error: How failed requests count.
        aborted: How requests that the client left count.
        shed: How requests that admission refused count.
        limits: Of a joint objective: each duration's threshold in seconds. A request is good that
            meets all that it has; one that has none of them is no event.
        members: Of a composite: the other SLOs' indicators and what an event of each weighs.
        filters: What columns must be beyond `select`.
        grouping: By which columns it is many SLOs; None: it is one.
        statuses: How requests count that were answered with these HTTP statuses, whatever `error`,
            `aborted` and `shed` say; they do not overlap.
    """

    metric: Metric
    threshold_s: float | None
    select: Mapping[str, str] = field(default_factory=dict)
    error: Treatment = Treatment.BAD
    aborted: Treatment = Treatment.BAD
    shed: Treatment = Treatment.BAD
    limits: Mapping[Metric, float] = field(default_factory=dict)
    members: tuple[Member, ...] = ()
    filters: tuple[Filter, ...] = ()
    statuses: tuple[StatusRange, ...] = ()
    grouping: Grouping | None = None

    @property
    def selection(self) -> str:
        """What it selects, for people; '' where that is everything."""
        return selection_text(self.select, self.filters)

    @property
    def prompts(self) -> tuple[str, ...] | None:
        """The prompts that it selects by name: none for every prompt; None where names do not say.

        A pattern or a negation selects prompts that nobody has named yet.
        """
        if "prompt_name" in self.select:
            return (self.select["prompt_name"],)
        conditions = [each for each in self.filters if each.column == "prompt_name"]
        if len(conditions) > 1 or any(each.test is not SelectOperator.IN for each in conditions):
            return None
        return conditions[0].values if conditions else ()

    @property
    def judged(self) -> Mapping[Metric, float]:
        """Every duration that is judged, with its threshold in seconds."""
        return self.limits if self.threshold_s is None else {self.metric: self.threshold_s}

    @property
    def parts(self) -> tuple[Member, ...]:
        """What is counted: this indicator, or the members of a composite."""
        return self.members or (Member(self, Fraction(1)),)


@dataclass(frozen=True, slots=True)
class Grouping:
    """One SLO for each combination of values that these columns had, `most` at a time."""

    columns: tuple[str, ...]
    most: int


@dataclass(frozen=True, slots=True)
class Group:
    """Which group of a definition an SLO is about.

    Attributes:
        definition: The name of the SLO in the file.
        values: Of its columns.
        since_ns: No request of the group is older, in unix nanoseconds.
    """

    definition: str
    values: Mapping[str, str]
    since_ns: int


@dataclass(frozen=True, slots=True)
class Member:
    """One indicator within a composite."""

    indicator: Indicator
    weight: Fraction


@dataclass(frozen=True, slots=True)
class Slicing:
    """How a slice of time is judged; `target` is None where its ratio counts as it is."""

    method: Method
    length_s: Fraction
    target: Fraction | None = None

    def slice_of(self, counts: Counts) -> Counts:
        """Return what a slice with these events counts for: one event, or none without events."""
        if counts.total <= 0:
            return Counts(0.0, 0.0)
        if self.target is None:
            return Counts(1.0, counts.bad / counts.total)
        return Counts(1.0, float(exceeds(counts, 1 - self.target)))


@dataclass(frozen=True, slots=True)
class Slo:
    """One objective over a period, and when its budget's burning alerts.

    Attributes:
        name: Unique in the file.
        title: One line for people; the name where none is given.
        indicator: Valid and good events.
        target: The share of valid events that must be good, between 0 and 1.
        period_s: The period before scaling.
        rules: The alert windows before scaling.
        scale: What shortens every duration of this SLO; 1 leaves them as written.
        pending_s: How long windows must burn before the alert fires (`for`), before scaling.
        keep_firing_s: How long they must not burn before it resolves, before scaling.
        min_bad: Bad events that the long window must hold before the alert fires: with little
            traffic one slow request is a high ratio and no incident.
        confidence: Of the one-sided interval whose lower end must lie above a page's limit too;
            None: the observed ratio alone decides.
        no_data_s: How long without any valid event before `SloNoData` fires, before scaling;
            None: the longest short window, never for groups; 0: never.
        labels: Go on every alert of this SLO.
        slicing: How slices of time are judged; None: every event counts once.
        calendar: Whose current period the budget belongs to; None: a rolling one.
        budget_policy: What is done when shares of the budget are spent, the least first.
        kept: What its document says beside, by path, such as `spec.alertPolicies`; written again
            on export and used for nothing.
        group: Of what definition it is a part; None where it is one itself.
    """

    name: str
    title: str
    indicator: Indicator
    target: Fraction
    period_s: Fraction
    rules: tuple[WindowRule, ...]
    scale: Fraction = Fraction(1)
    pending_s: Fraction = Fraction(0)
    keep_firing_s: Fraction = Fraction(0)
    min_bad: int = 1
    confidence: Fraction | None = None
    no_data_s: Fraction | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    slicing: Slicing | None = None
    calendar: Calendar | None = None
    budget_policy: tuple[BudgetStep, ...] = ()
    kept: Mapping[str, object] = field(default_factory=dict)
    group: Group | None = None

    @property
    def scaled_period_s(self) -> Fraction:
        """The period as evaluated."""
        return self.period_s * self.scale

    @property
    def windows(self) -> tuple[AlertWindow, ...]:
        """The alert windows as evaluated."""
        return alert_windows(self.period_s, self.rules, self.scale)

    @property
    def significance(self) -> Significance:
        """What a pair of windows needs besides its burn rates."""
        return Significance(self.min_bad, self.confidence)

    @property
    def scaled_no_data_s(self) -> Fraction:
        """How long without valid events before that is an alert of its own; 0: never."""
        if self.no_data_s is None and (self.indicator.grouping or self.group):
            # A group comes and goes: that nobody asks is told only where the file wants it.
            return Fraction(0)
        if self.no_data_s is None:
            return max(window.short_s for window in self.windows)
        return self.no_data_s * self.scale

    @property
    def severities(self) -> tuple[Severity, ...]:
        """The severities this SLO can alert with, most urgent first."""
        used = {rule.severity for rule in self.rules}
        return tuple(severity for severity in Severity if severity in used)


@dataclass(frozen=True, slots=True)
class ForeignSlo:
    """An SLO that was read and is kept, but not evaluated.

    Attributes:
        name: As its document says.
        reason: Why it is not evaluated, with file and line.
        document: The whole document, in OpenSLO v1 or v1alpha.
        slos: Its objectives, for a replay of counts from elsewhere: their indicator says nothing.
            None where an objective or the period cannot be read.
    """

    name: str
    reason: str
    document: Mapping[str, object]
    slos: tuple[Slo, ...] = ()


@dataclass(frozen=True, slots=True)
class SloFile:
    """A valid SLO file.

    Attributes:
        path: Where it was read.
        slos: In the file's order; none where it holds rules alone.
        receivers: May be empty: then alerts are recorded and delivered to nobody.
        interval_s: Time between two evaluations.
        rules: Alerts beside the SLOs.
        inhibitions: Which alerts withhold which.
        maintenance: Which alerts nobody is told of at times that come again.
        foreign: SLOs over other systems' metrics.
        kept: OpenSLO's documents of other kinds; used for nothing but references.
        own: Our documents of kind Alerting and Rule, as text and numbers.
        notes: What of the file is not used, a line each.
    """

    path: Path
    slos: tuple[Slo, ...]
    receivers: tuple[Receiver, ...] = ()
    interval_s: float = 5.0
    rules: tuple[Rule, ...] = ()
    inhibitions: tuple[InhibitRule, ...] = ()
    maintenance: tuple[Maintenance, ...] = ()
    foreign: tuple[ForeignSlo, ...] = ()
    kept: tuple[Mapping[str, object], ...] = ()
    own: tuple[Mapping[str, object], ...] = ()
    notes: tuple[str, ...] = ()
