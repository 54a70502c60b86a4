"""Serves real rewordings from the cache; for bench/cache.py --only rewordings.

The cache, its evidence and its replays are the runtime's own, the engine is a table of labelled
answers (golden_datasets/support/wordings.jsonl, and rewordings of each value of a slot). Requests
are drawn with a seed, wordings of a question by chance, so that most are asked in words that are
not in the cache yet. A paraphrase is a request that is not in the cache, while its answer is.

- `as labelled`: the model gives each question's answer; a tenth of the requests are near misses.
- `calibrated`: the same, beginning with the labels of half of the questions, which are not asked.
- `fooled`: as `calibrated`; from the middle on, half of the requests are near misses made for the
  classes that are served by then: the same words, and another answer each time.

`verified`: the model gave an answer that the cache had drafted.
"""

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from bench.cache_evidence import AnswerTable, RememberingEncoder, ask, open_engine
from evenkeel.private_files import replace_private
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.calibrate import calibrate
from evenkeel_runtime.response_cache.evidence_file import LABELS_FILE, Labels
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.private_text import PrivateText
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from golden_datasets.support.knowledge import fill, read_knowledge, slot_names
from golden_datasets.support.rewordings import read_near_misses, read_rewordings

LIMIT = 0.02
REQUESTS = 4000
COUNTED_FROM = 2000
KINDS = ("as labelled", "calibrated", "fooled")
_NEAR_MISS_SHARE = 0.1
_FOOLED_SHARE = 0.5


@dataclass(slots=True)
class Stretch:
    """Requests of one run, from one number on.

    Attributes:
        paraphrases: Requests not in the cache whose answer is.
        served: Of them, those answered by a near hit, rightly.
        verified: Of them, those whose answer the cache had drafted.
        near_hits: All near hits served.
        wrong: Of them, those for which the model's answer is another.
    """

    paraphrases: int = 0
    served: int = 0
    verified: int = 0
    near_hits: int = 0
    wrong: int = 0


def read_questions() -> dict[str, str]:
    """Return all wordings that may be cached, with their answers; each slot with all its values."""
    knowledge, private = read_knowledge(), PrivateText()
    pairs = {text: q.answer for q in read_rewordings() for text in q.wordings}
    for intent in knowledge.intents.values():
        slots = slot_names(*intent.questions.train, intent.answer) - {"city_count"}
        if slots & {"order", "name"} or len(slots) > 1:
            continue
        for value in knowledge.slots[next(iter(slots))] if slots else ({},):
            filling = {"city_count": knowledge.slots["city_count"][0]} | dict.fromkeys(slots, value)
            answer = fill(intent.answer, filling)
            texts = intent.questions.train + intent.questions.held_out
            pairs |= {fill(text, filling): answer for text in texts}
    return {
        text: answer
        for text, answer in sorted(pairs.items())
        if not private.is_about_asker(text) and private.find_personal(text) is None
    }


async def run_once(
    kind: str, pairs: dict[str, str], labels: Labels | None, encoder: RememberingEncoder, seed: int
) -> tuple[Stretch, Stretch]:
    """Return what the first COUNTED_FROM requests got, and what the rest got."""
    order = random.Random(seed)
    misses = {miss.text: miss.answer for miss in read_near_misses()}
    model = AnswerTable(pairs | misses)
    route = RoutePolicy(mode=HitMode.SERVE, wrong_hit_limit=LIMIT)
    policy = CachePolicy(routes=(route,), embedding_timeout_s=10)
    backend = MemoryBackend(policy.max_bytes)
    cache = ResponseCache(policy, backend, encoder, AuditLog(None))  # type: ignore[arg-type]
    stretches = Stretch(), Stretch()
    known: dict[str, int] = Counter()
    texts, miss_texts = list(pairs), list(misses)
    with tempfile.TemporaryDirectory() as folder:
        if labels is not None:
            replace_private(Path(folder) / LABELS_FILE, msgspec.json.encode(labels))
        cache.controls.data_dir = Path(folder)
        engine, hook = open_engine(cache, model, order.random)
        for number in range(REQUESTS):
            is_miss = order.random() < _NEAR_MISS_SHARE
            text = order.choice(miss_texts if is_miss else texts)
            is_late = number >= COUNTED_FROM
            if kind == "fooled" and is_late and order.random() < _FOOLED_SHARE:
                # Not asked before, near what is served, and with an answer of its own.
                text = f"{order.choice(texts)[:-1]}{'?' * order.randrange(2, 9)}"
                model.answers[text] = f"Another answer, number {number % 50}."
            outcome, said = await ask(engine, hook, text, number)
            own, stretch = model.answers[text], stretches[is_late]
            if outcome != "exact" and known[own]:
                stretch.paraphrases += 1
                stretch.served += outcome == "semantic" and said == own
                stretch.verified += outcome == "verified"
            if outcome == "semantic":
                stretch.near_hits += 1
                stretch.wrong += said != own
            known[own] += 1
            while len(engine.replays) or engine.num_background:
                await asyncio.sleep(0)
        await cache.close()
    return stretches


def count_by_kind(encoder: RememberingEncoder) -> dict[str, tuple[int, int]]:
    """Return near hits among all wordings, and the wrong ones of them, by kind."""
    done = asyncio.run(calibrate(read_questions(), encoder, ""))  # type: ignore[arg-type]
    found: dict[str, tuple[int, int]] = {}
    for pair in done.labels.pairs:
        seen, wrong = found.get(pair.kind, (0, 0))
        found[pair.kind] = seen + 1, wrong + pair.is_wrong
    return found


def run_rewordings(
    kinds: Sequence[str], encoder: RememberingEncoder, runs: int
) -> dict[str, dict[str, Any]]:
    """Return what the runs of each kind of traffic say together."""
    return {kind: run_series(kind, encoder, runs) for kind in kinds if kind in KINDS}


def run_series(kind: str, encoder: RememberingEncoder, runs: int) -> dict[str, Any]:
    """Return what the runs of one kind say together, with the seeds 0, 1, and so on."""
    pairs, labels = read_questions(), None
    if kind != "as labelled":
        answers = sorted(set(pairs.values()))
        random.Random(3).shuffle(answers)
        held = set(answers[: len(answers) // 2])
        known = {text: answer for text, answer in pairs.items() if answer in held}
        pairs = {text: answer for text, answer in pairs.items() if answer not in held}
        from evenkeel.embedding import hash_model

        labels = asyncio.run(calibrate(known, encoder, hash_model())).labels  # type: ignore[arg-type]
    done = [asyncio.run(run_once(kind, pairs, labels, encoder, seed)) for seed in range(runs)]
    whole = [(a.near_hits + b.near_hits, a.wrong + b.wrong) for a, b in done]
    return {
        "wordings": len(pairs),
        "answers": len(set(pairs.values())),
        "labelled_pairs": 0 if labels is None else len(labels.pairs),
        "runs": runs,
        "limit": LIMIT,
        "runs_within_limit": sum(wrong <= LIMIT * hits for hits, wrong in whole),
        "near_hits": sum(hits for hits, _ in whole),
        "wrong": sum(wrong for _, wrong in whole),
        "first": _add([first for first, _ in done]),
        "rest": _add([rest for _, rest in done]),
    }


def _add(stretches: Sequence[Stretch]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for stretch in stretches:
        total.update(asdict(stretch))
    share = max(1, total["paraphrases"])
    shares = {f"{name}_ratio": total[name] / share for name in ("served", "verified")}
    return dict(total) | shares
