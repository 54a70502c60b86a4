"""Measure what the response cache costs, saves and gets wrong.

    python bench/cache.py --json build/cache.json
    python bench/cache.py --only lookup --json build/cache.json

1. Lookup: p99 of finding the nearest of 100,000 questions, including entries and guards; the
   embedding time is printed separately.
2. Adversarial: each near-miss pair of golden_datasets/support, in both directions, in mode `draft`
   on the real demo model: how many answers differ from the model's own.
3. TTFT: hit against miss, in pairs, on prompts of the dataset's slice long-prompt.
4. Evidence: 20 seeded runs in mode `serve` over the real model's answers: wrong near hits against
   the declared limit. Series: the model's own answers to each wording; 0, 0.3, 1 and 3% of the
   wordings answered differently in a way that neither guard nor cosine can detect; and a ratio that
   rises in the middle of a run.

5. Recall: pairs of the dataset's questions that are near by embedding, and how many of them the
   static vectors find.
6. Misses: throughput of requests that are all misses, with the cache over without, in pairs of
   rounds (cache_misses.py).

7. Rewordings: paraphrases served and verified, and the share of wrong ones, by kind of traffic
   (cache_rewordings.py), and labelled pairs by kind of near hit.

`--only` runs one part, `lookup`, `served` (2, 3 and the answers that 4 needs), `evidence`,
`recall`, `misses` or `rewordings`, and leaves the others' results in the JSON file as they are;
`--series` runs one series of `evidence` or of `rewordings`.
"""

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from bench.cache_evidence import SERIES, RememberingEncoder, reword, run_series, summarize
from bench.cache_misses import measure_misses
from bench.cache_rewordings import KINDS, count_by_kind, run_rewordings
from bench.report import write_report
from bench.servers import serve_own
from evenkeel.embedding import load_encoder
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.entry import CacheEntry, encode_entry
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.neighbours import (
    LEAST_SKETCH_SIMILARITY,
    NUM_CANDIDATES,
    list_candidates,
)
from evenkeel_runtime.response_cache.private_text import PrivateText
from evenkeel_runtime.response_cache.question import Question, Sampling, read_question
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from evenkeel_runtime.wire.caller import Caller

DATASET = Path(__file__).parents[1] / "golden_datasets" / "support"
ENTRIES = 100_000
LOOKUPS = 2000
# Lookups whose true nearest is found by comparing with all, and texts that are embedded.
CHECKED = 500
EMBEDDED = 300
WORDINGS = 900
PARTS = ("lookup", "served", "evidence", "recall", "misses", "rewordings")
POLICY = """
[[routes]]
route = "off"
mode = "off"
[[routes]]
route = "draft"
mode = "draft"
[[routes]]
route = "serve"
mode = "serve"
"""


def read_items() -> dict[str, dict[str, Any]]:
    lines = (DATASET / "support.jsonl").read_text(encoding="utf-8").splitlines()
    return {item["id"]: item for item in map(json.loads, lines)}


def make_question(text: str) -> Question:
    body = {"model": "support", "messages": [{"role": "user", "content": text}]}
    found = read_question(
        json.dumps(body).encode(),
        Caller(tenant="bench"),
        Sampling(0.0, {}),
        "bench",
        CachePolicy(routes=(RoutePolicy(mode=HitMode.SERVE),)),
        PrivateText(),
    )
    assert isinstance(found, Question), (text, found)
    return found


def quantiles(values: list[float]) -> dict[str, float]:
    p50, p99 = np.quantile(values, [0.5, 0.99])
    return {"p50_ms": float(p50) * 1e3, "p99_ms": float(p99) * 1e3, "max_ms": max(values) * 1e3}


async def measure_lookup() -> dict[str, Any]:
    """Time `find_near` over ENTRIES: real embeddings, each with many noisy copies around it."""
    encoder = load_encoder()
    texts = sorted({item["messages"][-1]["content"] for item in read_items().values()})
    texts = [text for text in texts if len(text) < 200 and "\n" not in text]
    texts = random.Random(2).sample(texts, EMBEDDED)
    times = []
    vectors = []
    for text in texts:
        began = time.perf_counter()
        vectors.append(encoder.encode(text))
        times.append(time.perf_counter() - began)
    base = np.stack(vectors)
    noise = np.random.default_rng(1)
    backend = MemoryBackend(1 << 30)
    cache = ResponseCache(CachePolicy(max_bytes=1 << 30), backend, encoder, AuditLog(None))
    asked = make_question("Is there express shipping?")
    rows = base[np.arange(ENTRIES) % len(base)]
    rows = rows + noise.standard_normal(rows.shape).astype(np.float32) * 0.02
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    began = time.perf_counter()
    for number, row in enumerate(rows):
        entry = CacheEntry(
            id=f"{number:040x}",
            scope=asked.scope,
            tenant="bench",
            subjects=(),
            question=texts[number % len(texts)],
            text="An answer of some length. " * 8,
            token_ids=tuple(range(48)),
            finish_reason="stop",
            stop_reason=None,
            generation_s=1.0,
            expires_at_s=time.time() + 3600,
        )
        await backend.write(entry.id, encode_entry(entry), 3600, ["tenant"])
        cache.index.add(entry.id, asked.scope, row)
        cache.index.learn(entry.id, row)
    built_s = time.perf_counter() - began
    lookups = []
    num_nearest = num_missed = 0
    for number, place in enumerate(noise.integers(0, ENTRIES, LOOKUPS)):
        vector = rows[place] + noise.standard_normal(rows.shape[1]).astype(np.float32) * 0.01
        vector /= np.linalg.norm(vector)
        began = time.perf_counter()
        # Both kinds of vectors stand for each other here: what is timed is all but embedding.
        candidates = list_candidates(cache.index.search(asked.scope, vector))
        near = await cache.find_nearest(asked, vector, candidates)
        lookups.append(time.perf_counter() - began)
        num_missed += near is None
        if number < CHECKED:
            nearest = cache.index.search(asked.scope, vector, 1)
            num_nearest += nearest[0].entry_id == f"{int(np.argmax(rows @ vector)):040x}"
    await cache.close()
    return {
        "entries": ENTRIES,
        "lookup": quantiles(lookups),
        "embedding": quantiles(times),
        "nearest_found_ratio": num_nearest / CHECKED,
        "nothing_found_ratio": num_missed / LOOKUPS,
        "add_ms": built_s / ENTRIES * 1e3,
    }


@contextmanager
def serve() -> Iterator[str]:
    """The demo model behind a real server with a cache; its address."""
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "cache.toml"
        policy.write_text(POLICY, encoding="utf-8")
        # The proposer reads the cache's drafts.
        with serve_own("demo", "--cache", str(policy), "--speculate", "auto") as url:
            yield url


def ask(
    client: httpx.Client, messages: list[dict[str, str]], route: str, tenant: str, stream: bool
) -> tuple[str, float, str]:
    """Return the answer, the seconds to its first bytes, and which layer gave it."""
    body = {
        "model": "support",
        "messages": messages,
        "temperature": 0,
        "max_tokens": 96,
        "stream": stream,
    }
    headers = {"x-evenkeel-route": route, "x-evenkeel-tenant": tenant}
    began = time.perf_counter()
    first = None
    with client.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
        data = b""
        for part in response.iter_raw():
            first = first or time.perf_counter() - began
            data += part
    assert response.status_code == 200, data
    layer = response.headers.get("x-evenkeel-cache", "")
    if stream:
        return "", first or 0.0, layer
    return json.loads(data)["choices"][0]["message"]["content"], first or 0.0, layer


def measure_adversarial(client: httpx.Client) -> dict[str, Any]:
    """Ask each pair both ways round in mode draft; count answers that are not the model's own."""
    items = read_items()
    lines = (DATASET / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
    wrong = asked = 0
    for number, pair in enumerate(map(json.loads, lines)):
        sides = [items[pair[name]]["messages"] for name in ("left", "right")]
        for turn, (first, second) in enumerate((sides, sides[::-1])):
            tenant = f"pair-{number}-{turn}"
            own, _, _ = ask(client, second, "off", tenant, False)
            ask(client, first, "draft", tenant, False)
            time.sleep(0.06)  # What was said is stored behind the response.
            said, _, layer = ask(client, second, "draft", tenant, False)
            asked += 1
            wrong += said != own or layer == "semantic"
    metrics = client.get("/metrics").text.splitlines()
    name = 'evenkeel_cache_requests_total{outcome="draft"}'
    drafts = [line.split()[-1] for line in metrics if line.startswith(name)]
    return {"asked": asked, "wrong": wrong, "drafts": float(drafts[0]) if drafts else 0.0}


def measure_ttft(client: httpx.Client, pairs: int) -> dict[str, Any]:
    """Ask long prompts, each new, twice: the first is a miss, the second a hit."""
    slice_ = [i["messages"] for i in read_items().values() if "long-prompt" in i["tags"]]
    order = random.Random(3)
    times: list[tuple[float, float]] = []
    number = 0
    while len(times) < pairs:
        number += 1
        # Stories in front of stories: prompts as long as a conversation, no two beginning alike.
        stories = [m[-1]["content"] for m in order.sample(slice_, 4)]
        # As notes in front of a question: the stories are of their tellers, and so never cached.
        messages = [
            {"role": "system", "content": f"Note {number}.\n" + "\n".join(stories)},
            {"role": "user", "content": "How do I reset my password?"},
        ]
        _, miss, layer = ask(client, messages, "serve", "ttft", True)
        time.sleep(0.15)
        _, hit, again = ask(client, messages, "serve", "ttft", True)
        if again == "exact" and not layer:
            times.append((miss, hit))
        elif number > 4 * pairs:
            raise SystemExit(f"cache: only {len(times)} of {number} long prompts were cached")
    ratios = [miss / hit for miss, hit in times]
    return {
        "pairs": len(times),
        "miss_ms": statistics.median(miss for miss, _ in times) * 1e3,
        "hit_ms": statistics.median(hit for _, hit in times) * 1e3,
        "ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
        "greatest_ratio": max(ratios),
    }


def measure_recall() -> dict[str, Any]:
    """Compare what embeddings hold to be near with what static vectors find."""
    encoder = load_encoder()
    items = [item for item in read_items().values() if len(item["messages"]) == 1]
    cluster_of = {item["messages"][0]["content"]: item.get("cluster_id") for item in items}
    sketched = {text: encoder.sketch(text) for text in cluster_of}
    texts = [text for text, sketch in sketched.items() if sketch is not None]
    began = time.perf_counter()
    sketches = np.stack([encoder.sketch(text) for text in texts])  # type: ignore[arg-type]
    sketch_s = (time.perf_counter() - began) / len(texts)
    vectors = np.stack([encoder.encode(text) for text in texts])
    left, right = np.triu_indices(len(texts), 1)
    cosines = (vectors @ vectors.T)[left, right]
    static = (sketches @ sketches.T)[left, right]
    clusters = [cluster_of[text] for text in texts]
    same = np.array(
        [
            clusters[i] is not None and clusters[i] == clusters[j]
            for i, j in zip(left, right, strict=True)
        ]
    )
    near = {"0.6": cosines >= 0.6, "0.8": cosines >= 0.8, "same, 0.6": same & (cosines >= 0.6)}
    whole = vectors @ vectors.T - 2 * np.eye(len(texts), dtype=np.float32)
    ranks = (-(sketches @ sketches.T - 2 * np.eye(len(texts)))).argsort(axis=1).argsort(axis=1)
    rank_of_nearest = ranks[np.arange(len(texts)), whole.argmax(axis=1)]
    has_near = whole.max(axis=1) >= 0.8
    chosen = [*near.items(), ("all pairs", np.ones_like(same))]
    floors = [0.2, 0.3, LEAST_SKETCH_SIMILARITY, 0.5, 0.6, 0.7]
    return {
        "texts": len(texts),
        "pairs": {name: int(pick.sum()) for name, pick in near.items()},
        "sketch_us": sketch_s * 1e6,
        "by_floor": {
            f"{floor:g}": {name: float((static[pick] >= floor).mean()) for name, pick in chosen}
            for floor in floors
        },
        "nearest_within": {
            str(count): float((rank_of_nearest[has_near] < count).mean())
            for count in (1, 2, 4, 8, 16, NUM_CANDIDATES)
        },
    }


def find_wordings() -> dict[str, str]:
    """Return some wordings of each question that may be cached, and whose they are."""
    private = PrivateText()
    questions = sorted(
        {
            item["messages"][0]["content"]
            for item in read_items().values()
            if len(item["messages"]) == 1 and len(item["messages"][0]["content"]) < 200
        }
    )
    open_ones = [
        q for q in questions if not private.is_about_asker(q) and not private.find_personal(q)
    ]
    return reword(open_ones, 7, WORDINGS)


def record_answers(client: httpx.Client) -> dict[str, str]:
    """Return the model's own answer to each wording."""
    wordings = list(find_wordings())

    def own(text: str) -> str:
        return ask(client, [{"role": "user", "content": text}], "off", "own", False)[0]

    with ThreadPoolExecutor(16) as pool:
        return dict(zip(wordings, pool.map(own, wordings), strict=True))


def show(report: dict[str, Any]) -> None:
    if "lookup" in report:
        look = report["lookup"]
        print(
            f"lookup among {look['entries']:,}: p50 {look['lookup']['p50_ms']:.2f} ms, "
            f"p99 {look['lookup']['p99_ms']:.2f} ms (limit 2 ms); nearest found "
            f"{look['nearest_found_ratio']:.1%}, nothing {look['nothing_found_ratio']:.1%}; "
            f"embedding p50 {look['embedding']['p50_ms']:.1f} ms, p99 "
            f"{look['embedding']['p99_ms']:.1f} ms; adding {look['add_ms']:.2f} ms"
        )
    if "adversarial" in report:
        bad = report["adversarial"]
        print(
            f"near misses in draft: {bad['wrong']} wrong of {bad['asked']}, "
            f"{bad['drafts']:.0f} drafts handed on"
        )
        ttft = report["ttft"]
        print(
            f"TTFT: miss {ttft['miss_ms']:.1f} ms, hit {ttft['hit_ms']:.1f} ms, ratio "
            f"{ttft['ratio']:.1f} ({ttft['least_ratio']:.1f} to {ttft['greatest_ratio']:.1f}), "
            f"{ttft['pairs']} pairs"
        )
    if "recall" in report:
        recall = report["recall"]
        print(f"static vectors, {recall['sketch_us']:.0f} us each, {recall['texts']} questions:")
        for floor, found in recall["by_floor"].items():
            print(f"  from {floor}: " + ", ".join(f"{k} {v:.3f}" for k, v in found.items()))
        print(f"  nearest (0.8) among the first: {recall['nearest_within']}")
    for kind, part in report.get("misses", {}).items():
        low, high = part["ratio_ci95"]
        print(
            f"misses, {kind}: {part['off_tokens_per_s']:.0f} tokens/s without, "
            f"{part['on_tokens_per_s']:.0f} with, "
            f"ratio {part['ratio']:.3f} ({low:.3f} to {high:.3f}; limit 0.97), {part['pairs']} "
            f"pairs, {part['verified_ratio']:.0%} verified; {part['embeddings']}; "
            f"{part['off_request_ms']:.2f} ms a request without, CPU with it: server "
            f"{part['server_ms']:+.2f} ms, engine {part['engine_ms']:+.2f} ms"
        )
    for kind, (seen, wrong) in report.get("labelled", {}).items():
        print(f"labelled pairs, {kind}: {wrong} wrong of {seen}")
    for name, part in report.get("rewordings", {}).items():
        print(
            f"rewordings, {name}: {part['runs_within_limit']} of {part['runs']} runs within "
            f"{part['limit']:g}, {part['wrong']} wrong of {part['near_hits']} near hits; of the "
            "paraphrases, served and verified: "
            + "; ".join(
                f"{part[stretch]['served_ratio']:.1%} and {part[stretch]['verified_ratio']:.1%} "
                f"in the {stretch}"
                for stretch in ("first", "rest")
            )
        )
    for name, part in report.get("evidence", {}).items():
        print(
            f"serve, series {name}: {part['runs_within_limit']} of {part['runs']} runs within "
            f"{part['limit']:g}, greatest rate {part['greatest_wrong_rate']:.4f}; {part['wrong']} "
            f"wrong of {part['semantic_hits']} near hits returned in {part['runs_serving']} runs, "
            f"{part['drafts']} drafts"
        )


def run_evidence(answers: dict[str, str], runs: int, names: Sequence[str]) -> dict[str, Any]:
    encoder = RememberingEncoder(load_encoder())
    wordings = find_wordings()
    return {name: summarize(run_series(name, answers, wordings, encoder, runs)) for name in names}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--miss-pairs", type=int, default=20)
    parser.add_argument("--miss-requests", type=int, default=400)
    parser.add_argument("--only", choices=PARTS)
    parser.add_argument("--series", choices=(*SERIES, *KINDS), action="append")
    parser.add_argument("--json", type=Path, metavar="PATH", default=Path("build/cache.json"))
    args = parser.parse_args()
    report: dict[str, Any] = {}
    if args.only is not None and args.json.exists():
        report = json.loads(args.json.read_text(encoding="utf-8"))
    report["machine"] = f"{platform.machine()}, {os.cpu_count()} cores"
    parts = PARTS if args.only is None else (args.only,)
    if "lookup" in parts:
        report["lookup"] = asyncio.run(measure_lookup())
    if "served" in parts:
        with serve() as url, httpx.Client(base_url=url, timeout=120) as client:
            report["ttft"] = measure_ttft(client, args.pairs)
            report["adversarial"] = measure_adversarial(client)
            report["answers"] = record_answers(client)
    if "recall" in parts:
        report["recall"] = measure_recall()
    if "misses" in parts:
        dataset = sorted(set(find_wordings().values()))
        with serve() as url:
            report["misses"] = {
                kind: measure_misses(url, kind, dataset, args.miss_pairs, args.miss_requests)
                for kind in ("unlike", "numbered", "related")
            }
    if "evidence" in parts:
        if "answers" not in report:
            raise SystemExit("cache: no answers to run on; run --only served first")
        names = [name for name in args.series or SERIES if name in SERIES]
        report.setdefault("evidence", {}).update(run_evidence(report["answers"], args.runs, names))
    if "rewordings" in parts:
        remembering = RememberingEncoder(load_encoder())
        report["labelled"] = count_by_kind(remembering)
        found = run_rewordings(args.series or KINDS, remembering, args.runs)
        report.setdefault("rewordings", {}).update(found)
    show(report)
    write_report(args.json, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())
