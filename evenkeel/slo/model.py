"""The parsed content of an SLO file: objectives, selectors, windows, receivers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

from evenkeel.durations import format_duration
from evenkeel.slo.budget_policy import BudgetStep
from evenkeel.slo.burn_rates import (
    AlertWindow,
    Counts,
    Severity,
    Significance,
    WindowRule,
    alert_windows,
    exceeds,
)
from evenkeel.slo.calendar import Calendar
from evenkeel.slo.receiver import Receiver
from evenkeel.slo.routing import InhibitRule, Maintenance
from evenkeel.slo.rules import Rule
from evenkeel.slo.selection import Filter, SelectOperator, StatusRange, selection_text


class Metric(StrEnum):
    """The metric an objective judges; docs/metrics.md defines each.

    TTFT to e2e are durations with a threshold; `itl` is the request's 99th percentile. `joint`
    judges several durations at once. `acceptance` and `cache_hit` count tokens, not requests:
    accepted of drafted ones, cached of input ones. `eval_pass` counts scored answers of
    evaluations, `session_…` sessions that are over, `composite` the weighted events of other SLOs.
    `feedback` counts people's scores of answers, `cost` is a budget in money: what the requests of
    a period may cost.
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
    SESSION_E2E = "session_e2e"
    SESSION_TURNS = "session_turns"
    SESSION_SUCCESS = "session_success"
    FEEDBACK = "feedback"
    COST = "cost"
    COMPOSITE = "composite"


DURATIONS = (Metric.TTFT, Metric.TPOT, Metric.ITL, Metric.STALL, Metric.E2E)
TOKEN_RATIOS = (Metric.ACCEPTANCE, Metric.CACHE_HIT)
# Counted by a query of their own.
COUNTED_APART = (Metric.EVAL_PASS, Metric.FEEDBACK, Metric.COST)
SESSIONS = (Metric.SESSION_E2E, Metric.SESSION_TURNS, Metric.SESSION_SUCCESS)


class Method(StrEnum):
    """What spends the budget, in OpenSLO's terms.

    Attributes:
        OCCURRENCES: Each event counts once.
        TIMESLICES: Each time slice with events counts once: bad if its share of good events is
            below the slice's target.
        RATIO_TIMESLICES: Each time slice with events counts once, by its share of bad events.
    """

    OCCURRENCES = "Occurrences"
    TIMESLICES = "Timeslices"
    RATIO_TIMESLICES = "RatioTimeslices"


class Treatment(StrEnum):
    """How a request that did not succeed counts.

    Attributes:
        BAD: Valid, not good.
        MEASURED: Judged by its metric like any other; good for availability.
        EXCLUDED: Not a valid event.
    """

    BAD = "bad"
    MEASURED = "measured"
    EXCLUDED = "excluded"


SELECTOR_COLUMNS = (
    "model", "tenant", "slo_class", "route", "prompt_name", "prompt_version", "engine",
)  # fmt: skip
# How long a session must be silent to be over.
SILENCE_S = Fraction(1800)
# What a session has one value of.
SESSION_SELECTOR_COLUMNS = ("model", "tenant", "route")
EVAL_SELECTOR_COLUMNS = ("dataset", "model", "prompt_name", "prompt_version", "scorer")


@dataclass(frozen=True, slots=True)
class Indicator:
    """An SLI: which requests are valid events, and which of these are good.

    Attributes:
        metric: The metric judged.
        threshold_s: A request is good up to and including this many seconds; None if the metric
            has no threshold.
        select: Column → the value it must have; empty selects everything.
        error: How failed requests count.
        aborted: How requests abandoned by the client count.
        shed: How requests rejected by admission count.
        limits: For a joint objective, each duration's threshold in seconds. A request is good if
            it meets the limit of each duration it has; without any, it is not an event.
        members: For a composite, the other SLOs' indicators and the weight of their events.
        filters: Conditions on columns in addition to `select`.
        grouping: Columns that split it into many SLOs; None: it is one SLO.
        statuses: How requests answered with these HTTP statuses count, overriding `error`,
            `aborted` and `shed`; the ranges do not overlap.
        most_turns: A session is good up to and including this many turns; None for other metrics.
        silence_s: A session is over, and judged, this long after its last request or tool call,
            before scaling.
        budget: What the selected requests may cost in a period, in the bill's currency; None if it
            is no budget in money.
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
    most_turns: int | None = None
    silence_s: Fraction = SILENCE_S
    budget: float | None = None

    @property
    def threshold(self) -> float | None:
        """The limit as a file has it: seconds, or turns; None if the metric has none."""
        return self.threshold_s if self.most_turns is None else self.most_turns

    @property
    def is_requests(self) -> bool:
        """Whether its events are requests or their tokens, not scores, sessions or money."""
        return self.metric not in (*COUNTED_APART, *SESSIONS)

    @property
    def selection(self) -> str:
        """The selection as readable text; '' if it selects everything."""
        return selection_text(self.select, self.filters)

    @property
    def prompts(self) -> tuple[str, ...] | None:
        """The prompts it selects by name: empty for every prompt; None if not selected by name.

        A pattern or a negation also selects prompts that do not exist yet.
        """
        if "prompt_name" in self.select:
            return (self.select["prompt_name"],)
        conditions = [each for each in self.filters if each.column == "prompt_name"]
        if len(conditions) > 1 or any(each.test is not SelectOperator.IN for each in conditions):
            return None
        return conditions[0].values if conditions else ()

    @property
    def judged(self) -> Mapping[Metric, float]:
        """Every judged duration, with its threshold in seconds."""
        return self.limits if self.threshold_s is None else {self.metric: self.threshold_s}

    @property
    def parts(self) -> tuple[Member, ...]:
        """The indicators to count: this one, or the members of a composite."""
        return self.members or (Member(self, Fraction(1)),)

    @property
    def shared_select(self) -> Mapping[str, str]:
        """What it selects by single values; of a composite, what all members select."""
        first, *others = (member.indicator.select for member in self.parts)
        return {k: v for k, v in first.items() if all(each.get(k) == v for each in others)}


@dataclass(frozen=True, slots=True)
class Grouping:
    """One SLO per combination of values seen in these columns, up to `most` at a time."""

    columns: tuple[str, ...]
    most: int


@dataclass(frozen=True, slots=True)
class Group:
    """The group of a definition that an SLO covers.

    Attributes:
        definition: The name of the SLO in the file.
        values: The values of its columns.
        since_ns: Time of the group's oldest request, in unix nanoseconds, or earlier.
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
    """How a time slice is judged; `target` is None if its ratio counts unchanged."""

    method: Method
    length_s: Fraction
    target: Fraction | None = None

    def slice_of(self, counts: Counts) -> Counts:
        """Return what a slice with these events counts as: one event, or none if it is empty."""
        if counts.total <= 0:
            return Counts(0.0, 0.0)
        if self.target is None:
            return Counts(1.0, counts.bad / counts.total)
        return Counts(1.0, float(exceeds(counts, 1 - self.target)))


@dataclass(frozen=True, slots=True)
class Slo:
    """One objective over a period, and when burning its budget raises an alert.

    Attributes:
        name: Unique in the file.
        title: One readable line; the name by default.
        indicator: Valid and good events.
        target: The share of valid events that must be good, between 0 and 1.
        period_s: The period before scaling.
        rules: The alert windows before scaling.
        scale: Shortens every duration of this SLO; 1 leaves them as written.
        pending_s: How long windows must burn before the alert fires (`for`), before scaling.
        keep_firing_s: How long they must not burn before it resolves, before scaling.
        min_bad: Bad events that the long window must contain before the alert fires: at low traffic
            one slow request is a high ratio but no incident.
        confidence: Of the one-sided interval whose lower end must also exceed a page's limit; None:
            the observed ratio alone decides.
        no_data_s: Time without a valid event after which `SloNoData` fires, before scaling; None:
            the longest short window, never for groups; 0: never.
        labels: Added to every alert of this SLO.
        slicing: How time slices are judged; None: every event counts once.
        calendar: The calendar whose current period the budget covers; None: a rolling period.
        budget_policy: Steps taken as shares of the budget are spent, smallest first.
        kept: Other content of its document, by path, such as `spec.alertPolicies`; written on
            export but otherwise unused.
        group: The group of a definition it covers; None if it is the definition.
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
    def longest_period_s(self) -> Fraction:
        """The longest that the period can be: a calendar month may have 31 days and an hour."""
        return self.scaled_period_s if self.calendar is None else self.calendar.longest_s

    @property
    def current_period(self) -> str:
        """The time that the budget covers now, in words: the last 30d, this month."""
        if self.calendar is None:
            return f"the last {format_duration(self.scaled_period_s)}"
        return f"{'this' if self.calendar.count == 1 else 'these'} {self.calendar.words}"

    @property
    def period_words(self) -> str:
        """The length of the period in words: 30d, a calendar month, 2 calendar weeks."""
        if self.calendar is None:
            return format_duration(self.scaled_period_s)
        number, _, unit = self.calendar.words.rpartition(" ")
        return f"{number or 'a'} calendar {unit}"

    @property
    def windows(self) -> tuple[AlertWindow, ...]:
        """The alert windows as evaluated."""
        return alert_windows(self.period_s, self.rules, self.scale)

    @property
    def significance(self) -> Significance:
        """Conditions for a pair of windows in addition to its burn rates."""
        return Significance(self.min_bad, self.confidence)

    @property
    def scaled_no_data_s(self) -> Fraction:
        """Time without valid events after which a separate alert fires; 0: never."""
        if self.indicator.metric is Metric.COST:
            # Without requests, nothing is spent.
            return Fraction(0)
        if self.no_data_s is None and (self.indicator.grouping or self.group):
            # Groups come and go: a lack of requests alerts only if the file asks for it.
            return Fraction(0)
        if self.no_data_s is None:
            return max(window.short_s for window in self.windows)
        return self.no_data_s * self.scale

    @property
    def severities(self) -> tuple[Severity, ...]:
        """The severities of this SLO's alerts, most urgent first."""
        used = {rule.severity for rule in self.rules}
        return tuple(severity for severity in Severity if severity in used)


@dataclass(frozen=True, slots=True)
class ForeignSlo:
    """An SLO that is preserved but not evaluated.

    Attributes:
        name: The name in its document.
        reason: Why it is not evaluated, with file and line.
        document: The whole document, in OpenSLO v1 or v1alpha.
        slos: Its objectives, for replaying counts from elsewhere; ignore their indicator. None
            if an objective or the period cannot be read.
    """

    name: str
    reason: str
    document: Mapping[str, object]
    slos: tuple[Slo, ...] = ()


@dataclass(frozen=True, slots=True)
class SloFile:
    """A valid SLO file.

    Attributes:
        path: The file it was read from.
        slos: In the file's order; empty if it contains only rules.
        receivers: May be empty: alerts are then recorded but not delivered.
        interval_s: Time between two evaluations.
        rules: Alerts in addition to the SLOs'.
        inhibitions: Which alerts inhibit which.
        maintenance: Recurring times at which matching alerts notify nobody.
        foreign: SLOs over other systems' metrics.
        kept: OpenSLO documents of other kinds; used only to resolve references.
        own: Our documents of kind Alerting and Rule, as plain data.
        notes: Parts of the file that are not used, one line each.
        anomalies: The default rules in force beside the file's.
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
    anomalies: tuple[Rule, ...] = ()

    @property
    def all_rules(self) -> tuple[Rule, ...]:
        """The rules to evaluate: the file's own and the default ones in force."""
        return self.rules + self.anomalies
