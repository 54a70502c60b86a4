"""The model card of a trained demo model: data, seed, steps, loss, wall time, accuracy by slice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from evenkeel_runtime.demo_model.checkpoint import DRAFT, TARGET
from golden_datasets.support.knowledge import read_knowledge
from tools.demo_model.accuracy import (
    Accuracy,
    answer_all,
    read_items,
    read_manifest,
    read_system_prompt,
    score,
)

CARD = "card.toml"
EXTRACTION = "extraction"


@dataclass(frozen=True, slots=True)
class Training:
    """How one model was trained.

    Attributes:
        name: Folder of the checkpoint.
        num_parameters: Tied weights counted once.
        steps: Optimiser steps.
        loss: Mean over the last 20 steps, nats per answer token.
        wall_s: Wall time of the training loop on the machine used.
    """

    name: str
    num_parameters: int
    steps: int
    loss: float
    wall_s: float


def write_card(folder: Path, seed: int, trainings: Sequence[Training]) -> str:
    """Score the checkpoints under `folder`, write their card there and return its text.

    The target is scored with the prompts of both A/B sides; its extractions also with JSON rules
    worded unlike any training prompt; the draft with the full prompt.
    """
    items = read_items()
    extractions = [item for item in items if EXTRACTION in item["tags"]]
    full, short = read_system_prompt("full"), read_system_prompt("short")
    target, draft = folder / TARGET, folder / DRAFT
    unseen_rules = {
        f"unseen-rule-{number}": score(
            extractions, answer_all(target, f"{short} {rule}", extractions)
        )[EXTRACTION]
        for number, rule in enumerate(read_knowledge().json_rules.held_out, start=1)
    }
    tables = {
        "accuracy.full": score(items, answer_all(target, full, items)),
        "accuracy.short": score(items, answer_all(target, short, items)),
        "accuracy.extraction_with": unseen_rules,
        "draft_accuracy.full": score(items, answer_all(draft, full, items)),
    }
    text = "\n".join([*_head(seed), *map(_training, trainings), *map(_table, tables.items())])
    (folder / CARD).write_text(text, encoding="utf-8")
    return text


def _head(seed: int) -> list[str]:
    manifest = read_manifest()
    return [
        "# Written by: python -m tools.demo_model.train",
        'name = "support"',
        'licence = "Apache-2.0"',
        'data = "train wordings of golden_datasets/support/knowledge"',
        f'dataset = "{manifest["name"]} {manifest["version"]}"',
        f'dataset_sha256 = "{manifest["sha256"]}"',
        f"seed = {seed}",
        "",
    ]


def _training(training: Training) -> str:
    return (
        f"[training.{training.name}]\n"
        f"num_parameters = {training.num_parameters}\n"
        f"steps = {training.steps}\n"
        f"loss_nats = {training.loss:.4f}\n"
        f"wall_s = {training.wall_s:.0f}\n"
    )


def _table(entry: tuple[str, Mapping[str, Accuracy]]) -> str:
    name, accuracies = entry
    rows = [f"{t} = {a.ratio:.3f}" for t, a in accuracies.items() if a.ratio is not None]
    return "\n".join([f"[{name}]", *rows, ""])
