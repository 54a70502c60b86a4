"""The verdict of an evaluation run, as decided by `evenkeel eval`, and whether it passed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.errors import CannotMeasureError, RegressionError

OVERALL = ("", "overall")
PASSING = ("better", "no worse", "worse")
REGRESSED = "regressed"


@dataclass(frozen=True, slots=True)
class JudgedRun:
    """The verdict of a run, read from its report or from the store.

    Attributes:
        run_id: Names the run.
        verdict: Of the whole run: its gates, whether enough was measured, and no item broke.
        baseline: Version (12 hex digits of the SHA-256) of the baseline text; None if that is not
            a single text.
        candidate: The version of the candidate text.
        remark: The reason for the verdict, in one line; "" if unknown.
        other_changes: What the sides differed in besides the text, such as "model, sampling"; ""
            if nothing.
    """

    run_id: str
    verdict: str
    baseline: str | None
    candidate: str | None
    remark: str = ""
    other_changes: str = ""

    @property
    def is_passed(self) -> bool:
        """Return whether the candidate was better, no worse, or worse within tolerance.

        `--allow-inconclusive` lets a pipeline continue; it does not count as a pass.
        """
        return self.verdict in PASSING

    def check_passed(self) -> None:
        """Raise an error if the run did not pass.

        Raises:
            RegressionError: If it regressed.
            CannotMeasureError: If it was inconclusive.
        """
        if self.is_passed:
            return
        why = self.remark or self.verdict or "it has no gate"
        if self.verdict == REGRESSED:
            raise RegressionError(f"run {self.run_id} did not pass: {why}")
        raise CannotMeasureError(f"run {self.run_id} did not pass, it is inconclusive: {why}")


def read_stored_run(run_id: str, row: Mapping[str, Any]) -> JudgedRun:
    """Return the verdict of a run from its row in the store.

    The verdict covers the whole run: its gates alone do not show whether enough was measured, or
    whether an item broke. A run stored without a verdict proves nothing.

    Args:
        run_id: Names the run.
        row: Its row of the query `prompt_run` or `eval_runs`.
    """
    verdict = _only(row["run_verdicts"])
    baseline, candidate = (_only(row[f"{side}_texts"]) for side in ("baseline", "candidate"))
    if not row["num_gates"]:
        return JudgedRun(run_id, "", baseline, candidate)
    if verdict is None:
        remark = "its gates are stored without the verdict of the whole run; run it again"
        return JudgedRun(run_id, "", baseline, candidate, remark)
    others = ", ".join(row["other_changes"])
    headline = _only(row["headlines"]) or ""
    return JudgedRun(run_id, verdict, baseline, candidate, headline, others)


def _only(texts: Sequence[str]) -> str | None:
    return texts[0] if len(texts) == 1 else None
