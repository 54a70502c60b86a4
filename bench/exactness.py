"""Test that drafts do not change the distribution of sampled answers, for each source of drafts.

Many answers of five tokens are sampled from fixed prefixes, with all prefixes and settings mixed in
one batch. A cached answer is drafted along with the prompt, others after the first token. If a
draft of three tokens was verified there, the joint frequency of those three tokens is compared with
the exact probability from a float32 forward pass of the model by transformers. Token sequences form
a tree; those expected fewer than five times are pooled with their siblings or, if that is not
enough, with their parents'.
Pearson's chi-square for each prefix, first token and setting, and Holm over all of them. Whether a
draft was proposed depends only on earlier tokens, so conditioning on it causes no bias; whether it
was accepted is not a condition.

Prefixes are random words, the model's continuation, and the words again, so that the text itself is
a source of drafts and several words are likely to follow. Exits 1 if a distribution differs.
"""

import argparse
import importlib
import os
import random
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from bench.servers import describe_machine

DEPTH = 3
MIN_EXPECTED = 5
ALPHA = 0.001
MIN_SAMPLES = 50
NUM_CANDIDATES = 24
SOURCES = ("retrieval", "prompt", "cache", "vllm-ngram", "draft-model", "draft-probabilistic")
OUR_SOURCES = SOURCES[:3]
ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "HF_HUB_OFFLINE": "1",
}
_MAX_DRAFT = {"num_speculative_tokens": DEPTH}
_NGRAM = {"method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 2, **_MAX_DRAFT}

Tokens = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Setting:
    """How a request samples."""

    temperature: float
    top_p: float = 1.0
    top_k: int = 0


SETTINGS: tuple[Setting, ...] = (
    Setting(0.3),
    Setting(0.8),
    Setting(1.2),
    Setting(0.3, top_p=0.9),
    Setting(0.8, top_p=0.9),
    Setting(1.2, top_p=0.9),
    Setting(1.2, top_k=4),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """One distribution: `accepted_ratio` is of its first drafts' tokens."""

    source: str
    setting: Setting
    prefix: int
    before: Tokens
    samples: int
    cells: int
    accepted_ratio: float
    chi_square: float
    p: float


class Target:
    """The model's exact probabilities."""

    def __init__(self) -> None:
        import torch
        from transformers import AutoModelForCausalLM

        from evenkeel_runtime.demo_model.checkpoint import target_path

        # Engines are forked from this process, which must not have threads of OpenMP then.
        torch.set_num_threads(1)
        self._torch = torch
        self._model = AutoModelForCausalLM.from_pretrained(target_path(), dtype=torch.float32)
        self._model.eval()
        self.vocabulary = int(self._model.config.vocab_size)

    def next_probabilities(self, texts: Sequence[Sequence[int]], setting: Setting) -> Any:
        """Return [texts, vocabulary] as numpy; all texts are equally long."""
        torch = self._torch
        with torch.inference_mode():
            logits = self._model(torch.tensor(texts)).logits[:, -1].double()
        probabilities = (logits / setting.temperature).softmax(-1)
        ranked, order = probabilities.sort(dim=-1, descending=True)
        if setting.top_k:
            ranked[:, setting.top_k :] = 0
            ranked /= ranked.sum(-1, keepdim=True)
        # The likeliest tokens up to the one with which they reach top_p.
        ranked[ranked.cumsum(-1) - ranked >= setting.top_p] = 0
        probabilities = torch.zeros_like(ranked).scatter_(1, order, ranked)
        return (probabilities / probabilities.sum(-1, keepdim=True)).numpy()

    def follow(self, text: Sequence[int], length: int) -> list[int]:
        """Return the likeliest continuation, token by token."""
        made: list[int] = []
        for _ in range(length):
            made.append(int(self.next_probabilities([[*text, *made]], Setting(1.0))[0].argmax()))
        return made


def find_prefixes(target: Target, count: int) -> list[tuple[list[int], list[int]]]:
    """Return the prefixes after which most can happen, each with the draft handed over for it."""
    import numpy as np

    words, rated = random.Random(3), []
    for _ in range(NUM_CANDIDATES):
        phrase = [words.randrange(3, target.vocabulary) for _ in range(20)]
        draft = target.follow(phrase, DEPTH + 1)
        prefix = phrase + draft + phrase
        rates = [
            target.next_probabilities([prefix + draft[:n]], Setting(0.8))[0]
            for n in range(DEPTH + 1)
        ]
        surprise = sum(-float((p * np.log(p + 1e-300)).sum()) for p in rates[1:])
        rated.append((float(rates[0][draft[0]]) * min(surprise, 3.0), prefix, draft))
    rated.sort(key=lambda each: -each[0])
    return [(prefix, draft) for _, prefix, draft in rated[:count]]


class Cells:
    """The sequences counted separately, with the probability of each; the rest is pooled."""

    def __init__(self, target: Target, text: Sequence[int], setting: Setting, samples: int) -> None:
        self.probability: dict[Tokens, float] = {(): 1.0}
        level: list[Tokens] = [()]
        for _ in range(DEPTH):
            rows = target.next_probabilities([[*text, *path] for path in level], setting)
            following: list[Tokens] = []
            for path, row in zip(level, rows, strict=True):
                own = self.probability[path]
                for token in (row * own * samples >= MIN_EXPECTED).nonzero()[0].tolist():
                    child = (*path, token)
                    self.probability[child] = own * float(row[token])
                    # A path stands for what goes on as none of its children.
                    self.probability[path] -= self.probability[child]
                    following.append(child)
            level = following
            if not level:
                break
        self._pool(samples)

    def _pool(self, samples: int) -> None:
        for path in sorted(self.probability, key=len, reverse=True):
            if path and self.probability[path] * samples < MIN_EXPECTED:
                self.probability[path[:-1]] += self.probability.pop(path)
        self._rest: Tokens = ()
        if self.probability[()] * samples < MIN_EXPECTED and len(self.probability) > 1:
            rest = self.probability.pop(())
            self._rest = min(self.probability, key=lambda path: self.probability[path])
            self.probability[self._rest] += rest

    def find(self, tokens: Tokens) -> Tokens:
        """Return the cell that a sequence belongs to."""
        while tokens and tokens not in self.probability:
            tokens = tokens[:-1]
        return tokens or self._rest


@dataclass(frozen=True, slots=True)
class Sample:
    """One answer whose first verified draft was `draft`, after `start` tokens.

    A cached answer is drafted along with the prompt, so after none; other drafts come after one.
    """

    prefix: int
    setting: Setting
    tokens: Tokens
    draft: Tokens
    start: int


class Engine:
    """A vLLM engine in this process, and the drafts that its scheduler sends out."""

    def __init__(self, source: str) -> None:
        from vllm import LLM

        from evenkeel_runtime.demo_model.checkpoint import draft_path, target_path
        from evenkeel_runtime.speculation.flags import speculation_flags
        from tests.fixtures.fixed_length import FixedLength

        options: dict[str, Any]
        if source in OUR_SOURCES:
            flags = speculation_flags(DEPTH, is_cpu=True)
            options = {"scheduler_cls": flags.scheduler_class, "worker_cls": flags.worker_class}
            options["speculative_config"] = flags.config
        elif source == "vllm-ngram":
            options = {"speculative_config": _NGRAM}
        else:
            config = {"method": "draft_model", "model": str(draft_path()), **_MAX_DRAFT}
            if source == "draft-probabilistic":
                config["draft_sample_method"] = "probabilistic"
            options = {"speculative_config": config}
        self.llm = LLM(
            model=str(target_path()),
            dtype="float32",
            enforce_eager=True,
            max_model_len=128,
            max_num_seqs=64,
            block_size=32,  # A prefix is longer, and its first block is computed once.
            seed=11,
            **options,
        )
        self._scheduler = self.llm.llm_engine.engine_core.engine_core.scheduler
        speculation = getattr(self._scheduler, "evenkeel_speculation", None)
        if speculation is not None:
            speculation.controller = FixedLength(DEPTH)
        self._schedule = self._scheduler.schedule
        self._scheduler.schedule = self._record_first_drafts
        self._first_drafts: dict[str, tuple[int, Tokens]] = {}

    def _record_first_drafts(self, *args: Any, **options: Any) -> Any:
        output = self._schedule(*args, **options)
        for request_id, draft in output.scheduled_spec_decode_tokens.items():
            start = self._scheduler.requests[request_id].num_output_tokens
            if start <= 1:
                found = (start, tuple(draft[:DEPTH]))
                self._first_drafts.setdefault(request_id.rpartition("-")[0], found)
        return output

    def sample(
        self, source: str, prefixes: Sequence[tuple[list[int], list[int]]], samples: int
    ) -> Iterator[Sample]:
        """Sample this many answers per prefix and setting, and return those with drafts."""
        from vllm import SamplingParams

        asked = [(n, s) for n in range(len(prefixes)) for s in SETTINGS for _ in range(samples)]
        random.Random(7).shuffle(asked)
        prompts, settings = [], []
        for number, (prefix, setting) in enumerate(asked):
            # Nobody's answers are followed where the text itself is to be the source.
            extra: dict[str, Any] = {"evenkeel_tenant": "all" if source == "retrieval" else number}
            if source == "cache":
                extra["evenkeel_draft"] = prefixes[prefix][1]
            settings.append(
                SamplingParams(
                    **asdict(setting),
                    max_tokens=DEPTH + 2,
                    ignore_eos=True,
                    detokenize=False,
                    extra_args=extra,
                )
            )
            prompts.append({"prompt_token_ids": prefixes[prefix][0]})
        self._first_drafts.clear()
        answers = self.llm.generate(prompts, settings, use_tqdm=False)
        for (prefix, setting), answer in zip(asked, answers, strict=True):
            start, draft = self._first_drafts.get(answer.request_id, (0, ()))
            if len(draft) == DEPTH:
                tokens = tuple(answer.outputs[0].token_ids)
                yield Sample(prefix, setting, tokens, draft, start)


def compare(
    source: str, target: Target, prefixes: Sequence[Sequence[int]], samples: Sequence[Sample]
) -> Iterator[Comparison]:
    """Compare frequencies with probabilities for each prefix, token before and setting."""
    from scipy.stats import chi2

    groups: dict[tuple[int, Setting, Tokens], list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.prefix, sample.setting, sample.tokens[: sample.start]].append(sample)
    for (prefix, setting, before), group in groups.items():
        num_samples = len(group)
        if num_samples < MIN_SAMPLES:
            continue
        cells = Cells(target, [*prefixes[prefix], *before], setting, num_samples)
        start = len(before)
        seen = Counter(cells.find(sample.tokens[start : start + DEPTH]) for sample in group)
        statistic = 0.0
        for cell, probability in cells.probability.items():
            expected = max(probability, 1e-12) * num_samples
            statistic += (seen[cell] - expected) ** 2 / expected
        degrees = max(1, len(cells.probability) - 1)
        agreed = sum(count_agreed(s.draft, s.tokens[start:]) for s in group)
        yield Comparison(
            *(source, setting, prefix, before, num_samples, len(cells.probability)),
            agreed / (DEPTH * num_samples),
            statistic,
            float(chi2.sf(statistic, degrees)),
        )


def count_agreed(draft: Tokens, tokens: Tokens) -> int:
    """Return how many tokens of a draft were accepted."""
    agreed = 0
    while agreed < len(draft) and draft[agreed] == tokens[agreed]:
        agreed += 1
    return agreed


def find_different(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return those that Holm's procedure rejects at `ALPHA`."""
    ordered = sorted(comparisons, key=lambda each: each.p)
    rejected = []
    for rank, each in enumerate(ordered):
        if each.p > ALPHA / (len(ordered) - rank):
            break
        rejected.append(each)
    return rejected


def sample_group(
    sources: Sequence[str],
    prefixes: Sequence[tuple[list[int], list[int]]],
    samples: int,
    prepare: Callable[[], None],
) -> dict[str, list[Sample]]:
    """Sample from the sources of one engine; runs in its own process."""
    prepare()
    engine = Engine(sources[0])
    return {source: list(engine.sample(source, prefixes, samples)) for source in sources}


def run(
    sources: Sequence[str], num_prefixes: int, samples: int, prepare: Callable[[], None]
) -> list[Comparison]:
    """Sample from each source, and return all comparisons."""
    target = Target()
    prefixes = find_prefixes(target, num_prefixes)
    ours = [source for source in sources if source in OUR_SOURCES]
    groups = [[source] for source in sources if source not in OUR_SOURCES]
    drawn: dict[str, list[Sample]] = {}
    # Importing it takes longer than all else that starts an engine.
    importlib.import_module("vllm.entrypoints.llm")
    for group in [ours, *groups] if ours else groups:
        with ProcessPoolExecutor(1, get_context("fork")) as process:
            drawn |= process.submit(sample_group, group, prefixes, samples, prepare).result()
    texts = [prefix for prefix, _ in prefixes]
    return [each for source in sources for each in compare(source, target, texts, drawn[source])]


def nothing() -> None:
    """Do nothing to the engine's process."""


def main(arguments: Sequence[str] | None = None, prepare: Callable[[], None] = nothing) -> int:
    """Run the bench; `prepare` is called in the process of each engine, before it starts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--sources", default=",".join(SOURCES), help="comma-separated")
    parser.add_argument("--prefixes", type=int, default=4)
    parser.add_argument("--samples", type=int, default=500, help="for each prefix and setting")
    parser.add_argument("--json", type=Path, metavar="FILE")
    args = parser.parse_args(arguments)
    os.environ |= ENVIRONMENT
    comparisons = run(args.sources.split(","), args.prefixes, args.samples, prepare)
    different = find_different(comparisons)
    print("source               distributions   samples accepted   least p different")
    for source in args.sources.split(","):
        own = [each for each in comparisons if each.source == source]
        total = sum(each.samples for each in own)
        accepted = sum(each.accepted_ratio * each.samples for each in own) / max(1, total)
        least = min((each.p for each in own), default=1.0)
        wrong = sum(each.source == source for each in different)
        print(f"{source:<20} {len(own):>13} {total:>9} {accepted:>8.2f} {least:>9.2g} {wrong}")
    result = {
        "machine": describe_machine(),
        "alpha": ALPHA,
        "different": len(different),
        "comparisons": [asdict(each) for each in comparisons],
    }
    write_report(args.json, result)
    untested = set(args.sources.split(",")) - {each.source for each in comparisons}
    if untested:
        print(f"not tested: {', '.join(sorted(untested))}")
    return 1 if different or untested else 0


if __name__ == "__main__":
    sys.exit(main())
