"""Names of the causes that a request's time is charged to."""

from __future__ import annotations

from enum import StrEnum


class Cause(StrEnum):
    """A cause that a request's time is charged to; docs/inside/ledger.md has the formulas."""

    HOST_INPUT = "host.input"
    HOST_PROMPT = "host.prompt"
    HOST_COMPRESSION = "host.compression"
    HOST_CACHE = "host.cache"
    QUEUE_GATE = "queue.gate"
    QUEUE_BUDGET = "queue.budget"
    QUEUE_KV = "queue.kv"
    QUEUE_SEATS = "queue.seats"
    QUEUE_GRAMMAR = "queue.grammar"
    QUEUE_REMOTE_KV = "queue.remote_kv"
    QUEUE_OTHER = "queue.other"
    PREFILL_OWN = "prefill.own"
    PREFILL_CACHE_MISS = "prefill.cache_miss"
    PREFILL_OTHERS = "prefill.others"
    DECODE_OWN = "decode.own"
    DECODE_OTHERS = "decode.others"
    PREEMPTION = "preemption"
    SPECULATION = "speculation"
    HOST_GAP = "host.gap"
    HOST_OUTPUT = "host.output"
    UNOBSERVED = "unobserved"


CAUSES = tuple(Cause)
