"""What the operators' API answers, field by field."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class IdentityAnswer(BaseModel):
    """Whom a token stands for; `tenant` is null for tokens of all tenants."""

    tenant: str | None
    may_act: bool


class TimeSpan(BaseModel):
    """From one moment until another, RFC 3339."""

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
    """An alert that went from one state to another."""

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
    """A notification that a receiver did not take."""

    number: int
    id: str
    receiver: str
    status: str
    attempts: int
    error: str | None


class AlertsAnswer(BaseModel):
    """The alert book; `history` has the newest first."""

    alerts: list[ListedAlert]
    history: list[ListedTransition]
    silences: list[ListedSilence]
    notifications: dict[str, int]
    dead_letters: list[ListedDeadLetter]


class LeftOut(TimeSpan):
    """A span of time that does not count, and why."""

    reason: str
    by: str
    comment: str


class ListedCorrection(LeftOut):
    """A correction of an SLO's budget; `slo` is empty for all of them."""

    id: str
    slo: str
    revoked_by: str | None


class CorrectionsAnswer(BaseModel):
    """The corrections, revoked ones too."""

    corrections: list[ListedCorrection]


class ListedAction(BaseModel):
    """One line of the audit; `token` has the first digits of its SHA-256."""

    time: str
    by: str
    token: str
    action: str
    details: dict[str, Any]


class AuditAnswer(BaseModel):
    """Who did what, the newest first."""

    entries: list[ListedAction]


class ListedVersion(BaseModel):
    """A version of a prompt."""

    version: str
    system: str


class ListedMove(BaseModel):
    """A label that was given to another version; `time_s` is Unix time."""

    time_s: int
    label: str
    version: str
    reason: str


class ListedPrompt(BaseModel):
    """A prompt: its versions, labels, and the moves of its labels, the newest first."""

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
    """An alert that fired; `ended` is null if it still does."""

    severity: str
    fired: str
    ended: str | None
    top_cause: str | None


class ReportedSlo(BaseModel):
    """How an SLO fared, null where there is no data; `firings` counts alerts by severity."""

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
    """The SLO report of a span of time."""

    from_: str = Field(alias="from")
    to: str
    slos: list[ReportedSlo]


class AcknowledgedAnswer(BaseModel):
    """The alerts that were taken on, each with its severity."""

    acknowledged: list[str]


class SilencedAnswer(TimeSpan):
    """A new silence."""

    id: str
    matchers: list[str]


class EndedAnswer(BaseModel):
    """The silence that has ended."""

    ended: str


class ReplayedAnswer(BaseModel):
    """How many dead letters are due again; `overtaken` ones stay as they are."""

    replayed: int
    overtaken: int


class CorrectedAnswer(TimeSpan):
    """A new correction, in whole minutes."""

    id: str


class RevokedAnswer(BaseModel):
    """The correction that was taken back."""

    revoked: str


class MovedLabelAnswer(BaseModel):
    """What a label means now, and what it meant before."""

    label: str
    is_: str = Field(alias="is")
    was: str | None


class JudgedAnswer(BaseModel):
    """The span that has the judgement."""

    feedback_id: str


class FeedbackAnswer(JudgedAnswer):
    """The span that has the feedback, and its trace."""

    trace_id: str
