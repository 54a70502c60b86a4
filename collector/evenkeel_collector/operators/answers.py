"""The response models of the operators' API."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class IdentityAnswer(BaseModel):
    """The identity of a token; `tenant` is null for tokens valid for all tenants."""

    tenant: str | None
    may_act: bool


class TimeSpan(BaseModel):
    """A time range, RFC 3339."""

    from_: str = Field(alias="from")
    until: str


class ListedAlert(BaseModel):
    """One alert; `since` is null if it never fired."""

    slo: str
    severity: str
    state: str
    acknowledged_by: str | None
    silenced_until: str | None
    since: str | None
    labels: dict[str, str]
    annotations: dict[str, str]


class ListedTransition(BaseModel):
    """A change of an alert's state."""

    id: str
    time: str
    slo: str
    severity: str
    from_: str = Field(alias="from")
    to: str
    silenced: bool


class ListedSilence(TimeSpan):
    """A silence in force or to come; `slo` is empty if its matchers name several."""

    id: str
    slo: str
    matchers: list[str]
    is_in_force: bool
    by: str
    comment: str


class ListedDeadLetter(BaseModel):
    """A notification that could not be delivered."""

    number: int
    id: str
    receiver: str
    status: str
    attempts: int
    error: str | None


class AlertsAnswer(BaseModel):
    """The alert book; `history` is newest first."""

    alerts: list[ListedAlert]
    history: list[ListedTransition]
    silences: list[ListedSilence]
    notifications: dict[str, int]
    dead_letters: list[ListedDeadLetter]


class LeftOut(TimeSpan):
    """A time range excluded from the budget, with the reason."""

    reason: str
    by: str
    comment: str


class ListedCorrection(LeftOut):
    """A correction of an SLO's budget; `slo` is empty for all of them."""

    id: str
    slo: str
    revoked_by: str | None


class CorrectionsAnswer(BaseModel):
    """The corrections, including revoked ones."""

    corrections: list[ListedCorrection]


class ListedAction(BaseModel):
    """One audit log entry; `token` is the first digits of the token's SHA-256."""

    time: str
    by: str
    token: str
    action: str
    details: dict[str, Any]


class AuditAnswer(BaseModel):
    """The audit log, newest first."""

    entries: list[ListedAction]


class ListedVersion(BaseModel):
    """A version of a prompt."""

    version: str
    system: str


class ListedMove(BaseModel):
    """A label that was moved to another version; `time_s` is Unix time."""

    time_s: int
    label: str
    version: str
    reason: str


class ListedPrompt(BaseModel):
    """A prompt: its versions, its labels, and the label history, newest first."""

    name: str
    draft: str | None
    labels: dict[str, str]
    goes_back_to: dict[str, str | None]
    versions: list[ListedVersion]
    moves: list[ListedMove]


class PromptsAnswer(BaseModel):
    """The prompt registry."""

    prompts: list[ListedPrompt]


class ReportedFiring(BaseModel):
    """An alert that fired; `ended` is null while it is firing."""

    severity: str
    fired: str
    ended: str | None
    top_cause: str | None


class ReportedSlo(BaseModel):
    """An SLO's results, null if there is no data; `firings` counts alerts by severity."""

    slo: str
    target: float
    good: float
    total: float
    sli: float | None
    budget_left_ratio: float | None
    firings: dict[str, int]
    budget_spent_by_day: dict[str, float]
    alerts: list[ReportedFiring]
    left_out: list[LeftOut]


class ReportAnswer(BaseModel):
    """The SLO report of a time range."""

    from_: str = Field(alias="from")
    to: str
    slos: list[ReportedSlo]


class AcknowledgedAnswer(BaseModel):
    """The acknowledged alerts, each with its severity."""

    acknowledged: list[str]


class SilencedAnswer(TimeSpan):
    """A new silence."""

    id: str
    matchers: list[str]


class EndedAnswer(BaseModel):
    """The silence that was ended."""

    ended: str


class ReplayedAnswer(BaseModel):
    """The number of dead letters to be retried; `overtaken` ones were superseded and stay."""

    replayed: int
    overtaken: int


class CorrectedAnswer(TimeSpan):
    """A new correction, in whole minutes."""

    id: str


class RevokedAnswer(BaseModel):
    """The revoked correction."""

    revoked: str


class MovedLabelAnswer(BaseModel):
    """A label's new version, and its previous one."""

    label: str
    is_: str = Field(alias="is")
    was: str | None


class JudgedAnswer(BaseModel):
    """The span that holds the review."""

    feedback_id: str


class FeedbackAnswer(JudgedAnswer):
    """The span that holds the feedback, and its trace."""

    trace_id: str
