"""What the gates of an evaluation run come to, as `evenkeel eval` decides it."""

from __future__ import annotations

from collections.abc import Sequence

OVERALL = ("", "overall")
PASSING = ("better", "no worse", "worse")
# Of several gates the first of these decides; "worse" is worse by no more than is tolerated.
_ORDER = ("regressed", "inconclusive", "worse", "better")


def run_verdict(verdicts: Sequence[str], slices: Sequence[str]) -> str:
    """Return what the gates of a run come to.

    One regression anywhere is a regression; otherwise the gates over all items decide, and one
    that cannot tell leaves the run inconclusive. "" when there is no gate.
    """
    if "regressed" in verdicts:
        return "regressed"
    pairs = zip(verdicts, slices, strict=True)
    overall = [verdict for verdict, name in pairs if name in OVERALL]
    return worst(overall) if overall else ""


def worst(verdicts: Sequence[str]) -> str:
    """Return the verdict of gates that must all pass."""
    return next((verdict for verdict in _ORDER if verdict in verdicts), "no worse")
