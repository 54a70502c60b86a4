"""A silence: which alerts are kept from the receivers, from when until when, by whom and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from evenkeel.slo.matchers import Matcher, Operator


@dataclass(frozen=True, slots=True)
class Silence:
    """Keeps alerts from the receivers for a while.

    Attributes:
        id: Names it; unique.
        slo: The name of the SLO or rule; '' where `matchers` say more.
        from_ns: When it begins, Unix nanoseconds.
        until_ns: When it ends, exclusive.
        comment: Why.
        matchers: What the labels of an alert must be; without any, `slo` is what counts.
        author: Who set it; '' of those set before authors were kept.
    """

    id: str
    slo: str
    from_ns: int
    until_ns: int
    comment: str
    matchers: tuple[Matcher, ...] = ()
    author: str = ""

    def conditions(self) -> tuple[Matcher, ...]:
        """Return the matchers, also of a silence by the SLO's name."""
        return self.matchers or (Matcher("slo", Operator.EQUAL, self.slo),)

    def covers(self, subject: str, labels: Mapping[str, str]) -> bool:
        """Return whether it silences the alert about `subject` with these labels.

        `slo="…"` also finds an alert by its own name, which of an SLO without events differs from
        its label.
        """
        return all(
            matcher.matches(labels) or _names(matcher, subject) for matcher in self.conditions()
        )


def is_silenced(silences: Collection[Silence], subject: str, labels: Mapping[str, str]) -> bool:
    """Return whether any of the silences covers the alert."""
    return any(silence.covers(subject, labels) for silence in silences)


def subject_of(matchers: Sequence[Matcher]) -> str:
    """Return the SLO's name where nothing but `slo="NAME"` is asked for; '' otherwise."""
    if len(matchers) == 1 and matchers[0].name == "slo" and matchers[0].operator is Operator.EQUAL:
        return matchers[0].value
    return ""


def _names(matcher: Matcher, subject: str) -> bool:
    return matcher.name == "slo" and matcher.operator is Operator.EQUAL and matcher.value == subject
