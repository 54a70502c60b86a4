"""Plain names for a ledger's causes, for pages, alerts and commands (docs/inside/ledger.md)."""

from __future__ import annotations

from types import MappingProxyType

# Each reads well after "without" and, capitalised, at the start of a line.
NAMES = MappingProxyType(
    {
        "host.input": "HTTP, templating and tokenizing",
        "host.prompt": "resolving the prompt version",
        "host.compression": "compressing the prompt",
        "host.cache": "the response-cache lookup",
        "queue.gate": "waiting at control's gate",
        "queue.budget": "waiting for batch capacity",
        "queue.kv": "waiting for free KV blocks",
        "queue.seats": "waiting for a batch slot",
        "queue.grammar": "waiting for its grammar to compile",
        "queue.remote_kv": "waiting for its remote KV",
        "queue.other": "waiting to be scheduled",
        "prefill.own": "processing its own prompt",
        "prefill.cache_miss": "recomputing an evicted prefix",
        "prefill.others": "other requests' prompts",
        "decode.own": "its own decoding",
        "decode.others": "other requests' decoding",
        "preemption": "preemption and recomputation",
        "speculation": "rejected draft tokens",
        "host.gap": "gaps between engine steps",
        "host.output": "detokenizing and delivery",
        "unobserved": "unrecorded time",
    }
)
# Time lost to other requests or to the engine's state; the same request alone would lose none.
_LOAD = ("queue.", "prefill.others", "decode.others", "preemption", "host.gap")
_PHASES = {"ttft": "first token", "decode": "decode"}


def cause_name(cause: str) -> str:
    """Return the plain name of a cause such as `queue.budget`; an unknown one unchanged."""
    return NAMES.get(cause, cause)


def describe_cause(key: str) -> str:
    """Return a readable name for a ledger key: a cause and its phase.

    `ttft.queue.budget` is "Waiting for batch capacity (first token)".
    """
    phase, _, cause = key.partition(".")
    name = cause_name(cause)
    if phase not in _PHASES or not cause:
        return key
    return f"{name[:1].upper()}{name[1:]} ({_PHASES[phase]})"


def is_load(key: str) -> bool:
    """Return whether a key of the ledger, such as `ttft.queue.budget`, is due to other requests."""
    return key.partition(".")[2].startswith(_LOAD)
