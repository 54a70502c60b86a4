"""Answers the same requests with and without the speculation hook, and prints what came out.

Run as a program: vLLM's engine runs in this process, twice, with the demo model.
"""

from __future__ import annotations

import json
import os
import random
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

ROUNDS = 3
FIXED_LENGTH = 6
PROMPTS = 48
# Whatever else shapes a greedy answer: with drafts it must come to the same.
GREEDY: tuple[dict[str, Any], ...] = (
    {"presence_penalty": 0.8},
    {"frequency_penalty": 0.8},
    {"repetition_penalty": 1.3, "presence_penalty": 0.4, "ignore_eos": True},
    {"bad_words": [" the", " password", "."]},
    {"bad_words": [" to", " the page"], "frequency_penalty": 0.5},
    {"allowed_token_ids": list(range(3, 600)), "ignore_eos": True},
    {"logprobs": 5, "prompt_logprobs": 2},
    {"logit_bias": {18: 4.0, 554: -5.0}},
    {"seed": 4},
)
# What is served, but without drafts.
UNDRAFTED: dict[str, dict[str, Any]] = {
    "seed": {"seed": 3},
    "seed, top_p and top_k": {"seed": 3, "top_p": 0.9, "top_k": 20, "temperature": 1.1},
    "seed and penalties": {"seed": 5, "presence_penalty": 0.5},
    "seed and n": {"seed": 7, "n": 2},
    "seed and min_p": {"seed": 9, "min_p": 0.2, "temperature": 1.5},
    "min_p that leaves one token": {"min_p": 1.0, "temperature": 2.0},
    "min_tokens": {"min_tokens": 12, "stop_token_ids": [18], "temperature": 0.0},
    "logit_bias": {"logit_bias": {18: 3.0, 415: -100.0}, "temperature": 0.0},
    "seed and logit_bias": {"seed": 9, "logit_bias": {18: 3.0}},
}


def main() -> int:
    os.environ |= {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "EVENKEEL_SPECULATION_RAISE_INTERNAL_ERRORS": "true",
        "EVENKEEL_SPECULATION_REPORTS": "true",
        "EVENKEEL_SPECULATION_STORE_FILE": str(Path(sys.argv[1]) / "answers"),
    }
    print(json.dumps(answer_all()))
    return 0


def answer_all() -> dict[str, Any]:
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    from evenkeel_runtime.demo_model.checkpoint import target_path
    from evenkeel_runtime.serve.speculation import verify_exactly
    from evenkeel_runtime.speculation.controller import FixedLength
    from evenkeel_runtime.speculation.flags import speculation_flags
    from evenkeel_runtime.wire.drafts import take_report

    base = {
        "model": str(target_path()),
        "enforce_eager": True,
        "max_model_len": 1024,
        "max_num_seqs": 8,
        "seed": 1,
    }
    # As `evenkeel serve` does, so that requests are let in that are served without drafts.
    verify_exactly(Namespace(speculative_config={}, worker_cls="auto"), is_cpu=True)
    flags = speculation_flags(15, is_cpu=True)
    plain = LLM(**base)
    hooked = LLM(
        **base,
        speculative_config=flags.config,
        scheduler_cls=flags.scheduler_class,
        worker_cls=flags.worker_class,
    )
    scheduler = hooked.llm_engine.engine_core.engine_core.scheduler
    speculation = scheduler.evenkeel_speculation
    words = random.Random(4)
    vocabulary = plain.llm_engine.model_config.get_vocab_size()
    prompts = make_prompts(plain.get_tokenizer(), vocabulary, words)
    settings = [
        SamplingParams(temperature=0.0, max_tokens=words.choice([1, 2, 17, 48])) for _ in prompts
    ]
    settings[3] = SamplingParams(temperature=0.0, max_tokens=40, stop=["the"])
    settings[5] = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    settings[7] = SamplingParams(
        temperature=0.0,
        max_tokens=24,
        structured_outputs=StructuredOutputsParams(regex=r"(yes|no)( (yes|no)){2,5}"),
    )
    settings[9] = SamplingParams(temperature=0.0, max_tokens=20, repetition_penalty=1.2)
    settings[11] = SamplingParams(temperature=0.0, max_tokens=20, logprobs=2)
    for place, options in enumerate(GREEDY, start=12):
        settings[place] = SamplingParams(temperature=0.0, max_tokens=24, **options)
    inputs = [{"prompt_token_ids": prompt} for prompt in prompts]

    def ask(engine: Any, params: Any) -> list[Any]:
        return engine.generate(inputs, params, use_tqdm=False)

    expected = [texts_of(a) for a in ask(plain, settings)]
    different: list[list[Any]] = []
    counts: dict[str, list[int]] = {}
    controllers = {"auto": speculation.controller, "fixed": FixedLength(FIXED_LENGTH)}
    for round_number in range(ROUNDS):
        for name, controller in controllers.items():
            speculation.controller = controller
            for i, answer in enumerate(ask(hooked, settings)):
                report = take_report(answer)
                for source, count in (report.counts if report else {}).items():
                    total = counts.setdefault(source, [0, 0])
                    total[0] += count.drafted_tokens
                    total[1] += count.accepted_tokens
                if texts_of(answer) != expected[i]:
                    different.append([name, round_number, i])
    result: dict[str, Any] = {"requests": len(prompts), "different": different, "counts": counts}

    speculation.controller = FixedLength(FIXED_LENGTH)
    unseen = [{"prompt_token_ids": [words.randrange(3, vocabulary) for _ in range(20)]}]
    asked = SamplingParams(temperature=0.0, max_tokens=40, ignore_eos=True)
    answer = list(plain.generate(unseen, asked, use_tqdm=False)[0].outputs[0].token_ids)
    given = asked.clone()
    given.extra_args = {"evenkeel_draft": answer}
    result["given"] = reported(hooked.generate(unseen, given, use_tqdm=False)[0])
    refused = asked.clone()
    refused.extra_args = {"evenkeel_speculate": False}
    result["refused"] = reported(hooked.generate(unseen, refused, use_tqdm=False)[0])
    # Each of these has one answer only, so sampled ones can be compared as well.
    result["undrafted"] = {}
    for name, options in UNDRAFTED.items():
        own = SamplingParams(**({"max_tokens": 24, "temperature": 0.8} | options))
        # A request at a time: what a seed gives depends on the batch, drafts or not.
        one_by_one = [
            [engine.generate(each, own, use_tqdm=False)[0] for each in inputs[:8]]
            for engine in (plain, hooked)
        ]
        result["undrafted"][name] = {
            "same": [texts_of(a) for a in one_by_one[0]] == [texts_of(a) for a in one_by_one[1]],
            "drafted": [reported(a)["counts"] for a in one_by_one[1] if reported(a)["counts"]],
        }
    # Verification cannot give these log-probabilities: its steps are sampled plainly.
    named = SamplingParams(temperature=0.0, max_tokens=16, logprobs=2, logprob_token_ids=[5, 9])
    both = zip(asked_of(plain, inputs, named), asked_of(hooked, inputs, named), strict=True)
    result["named_logprobs"] = max(abs(a - b) for a, b in both)
    result["answers_kept"] = speculation.store.num_answers
    scheduler.shutdown()
    result["kept_bytes"] = Path(os.environ["EVENKEEL_SPECULATION_STORE_FILE"]).stat().st_size
    return result


def texts_of(answer: Any) -> list[list[int]]:
    """The tokens of each of a request's answers."""
    return [list(each.token_ids) for each in answer.outputs]


def asked_of(engine: Any, inputs: list[Any], named: Any) -> list[float]:
    """Every second request asks for named log-probabilities; return those, of tokens 5 and 9."""
    from vllm import SamplingParams

    other = SamplingParams(temperature=0.0, max_tokens=16)
    params = [named if i % 2 else other for i in range(8)]
    answers = engine.generate(inputs[:8], params, use_tqdm=False)
    return [
        position[token].logprob
        for answer in answers[1::2]
        for position in answer.outputs[0].logprobs
        for token in (5, 9)
    ]


def reported(answer: Any) -> dict[str, Any]:
    from evenkeel_runtime.wire.drafts import take_report

    report = take_report(answer)
    return {
        "tokens": len(answer.outputs[0].token_ids),
        "counts": {
            source: [c.drafted_tokens, c.accepted_tokens]
            for source, c in (report.counts if report else {}).items()
        },
        "left": answer.kv_transfer_params,
    }


def make_prompts(tokenizer: Any, vocabulary: int, words: random.Random) -> list[list[int]]:
    """The demo's questions, some random words, and texts that repeat themselves."""
    lines = Path("golden_datasets/support/support.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line)["messages"] for line in words.sample(lines, PROMPTS * 3 // 4)]
    prompts = [
        list(tokenizer.apply_chat_template(q, add_generation_prompt=True, return_dict=False))
        for q in questions
    ]
    while len(prompts) < PROMPTS:
        phrase = [words.randrange(3, vocabulary) for _ in range(words.randrange(1, 12))]
        prompts.append(phrase * words.randrange(1, 4))
    return prompts


if __name__ == "__main__":
    sys.exit(main())
