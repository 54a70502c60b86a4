"""Alert routing, inhibition between alerts, and recurring maintenance windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from evenkeel.slo.matchers import Matcher, all_match
from evenkeel.slo.mute_time import MuteTime


@dataclass(frozen=True, slots=True)
class Route:
    """A node of the routing tree, as in Alertmanager.

    Attributes:
        receiver: Receives alerts that no child route matches.
        matchers: What an alert must match to enter this route; the root has none.
        continues: Whether later sibling routes are also tried.
        routes: The child routes, in the order they are tried.
    """

    receiver: str
    matchers: tuple[Matcher, ...] = ()
    continues: bool = False
    routes: tuple[Route, ...] = ()

    def receivers_of(self, labels: Mapping[str, str]) -> frozenset[str]:
        """Return the names of the receivers an alert is routed to; empty if it does not match."""
        return frozenset(self._walk(labels))

    def _walk(self, labels: Mapping[str, str]) -> Iterator[str]:
        if not all_match(self.matchers, labels):
            return
        is_taken = False
        for route in self.routes:
            if all_match(route.matchers, labels):
                is_taken = True
                yield from route._walk(labels)
                if not route.continues:
                    break
        if not is_taken:
            yield self.receiver


@dataclass(frozen=True, slots=True)
class InhibitRule:
    """While an alert of the source burns, alerts of the target are withheld.

    Attributes:
        source: What the withholding alert must match.
        target: What the withheld alert must match.
        equal: Labels whose values must be equal on both; a missing label is ''.
    """

    source: tuple[Matcher, ...]
    target: tuple[Matcher, ...]
    equal: tuple[str, ...] = ()

    def key(self, labels: Mapping[str, str]) -> tuple[str, ...]:
        """Return the values of the labels that must be equal on source and target."""
        return tuple(labels.get(name, "") for name in self.equal)


class Inhibitor:
    """Determines which alerts are withheld while others burn.

    An alert that matches both sides of a rule is not withheld by another such alert, or by
    itself.

    Args:
        rules: The rules in force.
        burning: The labels of every alert that burns.
    """

    def __init__(self, rules: Sequence[InhibitRule], burning: Iterable[Mapping[str, str]]) -> None:
        # Keyed by the equal labels: whether some source is not also a target.
        self._sources: list[tuple[InhibitRule, dict[tuple[str, ...], bool]]] = []
        everything = list(burning) if rules else []
        for rule in rules:
            found: dict[tuple[str, ...], bool] = {}
            for labels in everything:
                if all_match(rule.source, labels):
                    key = rule.key(labels)
                    found[key] = found.get(key, False) or not all_match(rule.target, labels)
            self._sources.append((rule, found))

    def withholds(self, labels: Mapping[str, str]) -> bool:
        """Return whether an alert with these labels is withheld."""
        for rule, sources in self._sources:
            if not sources or not all_match(rule.target, labels):
                continue
            has_pure_source = sources.get(rule.key(labels))
            if has_pure_source or (
                has_pure_source is not None and not all_match(rule.source, labels)
            ):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Maintenance:
    """A recurring silence.

    Attributes:
        matchers: What the labels of an alert must match.
        times: When it applies.
        comment: The reason.
    """

    matchers: tuple[Matcher, ...]
    times: tuple[MuteTime, ...] = field(default=())
    comment: str = ""

    def holds(self, labels: Mapping[str, str], now_ns: int) -> bool:
        """Return whether an alert with these labels is silenced now."""
        return any(time.holds(now_ns) for time in self.times) and all_match(self.matchers, labels)
