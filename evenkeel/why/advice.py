"""What would help against each cause of a ledger: one sentence, with the flag to change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Advice:
    """What would help against a cause.

    Attributes:
        text: One sentence in the imperative.
        flags: Flags of `evenkeel serve` or vLLM to change; () if no flag helps.
    """

    text: str
    flags: tuple[str, ...] = ()


_MEMORY = Advice(
    "Make room for more KV blocks: a larger KV cache or a smaller KV data type, shorter contexts, "
    "or another replica. Faster compute would not help.",
    ("--gpu-memory-utilization", "--kv-cache-dtype", "--max-model-len"),
)
_CPU = Advice("Free CPU time for the server: fewer other processes, or a faster CPU.")
_REPLICA = Advice(
    "Run fewer sequences at once, or add a replica.",
    ("--max-num-seqs",),
)

ADVICE: Mapping[str, Advice] = MappingProxyType(
    {
        "host.input": _CPU,
        "host.output": _CPU,
        "host.gap": _CPU,
        "host.prompt": Advice("Keep the prompt registry on a local disk."),
        "host.compression": Advice(
            "Compress only longer histories, or switch compression off for this route."
        ),
        "host.cache": Advice("Look up in shadow mode, or use a backend closer to the server."),
        "queue.gate": Advice(
            "Control held it back: raise this class's or tenant's limit in the control file, or "
            "add a replica.",
            ("--control-file",),
        ),
        "queue.budget": Advice(
            "Each step's token budget was spent on other prompts: raise it, hold long prompts back "
            "with control, or add a replica.",
            ("--max-num-batched-tokens", "--long-prefill-token-threshold", "--control-file"),
        ),
        "queue.kv": _MEMORY,
        "preemption": _MEMORY,
        "queue.seats": Advice(
            "All batch slots were taken: allow more sequences at once while KV blocks are free, or "
            "add a replica.",
            ("--max-num-seqs",),
        ),
        "queue.grammar": Advice("Reuse the same schema, so that its grammar stays compiled."),
        "queue.remote_kv": Advice("Check the link to the KV transfer's other end."),
        "queue.other": Advice("See the Engine page for what held the queue."),
        "prefill.own": Advice(
            "Shorten the prompt, or put its static part first, so that it is cached.",
            ("--enable-prefix-caching", "--compression"),
        ),
        "prefill.cache_miss": Advice(
            "Its prefix had been evicted: a larger KV cache keeps prefixes longer.",
            ("--gpu-memory-utilization", "--kv-cache-dtype"),
        ),
        "prefill.others": Advice(
            "Other prompts shared its steps: cut long prompts into smaller chunks, or hold them "
            "back with control.",
            ("--long-prefill-token-threshold", "--max-num-batched-tokens", "--control-file"),
        ),
        "decode.others": _REPLICA,
        "decode.own": Advice(
            "Decode faster: drafts where they pay, or a quantised model.",
            ("--speculate auto", "--quantization"),
        ),
        "speculation": Advice(
            "Let the controller draft only where it pays.", ("--speculate auto",)
        ),
        "unobserved": Advice("Records were dropped: see evenkeel_runtime_steps_lost in /metrics."),
    }
)


def advise(cause: str) -> Advice | None:
    """Return what would help against a cause such as `queue.budget`; None for an unknown one."""
    return ADVICE.get(cause)
