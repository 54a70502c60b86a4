"""What an evaluation run comes to, as `evenkeel eval` decides it, and whether it passed."""

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
    """What a run proves, whether it is read from its report or from the store.

    Attributes:
        run_id: Names the run.
        verdict: Of the whole run: its gates, and whether enough was measured and no item broke.
        baseline: Version (12 hex digits of the SHA-256) of the text it compared with; None where
            that is not one text.
        candidate: The same of the text it judged.
        remark: Why it came to that, in one line; "" where nothing more is known.
    """

    run_id: str
    verdict: str
    baseline: str | None
    candidate: str | None
    remark: str = ""

    @property
    def is_passed(self) -> bool:
        """Return whether it ended with better, no worse, or worse within what is tolerated.

        `--allow-inconclusive` lets a pipeline go on; it does not make a proof of it.
        """
        return self.verdict in PASSING

    def check_passed(self) -> None:
        """Refuse a run that did not pass.

        Raises:
            RegressionError: If it regressed.
            CannotMeasureError: If it could not tell.
        """
        if self.is_passed:
            return
        why = self.remark or self.verdict or "it has no gate"
        if self.verdict == REGRESSED:
            raise RegressionError(f"run {self.run_id} did not pass: {why}")
        raise CannotMeasureError(f"run {self.run_id} did not pass, it could not tell: {why}")


def read_stored_run(run_id: str, row: Mapping[str, Any]) -> JudgedRun:
    """Return what the store knows of a run.

    The verdict is the run's own: its gates alone do not say whether enough was measured, or whether
    an item broke. A run that was stored without a verdict proves nothing.

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
    return JudgedRun(run_id, verdict, baseline, candidate)


def _only(texts: Sequence[str]) -> str | None:
    return texts[0] if len(texts) == 1 else None
