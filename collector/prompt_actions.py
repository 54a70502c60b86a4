"""What operators may do with prompts: let a label mean another version, and take that back.

The rules are those of `evenkeel prompts`; whether a run passed is read in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, Literal

from pydantic import Field

from collector.operator_actions import Name, Order, Text
from evenkeel.errors import ConfigurationError
from evenkeel.gate_verdict import PASSING, run_verdict
from evenkeel.prompts import DRAFT, Move, PromptRegistry, PromptVersion

Label = Literal["production", "canary"]
# Returns the row of `prompt_run` for a run.
ReadRun = Callable[[str], Mapping[str, Any]]
# A label file is read, then replaced: two actions at once would lose one.
_MOVING = Lock()


class Promote(Order):
    """Let a label mean a version: after a run that passed, or for a reason."""

    prompt: Name
    version: Annotated[str, Field(pattern=r"^[0-9a-f]{12}$")]
    label: Label = "production"
    run_id: Name | None = None
    reason: Text = ""


class Rollback(Order):
    """Let a label mean what it meant before."""

    prompt: Name
    label: Label = "production"
    reason: Text = ""


def promote(
    registry: PromptRegistry, order: Promote, now_ns: int, read_run: ReadRun
) -> dict[str, Any]:
    """Move a label forward.

    Raises:
        ConfigurationError: If there is no such version, or nothing lets it go there.
        StoreError: If the store cannot say how the run ended.
    """
    with _MOVING:
        prompt = _version(registry, order.prompt, order.version)
        current = registry.labels(order.prompt).get(order.label)
        if current == prompt.version:
            raise ConfigurationError(f"{order.prompt}@{order.label} is {current} already")
        if order.run_id is not None:
            registry.check_not_frozen(prompt.name)
            _check_run(read_run(order.run_id), order.run_id, prompt, current)
            why = f"passed run {order.run_id}"
        elif order.reason.strip():
            why = f"forced: {order.reason.strip()}"
        else:
            raise ConfigurationError("a promotion needs a run that passed, or a reason")
        registry.keep(prompt)
        move = Move(
            now_ns // 10**9, order.label, prompt.version, f"{why} ({order.by})", order.run_id
        )
        registry.move(order.prompt, move)
    return {"label": order.label, "is": prompt.version, "was": current}


def roll_back(registry: PromptRegistry, order: Rollback, now_ns: int) -> dict[str, Any]:
    """Move a label back.

    Raises:
        ConfigurationError: If it has nothing to go back to.
    """
    with _MOVING:
        current = registry.labels(order.prompt).get(order.label)
        previous = registry.previous(order.prompt, order.label)
        if current is None or previous is None:
            raise ConfigurationError(f"{order.prompt}@{order.label} has nothing to go back to")
        registry.resolve(f"{order.prompt}@{previous}")
        reason = f"{order.reason.strip() or 'rolled back'} ({order.by})"
        move = Move(now_ns // 10**9, order.label, previous, reason, None, is_rollback=True)
        registry.move(order.prompt, move)
    return {"label": order.label, "is": previous, "was": current}


def listing(folder: Path) -> list[dict[str, Any]]:
    """Return every prompt with its versions, texts, labels and the moves of its labels."""
    registry = PromptRegistry(folder)
    return [_describe(registry, name) for name in registry.names()]


def _describe(registry: PromptRegistry, name: str) -> dict[str, Any]:
    texts = {v: registry.resolve(f"{name}@{v}").system for v in registry.versions(name)}
    draft = None
    try:
        found = registry.draft(name)
        draft, texts = found.version, texts | {found.version: found.system}
    except ConfigurationError:
        pass
    labels = registry.labels(name)
    return {
        "name": name,
        "draft": draft,
        "labels": labels,
        "goes_back_to": {label: registry.previous(name, label) for label in labels},
        "versions": [{"version": version, "system": text} for version, text in texts.items()],
        "moves": [
            {"time_s": m.time_s, "label": m.label, "version": m.version, "reason": m.reason}
            for m in reversed(registry.history(name))
        ],
    }


def _version(registry: PromptRegistry, name: str, version: str) -> PromptVersion:
    if version in registry.versions(name):
        return registry.resolve(f"{name}@{version}")
    draft = registry.resolve(f"{name}@{DRAFT}")
    if draft.version != version:
        raise ConfigurationError(
            f"{name}@{version} is neither kept nor the draft, which is {draft.version}"
        )
    return draft


def _check_run(
    row: Mapping[str, Any], run_id: str, prompt: PromptVersion, current: str | None
) -> None:
    if list(row["candidate"]) != [prompt.label]:
        raise ConfigurationError(f"run {run_id} had another text than {prompt.label} as candidate")
    baseline = f"{prompt.name}@{current}"
    if current is not None and list(row["baseline"]) != [baseline]:
        raise ConfigurationError(f"run {run_id} did not compare with {baseline}, which is in use")
    verdict = run_verdict(row["verdicts"], row["slices"])
    if verdict not in PASSING:
        raise ConfigurationError(f"run {run_id} did not pass: {verdict or 'it has no gate'}")
