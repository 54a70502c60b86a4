"""Silences: which alerts are not sent, from when until when, by whom and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from evenkeel.slo.matchers import Matcher, Operator


@dataclass(frozen=True, slots=True)
class Silence:
    """Suppresses notifications of matching alerts for a while.

    Attributes:
        id: Unique id.
        slo: Name of the SLO or rule; '' if `matchers` are more specific.
        from_ns: Start, Unix nanoseconds.
        until_ns: End, exclusive.
        comment: Reason.
        matchers: Conditions on the labels of an alert; without any, `slo` is matched.
        author: Who set it; '' for silences from before authors were stored.
    """

    id: str
    slo: str
    from_ns: int
    until_ns: int
    comment: str
    matchers: tuple[Matcher, ...] = ()
    author: str = ""

    def conditions(self) -> tuple[Matcher, ...]:
        """Return the matchers; for a silence by name, one that matches the SLO."""
        return self.matchers or (Matcher("slo", Operator.EQUAL, self.slo),)

    def covers(self, subject: str, labels: Mapping[str, str]) -> bool:
        """Return whether it silences the alert about `subject` with these labels.

        `slo="…"` also matches an alert by its own name, which differs from its label for an SLO
        without events.
        """
        return all(
            matcher.matches(labels) or _names(matcher, subject) for matcher in self.conditions()
        )


def is_silenced(silences: Collection[Silence], subject: str, labels: Mapping[str, str]) -> bool:
    """Return whether any of the silences covers the alert."""
    return any(silence.covers(subject, labels) for silence in silences)


def subject_of(matchers: Sequence[Matcher]) -> str:
    """Return the SLO's name if the only matcher is `slo="NAME"`; '' otherwise."""
    if len(matchers) == 1 and matchers[0].name == "slo" and matchers[0].operator is Operator.EQUAL:
        return matchers[0].value
    return ""


def _names(matcher: Matcher, subject: str) -> bool:
    return matcher.name == "slo" and matcher.operator is Operator.EQUAL and matcher.value == subject
