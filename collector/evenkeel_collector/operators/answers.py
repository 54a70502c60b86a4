"""The response models of the operators' API."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field


class IdentityAnswer(BaseModel):
    """The identity of a token; `tenant` is null for tokens valid for all tenants."""

    tenant: str | None = Field(description="The only tenant the token is valid for; null for all.")
    may_act: bool = Field(description="Whether actions are allowed.")


class TimeSpan(BaseModel):
    """A time range, RFC 3339."""

    from_: str = Field(alias="from", description="Start, RFC 3339.")
    until: str = Field(description="End, RFC 3339, exclusive.")


class ListedAlert(BaseModel):
    """One alert; `since` is null if it never fired."""

    slo: str = Field(description="The SLO or rule.")
    severity: str = Field(description="`page`, `ticket` or that of a rule.")
    state: str = Field(description="`inactive`, `pending`, `firing` or `resolved`.")
    acknowledged_by: str | None = Field(description="Who acknowledged it.")
    silenced_until: str | None = Field(description="End of its silence, RFC 3339.")
    since: str | None = Field(
        description="When its condition began to hold, RFC 3339; null if it never did."
    )
    labels: dict[str, str] = Field(description="Labels that receivers and matchers see.")
    annotations: dict[str, str] = Field(
        description="Texts about it, such as `summary` and `top_cause`."
    )


class ListedTransition(BaseModel):
    """A change of an alert's state."""

    id: str = Field(description="Identifies the change.")
    time: str = Field(description="When, RFC 3339.")
    slo: str = Field(description="The SLO or rule.")
    severity: str = Field(description="The severity of its alert.")
    from_: str = Field(alias="from", description="State before.")
    to: str = Field(description="State after.")
    silenced: bool = Field(description="Whether a silence kept it from being notified.")


class ListedSilence(TimeSpan):
    """An active or scheduled silence; `slo` is empty if its matchers name several."""

    id: str = Field(description="Identifies the silence.")
    slo: str = Field(description="The SLO; empty if the matchers name several.")
    matchers: list[str] = Field(description="Matchers, all of which an alert must fulfil.")
    is_in_force: bool = Field(description="False if it is yet to begin.")
    by: str = Field(description="Who silenced.")
    comment: str = Field(description="Why.")


class ListedDeadLetter(BaseModel):
    """A notification that could not be delivered."""

    number: int = Field(description="Its number, for `POST /api/replay`.")
    id: str = Field(description="The change it reports.")
    receiver: str = Field(description="The receiver that did not accept it.")
    status: str = Field(description="Of the alert: `firing` or `resolved`.")
    attempts: int = Field(description="How often delivery was tried.")
    error: str | None = Field(description="Why the last attempt failed.")


class ListedFailure(BaseModel):
    """A receiver whose last notifications were not accepted; they are retried."""

    receiver: str = Field(description="Its name.")
    undelivered: int = Field(description="Notifications that were tried and are not delivered yet.")
    since: str = Field(description="When the oldest was queued.")
    error: str | None = Field(description="Why an attempt failed.")


class AlertsAnswer(BaseModel):
    """The alert book; `history` is newest first."""

    alerts: list[ListedAlert] = Field(description="Every alert and its state.")
    history: list[ListedTransition] = Field(description="Changes of state, newest first.")
    silences: list[ListedSilence] = Field(description="Active and scheduled silences.")
    notifications: dict[str, int] = Field(description="Number of notifications by status.")
    failing: list[ListedFailure] = Field(description="Receivers that accept no notifications.")
    dead_letters: list[ListedDeadLetter] = Field(
        description="Notifications that could not be delivered."
    )


class LeftOut(TimeSpan):
    """A time range excluded from the budget, with the reason."""

    reason: str = Field(description="Kind of reason, such as `maintenance`.")
    by: str = Field(description="Who excluded it.")
    comment: str = Field(description="Why.")


class ListedCorrection(LeftOut):
    """A correction of an SLO's budget; `slo` is empty for all of them."""

    id: str = Field(description="Identifies the correction.")
    slo: str = Field(description="The SLO; empty for all.")
    revoked_by: str | None = Field(description="Who revoked it; null if it is in force.")


class CorrectionsAnswer(BaseModel):
    """The corrections, including revoked ones."""

    corrections: list[ListedCorrection] = Field(description="Corrections, including revoked ones.")


class ListedAction(BaseModel):
    """One audit log entry; `token` is the first digits of the token's SHA-256."""

    time: str = Field(description="When, RFC 3339.")
    by: str = Field(description="Who acted.")
    token: str = Field(
        description="The first digits of the token's SHA-256; empty without a token."
    )
    action: str = Field(description="The last part of its path, such as `silence`.")
    details: dict[str, Any] = Field(description="What was asked for, and the result.")


class AuditAnswer(BaseModel):
    """The audit log, newest first."""

    entries: list[ListedAction] = Field(description="Entries, newest first.")


class ListedVersion(BaseModel):
    """A version of a prompt."""

    version: str = Field(description="The version, 12 hex digits.")
    system: str = Field(description="The text of the prompt.")


class ListedMove(BaseModel):
    """A label that was moved to another version; `time_s` is Unix time."""

    time_s: int = Field(description="When, Unix time.")
    label: str = Field(description="The label.")
    version: str = Field(description="The version it moved to.")
    reason: str = Field(description="Why.")


class ListedPrompt(BaseModel):
    """A prompt: its versions, its labels, and the label history, newest first."""

    name: str = Field(description="The name of the prompt.")
    draft: str | None = Field(
        description="The version of the text that is not yet registered; null if there is none."
    )
    labels: dict[str, str] = Field(description="Version by label.")
    goes_back_to: dict[str, str | None] = Field(
        description="Version that a rollback of each label restores; null if there is none."
    )
    versions: list[ListedVersion] = Field(description="Versions, with their texts.")
    moves: list[ListedMove] = Field(description="History of the labels, newest first.")


class PromptsAnswer(BaseModel):
    """The prompt registry."""

    prompts: list[ListedPrompt] = Field(description="Every prompt.")


class ReportedFiring(BaseModel):
    """An alert that fired; `ended` is null while it is firing."""

    severity: str = Field(description="The severity of the alert.")
    fired: str = Field(description="When it fired, RFC 3339.")
    ended: str | None = Field(description="When it ended, RFC 3339; null while it is firing.")
    top_cause: str | None = Field(description="The largest cause named by its evidence.")


class ReportedSlo(BaseModel):
    """An SLO's results, null if there is no data; `firings` counts alerts by severity."""

    slo: str = Field(description="The SLO.")
    target: float = Field(description="The target, as a ratio.")
    good: float = Field(description="Good events.")
    total: float = Field(description="Valid events.")
    sli: float | None = Field(description="Good / valid events.")
    budget_left_ratio: float | None = Field(
        description="Share of the error budget left; negative if overspent."
    )
    firings: dict[str, int] = Field(description="Number of alerts that fired, by severity.")
    budget_spent_by_day: dict[str, float] = Field(
        description="Share of the error budget spent, by date."
    )
    alerts: list[ReportedFiring] = Field(description="Alerts that fired.")
    left_out: list[LeftOut] = Field(description="Time ranges excluded from the budget.")


class ReportAnswer(BaseModel):
    """The SLO report of a time range."""

    from_: str = Field(alias="from", description="Start, RFC 3339.")
    to: str = Field(description="End, RFC 3339, exclusive.")
    slos: list[ReportedSlo] = Field(description="Results by SLO.")


class AcknowledgedAnswer(BaseModel):
    """The acknowledged alerts, each with its severity."""

    acknowledged: list[str] = Field(
        description="Each alert with its severity, such as `chat-ttft page`."
    )


class SilencedAnswer(TimeSpan):
    """A new silence."""

    id: str = Field(description="Identifies the silence.")
    matchers: list[str] = Field(description="Its matchers.")


class EndedAnswer(BaseModel):
    """The silence that was ended."""

    ended: str = Field(description="The ID of the silence.")


class ReplayedAnswer(BaseModel):
    """The number of dead letters to be retried; `overtaken` ones were superseded and stay."""

    replayed: int = Field(description="Number of notifications to be retried.")
    overtaken: int = Field(description="Number left alone: the receiver has a later notification.")


class CorrectedAnswer(TimeSpan):
    """A new correction, in whole minutes."""

    id: str = Field(description="Identifies the correction.")


class RevokedAnswer(BaseModel):
    """The revoked correction."""

    revoked: str = Field(description="The ID of the correction.")


class MovedLabelAnswer(BaseModel):
    """A label's new version, and its previous one."""

    label: str = Field(description="The label.")
    is_: str = Field(alias="is", description="The version it is on now.")
    was: str | None = Field(description="The version before; null if it was on none.")


class JudgedAnswer(BaseModel):
    """The span that holds the review."""

    feedback_id: str = Field(description="ID of the span that holds it.")


class FeedbackAnswer(JudgedAnswer):
    """The span that holds the feedback, and its trace."""

    trace_id: str = Field(description="The trace of the answer.")
