"""What is shown about an alert that has ended: its texts are stored as of when it fired."""

from __future__ import annotations

from collections.abc import Mapping

# As the collector writes them when an alert fires: each phrase, and the same of the past.
_PHRASES = (
    ("the error budget burns ", "the error budget burned "),
    (" of the error budget is spent", " of the error budget was spent"),
    (" or more is spent", " or more was spent"),
    (" is spent this ", " was spent this "),
    (" is spent in ", " was spent in "),
    ("; the budget is ", "; the budget was "),
    ("prompt promotion is frozen until it drops", "prompt promotion was frozen until it dropped"),
    ("cannot be evaluated", "could not be evaluated"),
    ("SLOs are not evaluated", "SLOs were not evaluated"),
    ("Other SLOs are still evaluated", "Other SLOs were still evaluated"),
    (
        "the store does not answer, or the evaluation hangs",
        "the store did not answer, or the evaluation hung",
    ),
    ("SLO alerts are paused until it recovers", "SLO alerts were paused until it recovered"),
    ("Whether the objective is met is unknown", "Whether the objective was met is unknown"),
    (" stay as they were", " stayed as they were"),
    (" does not accept notifications", " did not accept notifications"),
    ("is retried while its alert fires", "was retried while its alert fired"),
)
_SENTENCES = ("summary", "description")


def past_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations of an alert that has ended, with its sentences in the past tense."""
    return {
        name: _in_the_past(text) if name in _SENTENCES else text
        for name, text in annotations.items()
    }


def _in_the_past(text: str) -> str:
    for present, past in _PHRASES:
        text = text.replace(present, past)
    return text
