"""What verified answers save: near hits whose whole answer is verified as a draft.

    python bench/verified.py --json build/verified.json
    python bench/verified.py --only engine --hidden 768 --json build/verified.json

1. `same`: questions of golden_datasets/support/rewordings.toml, asked of three real servers with
   the demo model, end to end: no speculation and no cache; `--speculate auto`; `--speculate auto`
   and a cache in mode `draft`. One wording of each question is asked first, then others, of the
   three servers in random order. Answers must be equal, text by text.
2. `wrong`: the near misses of that file, whose answer is not their neighbour's, likewise.
3. `engine`: the demo model or a random one of `--hidden` x `--layers` in this process, answers of
   32 to 384 tokens: undrafted, with the right answer as a draft, with one token in 16 replaced, and
   with a wrong one.

A ratio is the sum of the times without over the sum of the times with; its interval is that of
2,000 bootstrap samples of the questions.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from bench.servers import describe_machine, serve_own
from golden_datasets.support.rewordings import read_near_misses, read_rewordings

NONE, AUTO, VERIFIED = "none", "auto", "verified"
ARMS = (NONE, AUTO, VERIFIED)
POLICY = '[[routes]]\nmode = "draft"\n'
OUTCOMES = ("verified", "draft", "exact", "miss", "bypass")
KINDS = ("right", "replaced", "wrong")


@contextmanager
def serve(arm: str, model: str) -> Iterator[httpx.Client]:
    """Start one arm's server; yield a client of it."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--speculate", "none" if arm == NONE else "auto"]
        if arm == VERIFIED:
            policy = Path(folder) / "cache.toml"
            policy.write_text(POLICY, encoding="utf-8")
            flags += ["--cache", str(policy)]
        with serve_own(model, *flags) as url, httpx.Client(base_url=url, timeout=120) as client:
            yield client


def ask(client: httpx.Client, text: str) -> tuple[str, float, int]:
    """Return the answer, the seconds it took, and its number of tokens."""
    body = {
        "model": "support",
        "messages": [{"role": "user", "content": text}],
        "temperature": 0,
        "max_tokens": 160,
    }
    began = time.perf_counter()
    response = client.post("/v1/chat/completions", json=body)
    seconds = time.perf_counter() - began
    assert response.status_code == 200, response.text
    said = response.json()
    return (
        said["choices"][0]["message"]["content"],
        seconds,
        said["usage"]["completion_tokens"],
    )


def measure_served(
    servers: dict[str, httpx.Client], order: random.Random, wordings: int
) -> dict[str, Any]:
    """Ask every wording of every question of every arm, arms in random order."""
    questions = read_rewordings()
    later: dict[str, str] = {}
    for question in questions:
        first, *others = order.sample(question.wordings, min(wordings, len(question.wordings)))
        # The answer that the model itself gives: wordings that mean the same need not get it.
        answer, *_ = [ask(client, first)[0] for client in servers.values()]
        later |= dict.fromkeys(others, answer)
    texts = order.sample(list(later), len(later))
    report = measure(servers, texts, order, later)
    misses = [miss.text for miss in read_near_misses()]
    order.shuffle(misses)
    return {"same": report, "wrong": measure(servers, misses, order, {})}


def measure(
    servers: dict[str, httpx.Client],
    texts: Sequence[str],
    order: random.Random,
    first_answer: Mapping[str, str],
) -> dict[str, Any]:
    """Ask every arm each text; `first_answer` has that to another wording of the question."""
    rows = []
    before = last = read_counts(servers[VERIFIED])
    for text in texts:
        row: dict[str, Any] = {}
        for arm in order.sample(ARMS, len(ARMS)):
            answer, seconds, tokens = ask(servers[arm], text)
            row[arm] = seconds
            row[f"{arm} answer"] = answer
            row["tokens"] = tokens
            # Answers are stored and compared after the response.
            time.sleep(0.06)
        row["has_same_answer"] = row[f"{NONE} answer"] == first_answer.get(text)
        now = read_counts(servers[VERIFIED])
        row["outcome"] = next((n for n in OUTCOMES if now.get(n, 0) > last.get(n, 0)), "none")
        last = now
        rows.append(row)
    after = read_counts(servers[VERIFIED])
    return {
        "requests": len(rows),
        "median_tokens": statistics.median(row["tokens"] for row in rows),
        "median_ms": {arm: statistics.median(r[arm] for r in rows) * 1e3 for arm in ARMS},
        "different": sum(row[f"{VERIFIED} answer"] != row[f"{NONE} answer"] for row in rows),
        "different_auto": sum(row[f"{AUTO} answer"] != row[f"{NONE} answer"] for row in rows),
        "verified_to_none": ratio(rows, NONE, VERIFIED),
        "auto_to_none": ratio(rows, NONE, AUTO),
        **with_same_answer([row for row in rows if row["has_same_answer"]]),
        "by_outcome": {
            name: {"requests": len(of), "verified_to_none": ratio(of, NONE, VERIFIED)}
            for name in OUTCOMES
            if (of := [row for row in rows if row["outcome"] == name])
        },
        "outcomes": {name: after[name] - before.get(name, 0) for name in after},
    }


def with_same_answer(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the figures of the questions to which the model gave their first wording's answer."""
    if not rows:
        return {}
    return {
        "same_answer": {
            "requests": len(rows),
            "verified": sum(row["outcome"] == VERIFIED for row in rows),
            "verified_to_none": ratio(rows, NONE, VERIFIED),
            "auto_to_none": ratio(rows, NONE, AUTO),
        }
    }


def read_counts(client: httpx.Client) -> dict[str, float]:
    """Return the cache's requests by outcome, its drafted and its verified tokens."""
    found = {}
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("evenkeel_cache_requests_total{"):
            found[line.split('"')[1]] = float(line.split()[-1])
        elif line.startswith("evenkeel_cache_verified_tokens_total "):
            found["verified_tokens"] = float(line.split()[-1])
    return found


def ratio(rows: Sequence[dict[str, Any]], slow: str, fast: str) -> list[float]:
    """Sum of one arm's times over another's, with the 95% interval."""
    pairs = [(row[slow], row[fast]) for row in rows]
    draws = random.Random(7)

    def of(sample: Sequence[tuple[float, float]]) -> float:
        return sum(a for a, _ in sample) / sum(b for _, b in sample)

    samples = sorted(of(draws.choices(pairs, k=len(pairs))) for _ in range(2000))
    return [of(pairs), samples[50], samples[1949]]


def measure_engine(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Answer by a random model, undrafted and with drafts of each kind, in random order."""
    from vllm import LLM, SamplingParams

    from evenkeel_runtime.demo_model.checkpoint import target_path
    from evenkeel_runtime.speculation.flags import speculation_flags
    from tests.fixtures import random_model

    model = Path(target_path())
    if args.hidden:
        model = random_model.build(folder / "model", args.hidden, args.layers)
    flags = speculation_flags(15, is_cpu=True, answer_tokens=128)
    engine = LLM(
        model=str(model),
        enforce_eager=True,
        max_model_len=1024,
        max_num_seqs=8,
        enable_prefix_caching=False,
        seed=1,
        speculative_config=flags.config,
        scheduler_cls=flags.scheduler_class,
        worker_cls=flags.worker_class,
    )
    vocabulary = engine.llm_engine.model_config.get_vocab_size()
    words, tenants = random.Random(3), iter(range(1 << 30))

    def answer(prompt: list[int], size: int, extra: dict[str, Any]) -> tuple[list[int], float]:
        # Each request is a tenant's first, so that past answers draft nothing.
        extra |= {"evenkeel_tenant": str(next(tenants))}
        params = SamplingParams(temperature=0.0, max_tokens=size, ignore_eos=True, extra_args=extra)
        began = time.perf_counter()
        made = engine.generate({"prompt_token_ids": prompt}, params, use_tqdm=False)
        return list(made[0].outputs[0].token_ids), time.perf_counter() - began

    def draw(size: int) -> list[int]:
        return [words.randrange(3, vocabulary) for _ in range(size)]

    report: dict[str, Any] = {}
    off = {"evenkeel_speculate": False}
    for size in map(int, args.sizes.split(",")):
        for _ in range(3):
            answer(draw(40), 16, dict(off))
        by_kind: dict[str, Any] = {}
        # A kind at a time: in traffic of wrong drafts only, the controller must stop drafting.
        for kind in KINDS:
            rows, different = [], 0
            for _ in range(args.rounds):
                prompt = draw(40)
                own, _ = answer(prompt, size, dict(off))
                draft = {"right": own, "wrong": draw(size)}.get(kind) or [
                    token if place % 16 != 9 else draw(1)[0] for place, token in enumerate(own)
                ]
                row: dict[str, Any] = {}
                arms = {NONE: off, VERIFIED: {"evenkeel_draft": draft}}
                for arm in words.sample(sorted(arms), 2):
                    made, row[arm] = answer(prompt, size, dict(arms[arm]))
                    different += made != own
                rows.append(row)
            by_kind[kind] = {
                "undrafted_to_drafted": ratio(rows, NONE, VERIFIED),
                "undrafted_ms": statistics.median(r[NONE] for r in rows) * 1e3,
                "drafted_ms": statistics.median(r[VERIFIED] for r in rows) * 1e3,
                "different": different,
                "answers": 2 * len(rows),
            }
            found = by_kind[kind]
            print(
                f"{size:>4} tokens, {kind:>8}: undrafted {found['undrafted_ms']:7.1f} ms, "
                f"drafted {found['drafted_ms']:7.1f} ms, ratio "
                f"{spread(found['undrafted_to_drafted'])}; {different} different",
                flush=True,
            )
        report[str(size)] = by_kind
    return {"hidden": args.hidden, "layers": args.layers, "rounds": args.rounds, "by_size": report}


def spread(value: Sequence[float]) -> str:
    return f"{value[0]:.3f} ({value[1]:.3f} to {value[2]:.3f})"


def show(name: str, report: dict[str, Any]) -> None:
    times = ", ".join(f"{arm} {ms:.1f} ms" for arm, ms in report["median_ms"].items())
    for outcome, part in report["by_outcome"].items():
        print(f"  {outcome}: {part['requests']}, {spread(part['verified_to_none'])} times as fast")
    print(
        f"{name}: {report['requests']} requests, median {report['median_tokens']:.0f} tokens; "
        f"{times}; verified {spread(report['verified_to_none'])} times as fast as none, auto "
        f"{spread(report['auto_to_none'])}; {report['different']} different answers "
        f"({report['different_auto']} with auto); {report['outcomes']}",
        flush=True,
    )
    if same := report.get("same_answer"):
        print(
            f"  of them {same['requests']} with the model's own answer to the first wording "
            f"({same['verified']} verified): verified {spread(same['verified_to_none'])} times, "
            f"auto {spread(same['auto_to_none'])} times as fast as none",
            flush=True,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=("served", "engine"))
    parser.add_argument("--model", default="demo", help="what the servers serve")
    parser.add_argument("--hidden", type=int, default=0, help="width of a random model; 0: demo")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--wordings", type=int, default=6, help="of each question")
    parser.add_argument("--sizes", default="32,96,384", help="tokens of the random answers")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, default=Path("build/verified.json"))
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    report: dict[str, Any] = {}
    if args.json.exists():
        report = json.loads(args.json.read_text(encoding="utf-8"))
    report["machine"] = describe_machine()
    if args.only != "engine":
        with ExitStack() as stack:
            servers = {arm: stack.enter_context(serve(arm, args.model)) for arm in ARMS}
            report |= measure_served(servers, random.Random(args.seed), args.wordings)
        for name in ("same", "wrong"):
            show(name, report[name])
    if args.only != "served":
        os.environ |= {
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_LOGGING_LEVEL": "ERROR",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
        }
        with tempfile.TemporaryDirectory(prefix="ek-") as folder:
            name = f"engine, {args.layers} × {args.hidden}" if args.hidden else "engine, demo"
            report[name] = measure_engine(args, Path(folder))
    write_report(args.json, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
