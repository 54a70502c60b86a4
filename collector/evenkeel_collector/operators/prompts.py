"""Prompt actions for operators: move a label to another version, and roll it back.

The rules are those of `evenkeel.prompts.promotion`; eval runs are looked up in the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from evenkeel.errors import ConfigurationError
from evenkeel.prompts import promotion as prompt_promotion
from evenkeel.prompts.gate_verdict import read_stored_run
from evenkeel.prompts.promotion import Promotion, Reversal, find_text
from evenkeel.prompts.registry import PromptRegistry
from evenkeel_collector.operators.actions import Name, Order, Text

Label = Literal["production", "canary"]
# Returns the row of `prompt_run` for a run.
ReadRun = Callable[[str], Mapping[str, Any]]


class Promote(Order):
    """Move a label to a version, after a passing run or with a stated reason."""

    prompt: Name = Field(description="The name of the prompt.")
    version: str = Field(
        pattern=r"^[0-9a-f]{12}$", description="The version to move to, 12 hex digits."
    )
    label: Label = Field(default="production", description="The label.")
    run_id: Name | None = Field(
        default=None,
        description="The passing run that proves the version; without it, a reason is required.",
    )
    reason: Text = Field(default="", description="Why.")


class Rollback(Order):
    """Move a label back to its previous version."""

    prompt: Name = Field(description="The name of the prompt.")
    label: Label = Field(default="production", description="The label.")
    reason: Text = Field(default="", description="Why.")


def promote(
    registry: PromptRegistry, order: Promote, now_ns: int, read_run: ReadRun
) -> dict[str, Any]:
    """Move a label forward.

    Raises:
        EvenkeelError: As `evenkeel.prompts.promotion.promote`, and if there is no such version.
        StoreError: If the result of the run cannot be read from the store.
    """
    prompt = find_text(registry, order.prompt, order.version)
    run = None
    if order.run_id is not None:
        run = read_stored_run(order.run_id, read_run(order.run_id))
    wanted = Promotion(prompt, order.label, order.by, run, order.reason)
    return prompt_promotion.promote(registry, wanted, now_ns).to_record()


def roll_back(registry: PromptRegistry, order: Rollback, now_ns: int) -> dict[str, Any]:
    """Move a label back.

    Raises:
        ConfigurationError: If the label has no previous version.
    """
    wanted = Reversal(order.prompt, order.label, order.by, order.reason)
    return prompt_promotion.roll_back(registry, wanted, now_ns).to_record()


def listing(folder: Path) -> list[dict[str, Any]]:
    """Return every prompt with its versions, texts, labels and label history."""
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
