"""What the gates of an evaluation run come to, as `evenkeel eval` decides it."""

from __future__ import annotations

from collections.abc import Sequence

OVERALL = ("", "overall")
PASSING = ("better", "no worse")


def run_verdict(verdicts: Sequence[str], slices: Sequence[str]) -> str:
    """Return what the gates of a run come to.

    One regression anywhere is a regression; otherwise the gates over all items decide, and one
    that cannot tell leaves the run inconclusive. "" when there is no gate.
    """
    if "regressed" in verdicts:
        return "regressed"
    pairs = zip(verdicts, slices, strict=True)
    overall = [verdict for verdict, name in pairs if name in OVERALL]
    for verdict in ("inconclusive", "better"):
        if verdict in overall:
            return verdict
    return "no worse" if overall else ""
