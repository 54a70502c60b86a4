"""Configuration of the control hook: SLO classes, quotas, and the reaction to a burning budget."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from evenkeel.toml_file import read_toml_file

# Bounded, so that every deadline is a number that vLLM takes as a priority, and every time can be
# counted in tenths of a window.
Positive = Annotated[float, Field(ge=1e-9, le=1e9)]
# Others need only be finite, as must be the time until a quota has room.
Rate = Annotated[float, Field(ge=1e-9, le=1e15)]
Count = Annotated[int, Field(ge=1, le=10**15)]
Share = Annotated[float, Field(gt=0, lt=1)]


class ControlMode(StrEnum):
    """Whether control acts, only reports what it would do, or is off."""

    ACT = "act"
    DRY_RUN = "dry-run"
    OFF = "off"


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SloClass(_Table):
    """One class of requests; a shorter limit means a higher class.

    Attributes:
        ttft_s: The limit on its time to first token; also the deadline by which it is ordered.
        target: Fraction of its requests that should meet the limit.
        queue_deadline_s: Longest a request may wait for admission; ten times `ttft_s` if unset.
    """

    ttft_s: Positive
    target: Share = 0.99
    queue_deadline_s: Positive | None = None

    @property
    def longest_wait_s(self) -> float:
        """Seconds after which a waiting request is refused."""
        return 10 * self.ttft_s if self.queue_deadline_s is None else self.queue_deadline_s


class Limits(_Table):
    """What each request of an owner may use, and the owner's requests together; None: no limit.

    Attributes:
        context_tokens: Tokens of a prompt and its answer.
        kv_share: Share of the engine's KV cache that the owner's requests may hold together.
        draft_tokens: Longest draft; 0 turns drafts off.
    """

    context_tokens: Count | None = None
    kv_share: float | None = Field(default=None, gt=0, le=1)
    draft_tokens: int | None = Field(default=None, ge=0, le=10**15)


class Quota(Limits):
    """What one tenant or session may use; None means no limit.

    Attributes:
        requests_per_minute: Requests started; bursts of up to a minute's worth are allowed.
        tokens_per_minute: Input and output tokens, charged when a request ends.
        active: Requests in flight at a time.
    """

    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None
    active: Count | None = None


# Bounds on the extra deadline of a long prompt: a multiple of its class's limit after its arrival,
# and seconds after a short one (in a class with seconds to spare it would miss its own limit).
_MAX_SIZE_FACTOR, _MAX_SIZE_S = 8.0, 4.0
_USUAL_CLASS = "chat"
# Customary limits: interactive 200 ms, chat 500 ms, code completion 100 ms, batch 30 s.
DEFAULT_CLASSES = {
    "code": SloClass(ttft_s=0.1),
    "interactive": SloClass(ttft_s=0.2),
    "chat": SloClass(ttft_s=0.5),
    "batch": SloClass(ttft_s=30.0, target=0.9),
}


class ControlConfig(_Table):
    """A parsed control file.

    Attributes:
        mode: What control does; `off` is the kill switch and lets every request through untouched.
        default_class: The class of a request that names none or an unknown one; if unset, `chat`,
            and if there is no `chat`, the highest class.
        max_active: Maximum number of requests in the engine; vLLM's `--max-num-seqs` if unset.
        window_s: The window over which burn is measured, and the time allowed for an action to take
            effect before the next one.
        escalate_burn: The burn rate at which the next step is taken.
        recover_burn: The burn rate below which a step is reverted.
        recover_s: How long the burn rate must stay below it.
        min_bad: Minimum number of bad requests in the window for a step.
        long_prompt_tokens: Uncached prompt tokens beyond which a deadline grows with their number,
            so that short requests go first and long ones still get their turn.
        classes: By name.
        tenant: What each tenant may use.
        tenants: Quotas of named tenants, overriding `tenant`.
        session: What each session may use.
        routes: Limits of each named route; `*` for the others together.
    """

    mode: ControlMode = Field(default=ControlMode.ACT, strict=False)
    classes: Mapping[str, SloClass] = DEFAULT_CLASSES
    default_class: str = Field(default="", validate_default=True)
    max_active: Count | None = None
    window_s: Positive = 10.0
    escalate_burn: Positive = 5.0
    recover_burn: Positive = 1.0
    recover_s: Positive = 20.0
    min_bad: Count = 3
    long_prompt_tokens: Count = 4096
    tenant: Quota = Quota()
    tenants: Mapping[str, Quota] = {}
    session: Quota = Quota()
    routes: Mapping[str, Limits] = {}

    @field_validator("classes")
    @classmethod
    def _need_one(cls, classes: Mapping[str, SloClass]) -> Mapping[str, SloClass]:
        if not classes:
            raise ValueError("expected at least one class")
        return classes

    @field_validator("default_class")
    @classmethod
    def _choose(cls, name: str, info: ValidationInfo) -> str:
        known = _ranking(info.data.get("classes", {}))
        if name and name not in known:
            raise ValueError(f"{name!r} is not a class; known: {', '.join(known)}")
        return name or (_USUAL_CLASS if _USUAL_CLASS in known else next(iter(known), ""))

    def longer_s(self, limit_s: float, num_tokens: float) -> float:
        """Return how much later a prompt with this many tokens to compute is due."""
        factor = max(1.0, num_tokens / self.long_prompt_tokens)
        return min(limit_s * (min(factor, _MAX_SIZE_FACTOR) - 1), _MAX_SIZE_S)


def _ranking(classes: Mapping[str, SloClass]) -> tuple[str, ...]:
    return tuple(sorted(classes, key=lambda name: (classes[name].ttft_s, name)))


def read_control_file(path: Path) -> ControlConfig:
    """Read a control file (TOML); docs/guide/control.md describes each key.

    Raises:
        ConfigurationError: If it cannot be read or is empty, or a key or value is invalid; names
            the line and the key.
    """
    return read_toml_file(path, ControlConfig, "--control-file")
