"""Collect labelled evidence on near hits from a dataset: `evenkeel cache calibrate`.

Each text is asked once, in random order, of a cache that holds the texts before it, as traffic
would. Where the cache finds a near answer, the label says whether it is the right one.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.embedding import Encoder
from evenkeel.errors import CannotMeasureError, ConfigurationError, first_line
from evenkeel.secret_text import hide_password, make_authorization
from evenkeel.spans import HEADER_CACHE, HEADER_ROUTE, ROUTE_EVAL
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.entry import CacheEntry
from evenkeel_runtime.response_cache.evidence_file import (
    MOST_LABELS,
    Collected,
    LabelledPair,
    Labels,
)
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.neighbours import list_candidates
from evenkeel_runtime.response_cache.private_text import PrivateText
from evenkeel_runtime.response_cache.question import Question, Sampling, read_question
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from evenkeel_runtime.text.agreement import are_interchangeable
from evenkeel_runtime.wire.caller import Caller

# Scorers whose reference is the whole answer.
_SCORERS_BY_ANSWER = frozenset(
    "exact normalised equals numeric json f1 rouge_l bleu chrf edit embedding".split()
)
WORDINGS_FILE = "wordings.jsonl"
_SEED = 1
_MAX_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Calibration:
    """Labelled evidence.

    Attributes:
        labels: What the runtime loads.
        asked: Texts that may be cached.
        bypassed: Texts that may not, by reason.
    """

    labels: Labels
    asked: int
    bypassed: Counter[str]


def read_dataset(folder: Path) -> dict[str, str | None]:
    """Return the texts of a dataset folder, with their answers.

    Those of wordings.jsonl (`text`, `answer`), if there is one, and the items of `<folder>.jsonl`
    with a single message. The answer is None if the item's reference is something else, such as a
    phrase that must occur or a criterion.

    Raises:
        ConfigurationError: If it is no folder, there are none or too many, or a line is no such
            object.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder; expected a dataset folder")
    answers: dict[str, str | None] = {}
    for item in _read_lines(folder / f"{folder.resolve().name}.jsonl"):
        text = _find_text(item.get("messages"))
        if text is not None and "reference" in item:
            answers[text] = _find_answer(item)
    for item in _read_lines(folder / WORDINGS_FILE):
        if not isinstance(item.get("text"), str) or not isinstance(item.get("answer"), str):
            raise ConfigurationError(f"{folder / WORDINGS_FILE}: a line lacks text or answer")
        answers[item["text"]] = item["answer"]
    if not answers:
        raise ConfigurationError(
            f"{folder}: found no texts with answers; expected a dataset folder"
        )
    for text in (*answers, *filter(None, answers.values())):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ConfigurationError(f"{folder}: {text!r:.80} has half a character") from error
    if len(answers) > MOST_LABELS:
        raise ConfigurationError(
            f"{folder}: has {len(answers)} texts; a server reads labels of {MOST_LABELS} at most"
        )
    return answers


def _find_text(messages: Any) -> str | None:
    """Return the text of a single message; None if there are others, or it is no text."""
    if not isinstance(messages, list) or len(messages) != 1 or not isinstance(messages[0], dict):
        return None
    content = messages[0].get("content")
    return content if isinstance(content, str) else None


def _find_answer(item: Mapping[str, Any]) -> str | None:
    """Return an item's reference as text if it is the answer, else None.

    Only then do equal references mean equal answers: null, `true` or "yes" is the reference of many
    questions that need different answers.
    """
    scorer, reference = item.get("scorer", "exact"), item["reference"]
    name = scorer.get("name") if isinstance(scorer, dict) else scorer
    if name not in _SCORERS_BY_ANSWER or reference is None:
        return None
    if isinstance(reference, list) and reference and name != "json":
        reference = reference[0]
    return reference if isinstance(reference, str) else json.dumps(reference, sort_keys=True)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    try:
        lines = path.read_bytes().split(b"\n")
        items = [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigurationError(f"{path}: {error}") from error
    if not all(isinstance(item, dict) for item in items):
        raise ConfigurationError(f"{path}: a line is not a JSON object")
    return items


def ask_model(texts: Sequence[str], url: str, model: str, key: str | None) -> dict[str, str]:
    """Return a running model's own answers, greedy and past the cache.

    They are asked for as an evaluation, so they are no traffic: neither stored nor evidence. Texts
    whose answer has no text or was cut off are left out, because such an answer is no near hit, and
    so are those that the cache answered: its file may name the route of evaluations.

    Raises:
        ConfigurationError: If the key cannot be sent.
        CannotMeasureError: If the server does not answer.
    """
    from concurrent.futures import ThreadPoolExecutor

    import httpx

    headers = {HEADER_ROUTE: ROUTE_EVAL} | make_authorization(key)

    def ask(text: str) -> str | None:
        # The seed makes it another request than clients send: none of theirs is answered by it.
        body = {"model": model, "messages": [{"role": "user", "content": text}], "temperature": 0}
        answer = client.post("/v1/chat/completions", json=body | {"seed": _SEED})
        answer.raise_for_status()
        if HEADER_CACHE in answer.headers:
            return None
        choice = answer.json()["choices"][0]
        content = choice["message"]["content"]
        is_whole = choice["finish_reason"] == "stop" and isinstance(content, str)
        return content if is_whole and content.strip() else None

    try:
        with httpx.Client(base_url=url, headers=headers, timeout=300, trust_env=False) as client:
            with ThreadPoolExecutor(8) as pool:
                answers = zip(texts, pool.map(ask, texts), strict=True)
                return {text: answer for text, answer in answers if answer is not None}
    except (httpx.HTTPError, LookupError, TypeError, ValueError, RecursionError) as error:
        # A refusal's first line has the address.
        what = hide_password(first_line(error))
        raise CannotMeasureError(
            f"{hide_password(url)}: {what}; is the server up, and the model's name right?"
        ) from error


async def calibrate(
    answers: Mapping[str, str],
    encoder: Encoder,
    embedder: str,
    model: str | None = None,
    report: Callable[[int], None] = lambda done: None,
) -> Calibration:
    """Return the labelled evidence of texts with answers.

    Args:
        answers: The answer to each text.
        encoder: Embeds texts.
        embedder: Hash of the embedding model.
        model: Identifies the weights that gave the answers; None for labels.
        report: Called with the number of texts done.
    """
    policy = CachePolicy(max_bytes=_MAX_BYTES, routes=(RoutePolicy(mode=HitMode.SERVE),))
    backend = MemoryBackend(_MAX_BYTES)
    cache = ResponseCache(policy, backend, encoder, AuditLog(None))
    private, pairs, bypassed, asked = PrivateText(), [], Counter[str](), 0
    texts = sorted(answers)
    random.Random(_SEED).shuffle(texts)
    for done, text in enumerate(texts):
        report(done)
        body = json.dumps({"messages": [{"role": "user", "content": text}]}).encode()
        question = read_question(body, Caller(), Sampling(0.0, {}), "", policy, private)
        sketch = cache.sketch(question) if isinstance(question, Question) else None
        if not isinstance(question, Question) or sketch is None:
            reason = "long" if isinstance(question, Question) else question.reason
            bypassed[reason] += 1
            continue
        asked += 1
        vector = encoder.encode(text)
        candidates = list_candidates(cache.search(question))
        hit = await cache.find_nearest(question, vector, candidates)
        if hit is not None:
            near, own = hit.hit_class, answers[text]
            is_wrong = not are_interchangeable(hit.entry.text, own, encoder.encode)
            pairs.append(LabelledPair(near.kind, near.similarity, near.lead, is_wrong))
        await cache.keep(question, _make_entry(question, answers[text]), vector)
    await cache.close()
    labels = Labels(Collected(embedder, model=model), tuple(pairs))
    return Calibration(labels, asked, bypassed)


def _make_entry(question: Question, answer: str) -> CacheEntry:
    return CacheEntry(
        id=question.id,
        scope=question.scope,
        tenant=question.tenant,
        subjects=(),
        question=question.text,
        text=answer,
        token_ids=(),
        finish_reason="stop",
        stop_reason=None,
        generation_s=0.0,
        expires_at_s=0.0,
    )
