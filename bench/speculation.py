"""Measure tokens per second with the speculation hook, fixed draft lengths and no speculation.

Two engines in this process, vLLM's own and one with the hook, take turns in short blocks, in random
order. A block keeps a constant number of requests running. Fixed lengths run on the second engine,
with a controller that always drafts the same number of tokens. A figure is the median of the
rounds' ratios, with minimum and maximum; figures by CPU time do not depend on other load on the
machine.

Traffic: `repeating` repeats the same prompts, greedily; `fresh` samples random words at temperature
1, so that nothing in it was seen before; `mixed` is half of each.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from bench.servers import SHAPES, describe_machine

AUTO, NONE = "auto", "none"
CPU_OPTIONS: dict[str, Any] = {"enforce_eager": True}
# Two engines share the card.
GPU_OPTIONS: dict[str, Any] = {"gpu_memory_utilization": 0.4, "kv_cache_memory_bytes": 4 << 30}
MAX_DRAFT = 15
MODEL_TOKENS = 1024
PROMPT_TOKENS = 32
PROMPTS = 64


@dataclass(frozen=True, slots=True)
class Block:
    """Tokens per second of one arm in one round, by wall time and by CPU time."""

    per_s: float
    per_cpu_s: float


class Engines:
    """Both engines, and how to have either answer a block of requests."""

    def __init__(self, model: Path, answer_tokens: int, options: dict[str, Any]) -> None:
        from vllm import LLM

        from evenkeel_runtime.speculation.flags import speculation_flags

        base = {
            "model": str(model),
            "max_model_len": MODEL_TOKENS,
            "max_num_seqs": 32,
            "enable_prefix_caching": False,
            "seed": 1,
            **options,
        }
        is_cpu = "hf_overrides" not in options
        flags = speculation_flags(MAX_DRAFT, is_cpu, is_ahead=not is_cpu)
        self.plain = LLM(**base)
        self.hooked = LLM(
            **base,
            speculative_config=flags.config,
            scheduler_cls=flags.scheduler_class,
            worker_cls=flags.worker_class,
        )
        self.scheduler = self.hooked.llm_engine.engine_core.engine_core.scheduler
        self.auto = self.scheduler.evenkeel_speculation.controller
        self.vocabulary = self.plain.llm_engine.model_config.get_vocab_size()
        self.answer_tokens = answer_tokens
        self.num_asked = 0
        words = random.Random(5)
        self.prompts = [self._fresh_prompt(words) for _ in range(PROMPTS)]

    def _fresh_prompt(self, words: random.Random) -> list[int]:
        return [words.randrange(3, self.vocabulary) for _ in range(PROMPT_TOKENS)]

    def run(self, arm: str, traffic: str, batch: int, words: random.Random) -> Block:
        """Keep `batch` requests running for a number of answers, and return the speed."""
        from tests.fixtures.fixed_length import FixedLength

        engine = (self.plain if arm == NONE else self.hooked).llm_engine
        if arm != NONE:
            controller = self.auto if arm == AUTO else FixedLength(int(arm))
            self.scheduler.evenkeel_speculation.controller = controller
        for seat in range(batch):
            self._ask(engine, seat, traffic, words)
        wanted = max(batch, 2) * self.answer_tokens
        made = 0
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        while made < wanted:
            for answer in engine.step():
                made += len(answer.outputs[0].token_ids)
                if answer.finished:
                    self._ask(engine, int(answer.request_id.split("-")[0]), traffic, words)
        seconds, cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
        engine.abort_request(list(engine.output_processor.external_req_ids))
        while engine.has_unfinished_requests():
            engine.step()
        return Block(made / seconds, made / cpu_s)

    def _ask(self, engine: Any, seat: int, traffic: str, words: random.Random) -> None:
        """Add the next request of one seat."""
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self.num_asked += 1
        is_fresh = traffic == "fresh" or (traffic == "mixed" and seat % 2 == 0)
        params = SamplingParams(
            temperature=1.0 if is_fresh else 0.0,
            max_tokens=self.answer_tokens,
            ignore_eos=True,
            output_kind=RequestOutputKind.DELTA,
        )
        prompt = self._fresh_prompt(words) if is_fresh else words.choice(self.prompts)
        engine.add_request(f"{seat}-{self.num_asked}", {"prompt_token_ids": prompt}, params)

    def warm_up(self) -> tuple[float, float]:
        """Answer every prompt once, so that all later requests are repetitions.

        Returns:
            The share of answers by the engine with the hook that are the plain one's, token by
            token: the first time, when little is drafted, and the second. On a GPU a sum's order
            changes with the shape of a batch, so that even vLLM without drafts is not its own twin.
        """
        from vllm import SamplingParams

        greedy = SamplingParams(temperature=0.0, max_tokens=self.answer_tokens, ignore_eos=True)
        prompts = [{"prompt_token_ids": prompt} for prompt in self.prompts]

        def answer(engine: Any) -> list[Any]:
            answers = engine.generate(prompts, greedy, use_tqdm=False)
            return [each.outputs[0].token_ids for each in answers]

        plain, first, second = (answer(e) for e in (self.plain, self.hooked, self.hooked))
        same = [
            statistics.mean(a == b for a, b in zip(plain, made, strict=True))
            for made in (first, second)
        ]
        print(f"identical greedy answers: {same[0]:.0%}, with drafts {same[1]:.0%}", flush=True)
        return same[0], same[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", default="1,2,4,8,16,32", help="requests at once")
    parser.add_argument("--lengths", default="2,4,8,15", help="fixed draft lengths")
    parser.add_argument("--traffic", default="repeating,fresh,mixed")
    parser.add_argument("--rounds", type=int, default=7, help="blocks of each arm (7)")
    parser.add_argument("--answer-tokens", type=int, default=96)
    parser.add_argument("--hidden", type=int, default=768, help="width of the random model (768)")
    parser.add_argument("--layers", type=int, default=12, help="its layers (12)")
    parser.add_argument("--demo", action="store_true", help="the demo model instead")
    parser.add_argument("--gpu", choices=SHAPES, help="random weights of this shape, on a GPU")
    parser.add_argument("--options", default="{}", help="more of vLLM's engine arguments (JSON)")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
    }
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="ek-") as folder:
        options = (GPU_OPTIONS if args.gpu else CPU_OPTIONS) | json.loads(args.options)
        if args.gpu:
            options |= {"load_format": "dummy", "hf_overrides": SHAPES[args.gpu]}
        engines = Engines(find_model(args, Path(folder)), args.answer_tokens, options)
        identical = engines.warm_up()
        rows = [
            measure(engines, traffic, int(batch), args.lengths.split(","), args.rounds)
            for traffic in args.traffic.split(",")
            for batch in args.batches.split(",")
        ]
    random_model = args.gpu or f"{args.layers} × {args.hidden}"
    report = {
        "model": "demo" if args.demo else f"random Llama {random_model}",
        "machine": describe_machine(),
        "threads": os.environ["OMP_NUM_THREADS"],
        "identical_answers": identical,
        "rows": rows,
    }
    write_report(args.json, report)
    return 0


def find_model(args: argparse.Namespace, folder: Path) -> Path:
    if args.demo or args.gpu:
        from evenkeel_runtime.demo_model.checkpoint import target_path

        return Path(target_path())
    from tests.fixtures import random_model

    return random_model.build(folder / "model", args.hidden, args.layers)


def measure(
    engines: Engines, traffic: str, batch: int, lengths: Sequence[str], rounds: int
) -> dict[str, Any]:
    words = random.Random(batch)
    arms = [AUTO, NONE, *lengths]
    for _ in range(3):
        engines.run(AUTO, traffic, batch, words)
    blocks: dict[str, list[Block]] = {arm: [] for arm in arms}
    speculation = engines.scheduler.evenkeel_speculation
    before = (speculation.drafting_ns, speculation.num_steps)
    for _ in range(rounds):
        # Every arm gets the same prompts where they repeat, and none another's where they do not.
        seed = words.randrange(1 << 30)
        for arm in words.sample(arms, len(arms)):
            own = random.Random(seed) if traffic == "repeating" else words
            blocks[arm].append(engines.run(arm, traffic, batch, own))
    row: dict[str, Any] = {"traffic": traffic, "batch": batch}
    spent_ns, steps = speculation.drafting_ns - before[0], speculation.num_steps - before[1]
    row["drafting_us_a_step"] = spent_ns / steps / 1e3
    for by in ("per_s", "per_cpu_s"):
        speed = {arm: statistics.median(getattr(b, by) for b in blocks[arm]) for arm in arms}
        best = max((arm for arm in arms if arm != AUTO), key=lambda arm: speed[arm])
        row[by] = {
            "median": speed,
            "best": best,
            "auto_to_none": ratio(blocks, AUTO, NONE, by),
            "auto_to_best": ratio(blocks, AUTO, best, by),
        }
        told = "  ".join(f"{arm} {value:7.0f}" for arm, value in speed.items())
        to_none, to_best = row[by]["auto_to_none"], row[by]["auto_to_best"]
        print(
            f"{traffic:>9} {batch:>2} {by:>9}  {told}  auto/none {spread(to_none)}  "
            f"auto/best({best}) {spread(to_best)}  "
            f"drafting {row['drafting_us_a_step']:.0f} µs a step",
            flush=True,
        )
    return row


def ratio(blocks: dict[str, list[Block]], over: str, under: str, by: str) -> list[float]:
    """Median, least and greatest of the rounds' ratios."""
    ratios = [
        getattr(a, by) / getattr(b, by) for a, b in zip(blocks[over], blocks[under], strict=True)
    ]
    return [statistics.median(ratios), min(ratios), max(ratios)]


def spread(value: Sequence[float]) -> str:
    return f"{value[0]:.3f} ({value[1]:.2f} to {value[2]:.2f})"


if __name__ == "__main__":
    sys.exit(main())
