"""Trains the demo model and its draft: `python -m tools.demo_model.train --output DIR`."""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from evenkeel_runtime.demo_model.checkpoint import DRAFT, TARGET
from golden_datasets.support.knowledge import read_knowledge
from tools.demo_model.card import Training, write_card
from tools.demo_model.conversations import Writer
from tools.demo_model.rows import Batch, RowMaker
from tools.demo_model.tokenizer import MAX_POSITIONS, VOCABULARY, train_tokenizer

SEED = 20_261_120
NUM_TOKENIZER_PROMPTS = 100
NUM_TOKENIZER_CONVERSATIONS = 6000
# Interval of steps whose rows have long system prompts.
LONG_EVERY = 4
WARMUP_RATIO = 0.05
LAST_RATE_RATIO = 0.05


@dataclass(frozen=True, slots=True)
class Stage:
    """One cycle of the learning rate: `steps` optimiser steps, from `peak_rate` down."""

    steps: int
    peak_rate: float


@dataclass(frozen=True, slots=True)
class Recipe:
    """Shape of one model and how long it is trained.

    Attributes:
        name: Folder of the checkpoint.
        hidden: Width of the residual stream.
        layers: Number of decoder layers.
        heads: Attention heads of 32 dimensions each.
        key_value_heads: Heads that keys and values have.
        intermediate: Width of the feed-forward part.
        stages: Each continues from the last, with rows drawn from another seed.
        tokens: Tokens per step, including prompts and padding.
    """

    name: str
    hidden: int
    layers: int
    heads: int
    key_value_heads: int
    intermediate: int
    stages: tuple[Stage, ...]
    tokens: int = 4608

    @property
    def steps(self) -> int:
        """Optimiser steps over all stages."""
        return sum(stage.steps for stage in self.stages)


TARGET_RECIPE = Recipe(TARGET, 192, 4, 6, 2, 512, (Stage(1000, 3e-3), Stage(400, 2e-3)))
DRAFT_RECIPE = Recipe(DRAFT, 96, 2, 3, 1, 256, (Stage(800, 5e-3),))


def build_model(recipe: Recipe, tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """Return an untrained model of that shape."""
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=recipe.hidden,
            intermediate_size=recipe.intermediate,
            num_hidden_layers=recipe.layers,
            num_attention_heads=recipe.heads,
            num_key_value_heads=recipe.key_value_heads,
            head_dim=recipe.hidden // recipe.heads,
            max_position_embeddings=MAX_POSITIONS,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )


def make_tokenizer() -> PreTrainedTokenizerFast:
    """Return the tokenizer trained on prompts and conversations drawn with the seed."""
    writer = Writer(read_knowledge(), SEED)
    texts = [writer.system_prompt(is_long=True).text for _ in range(NUM_TOKENIZER_PROMPTS)]
    for index in range(NUM_TOKENIZER_CONVERSATIONS):
        for turn in writer.conversation(wants_json=index % 2 == 0):
            texts += [turn.user, turn.assistant]
    return train_tokenizer(texts)


def train(
    recipe: Recipe, tokenizer: PreTrainedTokenizerFast, console: Console
) -> tuple[LlamaForCausalLM, float]:
    """Return the trained model and its mean loss, in nats per token, over the last 20 steps."""
    torch.manual_seed(SEED)
    model = build_model(recipe, tokenizer)
    losses: list[float] = []
    model.train()
    with _progress(console) as progress:
        task = progress.add_task(recipe.name, total=recipe.steps, loss="")
        for number, stage in enumerate(recipe.stages, start=1):
            maker = RowMaker(tokenizer, Writer(read_knowledge(), SEED + number))
            for loss in _train_stage(model, stage, maker, recipe.tokens):
                losses.append(loss)
                progress.update(task, advance=1, loss=f"loss {loss:.3f}")
                if not console.is_terminal and len(losses) % 50 == 0:
                    console.print(f"{recipe.name} step {len(losses)}/{recipe.steps} {loss:.3f}")
    return model, sum(losses[-20:]) / len(losses[-20:])


def _train_stage(
    model: LlamaForCausalLM, stage: Stage, maker: RowMaker, tokens: int
) -> Iterator[float]:
    """Train for one stage, yielding the loss of each step."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=stage.peak_rate, betas=(0.9, 0.98), weight_decay=0.1
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate_ratio(step, stage.steps)
    )
    for step in range(stage.steps):
        loss = answer_loss(model, maker.batch(tokens, is_long=step % LONG_EVERY == 0))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad(set_to_none=True)
        yield loss.item()


def answer_loss(model: LlamaForCausalLM, batch: Batch) -> torch.Tensor:
    """Return the cross entropy over answer tokens; the head is computed only for those."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        hidden = model.model(
            input_ids=batch.tokens,
            attention_mask=batch.visible,
            position_ids=batch.positions,
            use_cache=False,
        ).last_hidden_state
        counts = batch.labels != -100
        logits = model.lm_head(hidden[counts])
    return torch.nn.functional.cross_entropy(logits.float(), batch.labels[counts])


def rate_ratio(step: int, num_steps: int) -> float:
    """Return learning rate / peak rate: linear warm-up, then a cosine to LAST_RATE_RATIO."""
    num_warmup = max(1, round(num_steps * WARMUP_RATIO))
    if step < num_warmup:
        return (step + 1) / num_warmup
    done = (step - num_warmup) / max(1, num_steps - num_warmup)
    return LAST_RATE_RATIO + (1 - LAST_RATE_RATIO) * (1 + math.cos(math.pi * done)) / 2


def save(model: LlamaForCausalLM, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    """Write the model in bf16 and its tokenizer, as vLLM loads them."""
    folder.mkdir(parents=True, exist_ok=True)
    model.eval().to(torch.bfloat16)
    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Train both models, score them, and write them with their card under the output folder."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo_model.train",
        description="Train the demo model and its draft model, and score them.",
        epilog="Example: python -m tools.demo_model.train --output build/demo_model",
    )
    parser.add_argument("--output", type=Path, required=True, help="folder for target/ and draft/")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default 2)")
    parser.add_argument("--steps", type=int, help="train both for only this many steps")
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    console = Console(stderr=True)
    tokenizer = make_tokenizer()
    trainings = []
    for recipe in (TARGET_RECIPE, DRAFT_RECIPE):
        if args.steps:
            recipe = replace(recipe, stages=(Stage(args.steps, recipe.stages[0].peak_rate),))
        started = time.monotonic()
        model, loss = train(recipe, tokenizer, console)
        wall_s = time.monotonic() - started
        save(model, tokenizer, args.output / recipe.name)
        trainings.append(Training(recipe.name, model.num_parameters(), recipe.steps, loss, wall_s))
        console.print(f"{recipe.name}: loss {loss:.4f}, {wall_s:.0f} s")
    console.print("scoring on golden_datasets/support, with four system prompts")
    console.print(write_card(args.output, SEED, trainings))
    return 0


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[loss]}"),
        console=console,
        disable=not console.is_terminal,
    )


if __name__ == "__main__":
    sys.exit(main())
