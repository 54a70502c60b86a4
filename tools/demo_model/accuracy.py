"""Accuracy of a checkpoint on a golden dataset: `python -m tools.demo_model.accuracy`."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import golden_datasets
from evenkeel_runtime.demo_model.checkpoint import target_path

SUPPORT = Path(golden_datasets.__file__).parent / "support"
MAX_NEW_TOKENS = 96
OVERALL = "overall"


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Correct answers out of all, for one slice."""

    num_right: int
    num_items: int

    @property
    def ratio(self) -> float | None:
        """Correct / all; None if there are no items."""
        return self.num_right / self.num_items if self.num_items else None


def is_right(scorer: str, reference: str, answer: str) -> bool:
    """Return whether `answer` counts as `reference`, as golden_datasets/README.md defines it.

    Raises:
        ValueError: On an unknown scorer.
    """
    if scorer == "exact":
        return answer.strip() == reference.strip()
    if scorer == "normalised":
        return _normalise(answer) == _normalise(reference)
    if scorer == "json":
        return _same_json(reference, answer)
    raise ValueError(f"scorer is {scorer!r}, expected exact, normalised or json")


def read_items(folder: Path = SUPPORT) -> list[dict[str, Any]]:
    """Return the items of the golden dataset."""
    text = (folder / "support.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.split("\n") if line]


def read_system_prompt(side: str, folder: Path = SUPPORT) -> str:
    """Return the system prompt of an A/B side of the dataset."""
    text = (folder / "sides" / f"{side}.toml").read_text(encoding="utf-8")
    return str(tomllib.loads(text)["prompt"]["system"])


def read_manifest(folder: Path = SUPPORT) -> dict[str, Any]:
    """Return the dataset's facts from support.toml: version, hash, counts."""
    return tomllib.loads((folder / "support.toml").read_text(encoding="utf-8"))


def answer_all(
    model_folder: Path, system: str, items: Sequence[Mapping[str, Any]], batch_size: int = 64
) -> list[str]:
    """Return the greedy answers in the items' order; an empty `system` sends no system message."""
    # Scoring needs neither, and they take seconds to import.
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).eval()
    prompts = [
        tokenizer.apply_chat_template(
            [*_system_message(system), *item["messages"]],
            tokenize=False,
            add_generation_prompt=True,
        )
        for item in items
    ]
    # Batching prompts of similar length wastes the least on padding.
    order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
    answers = [""] * len(prompts)
    for start in range(0, len(order), batch_size):
        chosen = order[start : start + batch_size]
        inputs = tokenizer(
            [prompts[i] for i in chosen],
            return_tensors="pt",
            padding=True,
            add_special_tokens=False,
            return_token_type_ids=False,
        )
        with torch.inference_mode():
            output = model.generate(**inputs, max_new_tokens=MAX_NEW_TOKENS, do_sample=False)
        texts = tokenizer.batch_decode(
            output[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True
        )
        for index, text in zip(chosen, texts, strict=True):
            answers[index] = text
    return answers


def score(items: Iterable[Mapping[str, Any]], answers: Iterable[str]) -> dict[str, Accuracy]:
    """Return the accuracy of each tag, in order of appearance, and `overall`."""
    outcomes: dict[str, list[bool]] = {}
    for item, answer in zip(items, answers, strict=True):
        right = is_right(item["scorer"], item["reference"], answer)
        for tag in (*item["tags"], OVERALL):
            outcomes.setdefault(tag, []).append(right)
    overall = outcomes.pop(OVERALL, [])
    return {
        tag: Accuracy(sum(rights), len(rights))
        for tag, rights in {**outcomes, OVERALL: overall}.items()
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the accuracy of each slice."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo_model.accuracy",
        description="Score a checkpoint on golden_datasets/support.",
        epilog="Example: python -m tools.demo_model.accuracy --side short --wrong",
    )
    parser.add_argument("--model", type=Path, help="checkpoint (default: the demo model)")
    parser.add_argument("--side", default="full", help="file in sides/ (default full)")
    parser.add_argument("--wrong", action="store_true", help="print the wrong answers too")
    args = parser.parse_args(argv)
    items = read_items()
    answers = answer_all(args.model or target_path(), read_system_prompt(args.side), items)
    if args.wrong:
        for item, answer in zip(items, answers, strict=True):
            if not is_right(item["scorer"], item["reference"], answer):
                print(f"{item['id']}: {item['messages'][-1]['content'][-120:]!r} -> {answer!r}")
    for tag, accuracy in score(items, answers).items():
        ratio = "no data" if accuracy.ratio is None else f"{accuracy.ratio:.3f}"
        print(f"{tag:20} {ratio}  {accuracy.num_right}/{accuracy.num_items}")
    return 0


def _system_message(system: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}] if system else []


def _normalise(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _same_json(reference: str, answer: str) -> bool:
    try:
        return bool(json.loads(answer) == json.loads(reference))
    except json.JSONDecodeError:
        return False


if __name__ == "__main__":
    sys.exit(main())
