"""Reads the routing tree, the inhibitions and the maintenance windows of an SLO file.

The tree and inhibitions by matchers use the keys of Alertmanager's configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from evenkeel.durations import format_duration
from evenkeel.errors import ConfigurationError
from evenkeel.slo.burn_rates import Severity
from evenkeel.slo.file.receiver import GROUPING_THEMSELVES, read_mute_time
from evenkeel.slo.matchers import Matcher, Operator, check_selective, parse_matchers
from evenkeel.slo.mute_time import MuteTime
from evenkeel.slo.receiver import AlertGrouping, Receiver, routed_name
from evenkeel.slo.routing import InhibitRule, Maintenance, Route
from evenkeel.slo.yaml_source import Value

_DEEPEST = 20
_MOST_ROUTES = 1_000
_ALL_LABELS = "..."

TimeIntervals = Mapping[str, tuple[MuteTime, ...]]


def read_time_intervals(listed: Value | None) -> dict[str, tuple[MuteTime, ...]]:
    """Return the named time intervals.

    Raises:
        ConfigurationError: On a repeated name or an invalid span.
    """
    found: dict[str, tuple[MuteTime, ...]] = {}
    for element in () if listed is None else listed.items():
        with element.section() as section:
            name = section.required("name")
            if name.text() in found:
                raise name.complaint(f"time interval {name.text()!r} appears twice")
            found[name.text()] = section.read("times", Value.each, read_mute_time)
    return found


def read_maintenance(element: Value) -> Maintenance:
    """Return a maintenance window.

    Raises:
        ConfigurationError: On matchers that match everything, or a window without a time.
    """
    with element.section() as section:
        matchers = section.read("matchers", _matchers)
        spans = section.read("times", Value.each, read_mute_time)
        comment = section.read_or("comment", "", Value.text)
    try:
        check_selective(matchers)
    except ConfigurationError as error:
        raise element.complaint(str(error)) from error
    if not spans:
        raise element.complaint("times is empty", "times")
    return Maintenance(matchers, spans, comment)


def read_inhibition(element: Value) -> InhibitRule:
    """Return an inhibition: by severity within an SLO, or by matchers.

    Raises:
        ConfigurationError: On a severity that withholds itself, or invalid matchers.
    """
    with element.section() as section:
        source, target, equal = (section.optional(k) for k in ("source", "target", "equal"))
        sources, targets = section.optional("source_matchers"), section.optional("target_matchers")
        if sources is not None or targets is not None:
            for value in (source, target):
                if value is not None:
                    raise value.complaint("give source and target, or matchers, not both")
            return InhibitRule(
                _matchers(sources or section.required("source_matchers")),
                _matchers(targets or section.required("target_matchers")),
                () if equal is None else equal.texts(),
            )
        rule = by_severity(
            (source or section.required("source")).choice(*Severity),
            (target or section.required("target")).choice(*Severity),
        )
        if rule.source == rule.target:
            raise element.complaint("an alert cannot withhold its own severity")
        if equal is not None:
            raise equal.complaint("equal needs source_matchers and target_matchers")
        return rule


def by_severity(source: Severity, target: Severity) -> InhibitRule:
    """Return the rule that withholds one severity of an SLO while another fires."""
    return InhibitRule(
        (Matcher("severity", Operator.EQUAL, source.value),),
        (Matcher("severity", Operator.EQUAL, target.value),),
        ("slo",),
    )


@dataclass(frozen=True, slots=True)
class _Options:
    """Options that children inherit; None: the receiver's own apply."""

    receiver: Value
    by: tuple[str, ...] | None = None
    wait_s: Fraction = Fraction(30)
    interval_s: Fraction = Fraction(300)
    repeat_s: Fraction | None = None


@dataclass(slots=True)
class _Tree:
    receivers: Mapping[str, Receiver]
    intervals: TimeIntervals
    used: dict[str, Receiver] = field(default_factory=dict)
    num_routes: int = 0


def read_routing(
    root: Value, receivers: Sequence[Receiver], intervals: TimeIntervals
) -> tuple[Receiver, ...]:
    """Return the receivers as the tree uses them, each with its routes.

    A receiver with different options in two routes is listed once per set of options; the second
    is named after its options.

    Raises:
        ConfigurationError: On a receiver or time interval missing from the file, or a tree deeper
            than 20 routes or larger than 1,000.
    """
    tree = _Tree({receiver.name: receiver for receiver in receivers}, intervals)
    route = _read_route(root, None, tree, 1)
    kept = {name: receiver for name, receiver in tree.receivers.items() if name not in tree.used}
    return tuple(replace(r, route=route) for r in (*tree.used.values(), *kept.values()))


def _read_route(value: Value, inherited: _Options | None, tree: _Tree, depth: int) -> Route:
    tree.num_routes += 1
    if depth > _DEEPEST or tree.num_routes > _MOST_ROUTES:
        raise value.complaint(f"routes are nested up to {_DEEPEST} deep, {_MOST_ROUTES} in all")
    with value.section() as section:
        matchers, continues = section.optional("matchers"), section.optional("continue")
        if inherited is None:
            for unexpected in (matchers, continues):
                if unexpected is not None:
                    raise unexpected.complaint("the root route matches every alert")
            inherited = _Options(section.required("receiver"))
        options = _Options(
            section.optional("receiver") or inherited.receiver,
            section.read_or("group_by", inherited.by, Value.texts),
            section.read_or("group_wait", inherited.wait_s, Value.duration_s),
            section.read_or("group_interval", inherited.interval_s, Value.duration_s),
            section.read_or("repeat_interval", inherited.repeat_s, Value.duration_s),
        )
        if options.receiver.text() not in tree.receivers:
            raise options.receiver.complaint(
                f"the file has no receiver {options.receiver.text()!r}"
            )
        mutes = _times(section.optional("mute_time_intervals"), tree.intervals)
        active = _times(section.optional("active_time_intervals"), tree.intervals)
        return Route(
            _use(tree, options, mutes, active),
            () if matchers is None else _matchers(matchers),
            continues is not None and continues.flag(),
            section.read_or(
                "routes", (), Value.each, lambda child: _read_route(child, options, tree, depth + 1)
            ),
        )


def _use(
    tree: _Tree,
    options: _Options,
    mutes: Mapping[str, tuple[MuteTime, ...]],
    active: Mapping[str, tuple[MuteTime, ...]],
) -> str:
    """Return the receiver's name with these options."""
    own = tree.receivers[options.receiver.text()]
    group = own.group
    if options.by is not None and own.type not in GROUPING_THEMSELVES:
        # Grouped by all labels: no two alerts match, so each notifies alone.
        is_alone = _ALL_LABELS in options.by
        group = None if is_alone else AlertGrouping(options.by, options.wait_s, options.interval_s)
    routed = replace(
        own,
        group=group,
        repeat_s=own.repeat_s if options.repeat_s is None else options.repeat_s,
        mute_times=own.mute_times + tuple(span for spans in mutes.values() for span in spans),
        active_times=tuple(span for spans in active.values() for span in spans),
    )
    if tree.used.setdefault(own.name, routed) == routed:
        return own.name
    said = ["alone" if group is None else f"by {','.join(group.by)}"]
    if group is not None:
        said.append(f"wait {format_duration(group.wait_s)}")
        said.append(f"interval {format_duration(group.interval_s)}")
    said += [f"repeat {format_duration(routed.repeat_s)}"] if routed.repeat_s else []
    said += [f"not {name}" for name in mutes] + [f"in {name}" for name in active]
    name = routed_name(own.name, said)
    tree.used[name] = replace(routed, name=name, base=own.name)
    return name


def _times(listed: Value | None, known: TimeIntervals) -> dict[str, tuple[MuteTime, ...]]:
    found = {}
    for value in () if listed is None else listed.items():
        if value.text() not in known:
            raise value.complaint(f"timeIntervals has no {value.text()!r}")
        found[value.text()] = known[value.text()]
    return found


def _matchers(listed: Value) -> tuple[Matcher, ...]:
    try:
        return parse_matchers(listed.texts())
    except ConfigurationError as error:
        raise listed.complaint(str(error)) from error
