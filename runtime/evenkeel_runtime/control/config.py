"""Configuration of the control hook: SLO classes, quotas, and the reaction to a burning budget."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import msgspec

from evenkeel.errors import ConfigurationError

# Bounded, so that every deadline is a number that vLLM takes as a priority, and every time can be
# counted in tenths of a window.
Positive = Annotated[float, msgspec.Meta(ge=1e-9, le=1e9)]
# Others need only be finite, as must be the time until a quota has room.
Rate = Annotated[float, msgspec.Meta(ge=1e-9, le=1e15)]
Count = Annotated[int, msgspec.Meta(ge=1, le=10**15)]
Share = Annotated[float, msgspec.Meta(gt=0, lt=1)]


class ControlMode(StrEnum):
    """Whether control acts, only reports what it would do, or is off."""

    ACT = "act"
    DRY_RUN = "dry-run"
    OFF = "off"


class SloClass(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What each request of an owner may use, and the owner's requests together; None: no limit.

    Attributes:
        context_tokens: Tokens of a prompt and its answer.
        kv_share: Share of the engine's KV cache that the owner's requests may hold together.
        draft_tokens: Longest draft; 0 turns drafts off.
    """

    context_tokens: Count | None = None
    kv_share: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    draft_tokens: Annotated[int, msgspec.Meta(ge=0, le=10**15)] | None = None


class Quota(Limits, frozen=True, forbid_unknown_fields=True, kw_only=True):
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
    "code": SloClass(0.1),
    "interactive": SloClass(0.2),
    "chat": SloClass(0.5),
    "batch": SloClass(30.0, target=0.9),
}


class ControlConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
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

    mode: ControlMode = ControlMode.ACT
    default_class: str = ""
    max_active: Count | None = None
    window_s: Positive = 10.0
    escalate_burn: Positive = 5.0
    recover_burn: Positive = 1.0
    recover_s: Positive = 20.0
    min_bad: Count = 3
    long_prompt_tokens: Count = 4096
    classes: Mapping[str, SloClass] = msgspec.field(default_factory=DEFAULT_CLASSES.copy)
    tenant: Quota = msgspec.field(default_factory=Quota)
    tenants: Mapping[str, Quota] = msgspec.field(default_factory=dict)
    session: Quota = msgspec.field(default_factory=Quota)
    routes: Mapping[str, Limits] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.classes:
            raise ValueError("classes is empty, expected at least one")
        if not self.default_class:
            usual = _USUAL_CLASS if _USUAL_CLASS in self.classes else self.ranking[0]
            msgspec.structs.force_setattr(self, "default_class", usual)
        elif self.default_class not in self.classes:
            known = ", ".join(self.ranking)
            raise ValueError(f"default_class {self.default_class!r} is not a class; known: {known}")

    @property
    def ranking(self) -> tuple[str, ...]:
        """Names of the classes, the highest first."""
        return tuple(sorted(self.classes, key=lambda name: (self.classes[name].ttft_s, name)))

    def longer_s(self, limit_s: float, num_tokens: float) -> float:
        """Return how much later a prompt with this many tokens to compute is due."""
        factor = max(1.0, num_tokens / self.long_prompt_tokens)
        return min(limit_s * (min(factor, _MAX_SIZE_FACTOR) - 1), _MAX_SIZE_S)


def read_control_file(path: Path) -> ControlConfig:
    """Read a control file (TOML); docs/guide/control.md describes each key.

    Raises:
        ConfigurationError: If it cannot be read or is empty, or a key or value is invalid; names
            the key.
    """
    try:
        # Some editors begin a file with a byte order mark.
        text = path.read_bytes().decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(f"control file {path} cannot be read: {reason}") from error
    if not text.strip():
        raise ConfigurationError(f"control file {path} is empty")
    return parse_control(text, str(path))


def parse_control(text: str, name: str) -> ControlConfig:
    """Return the configuration in `text`; `name` is used in errors.

    Raises:
        ConfigurationError: If it is not TOML, or a key or value is invalid.
    """
    content: dict[str, Any] = {}
    try:
        content = tomllib.loads(text)
        return msgspec.convert(content, ControlConfig)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"control file {name}: {_describe(error, content)}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"control file {name}: {error}") from error
    except RecursionError as error:
        raise ConfigurationError(f"control file {name} is nested too deeply") from error


def _describe(error: msgspec.ValidationError, content: Mapping[str, Any]) -> str:
    """Return what is wrong, with the names that msgspec leaves out: `[...]` is any key."""
    said = str(error)
    if said.endswith("- at `$.mode`"):
        return f"{said}; expected act, dry-run or off"
    for table, kind in (("classes", SloClass), ("tenants", Quota), ("routes", Limits)):
        if f"$.{table}[...]" in said:
            for key, value in content[table].items():
                try:
                    msgspec.convert(value, kind)
                except msgspec.ValidationError:
                    return said.replace("[...]", f".{key}", 1)
    return said
