"""vLLM flags that `evenkeel serve` rejects, before anything heavy is imported."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.errors import ConfigurationError

_ONE_SERVER = (
    "only one HTTP process can be observed; run several `evenkeel serve` behind a load balancer"
)


@dataclass(frozen=True, slots=True)
class RefusedFlag:
    """A vLLM flag that starts something that cannot be observed.

    Attributes:
        names: vLLM's spellings, the long name first.
        reason: Why it is rejected, and what to do instead.
        allowed: The value that has no effect; None for a switch.
    """

    names: tuple[str, ...]
    reason: str
    allowed: int | None = None

    @property
    def destination(self) -> str:
        """Its name in vLLM's parsed flags."""
        return self.names[0].lstrip("-").replace("-", "_")

    def error(self) -> ConfigurationError:
        """Return the error to raise."""
        return ConfigurationError(f"serve: {self.names[0]}: {self.reason}")


# vLLM 0.32, `vllm/entrypoints/cli/serve.py`: all ways to serve from another process.
REFUSED_FLAGS = (
    RefusedFlag(("--headless",), "it starts no HTTP server to observe; use `vllm serve`"),
    RefusedFlag(("--grpc",), "it starts no HTTP server to observe; use `vllm serve`"),
    RefusedFlag(("--api-server-count", "-asc"), _ONE_SERVER, allowed=1),
    RefusedFlag(("--data-parallel-multi-port-external-lb", "-dpm"), _ONE_SERVER),
)
_RIVALS_OF_SPECULATION = ("--speculative-config", "--scheduler-cls", "--logits-processors")


def refuse_flags(flags: Sequence[str], speculates: bool = False) -> None:
    """Check the flags meant for vLLM, as they were typed.

    Args:
        flags: The command line without our own flags.
        speculates: Whether `--speculate auto` was given.

    Raises:
        ConfigurationError: If one of them is not supported.
    """
    for index, flag in enumerate(flags):
        typed, has_value, value = flag.partition("=")
        # vLLM takes underscores for dashes, up to the first dot.
        head, dot, rest = typed.partition(".")
        name = head.replace("_", "-") if typed.startswith("--") else typed
        for refused in REFUSED_FLAGS:
            if name not in refused.names or dot:
                continue
            if not has_value:
                value = flags[index + 1] if index + 1 < len(flags) else ""
            if refused.allowed is None or value != str(refused.allowed):
                raise refused.error()
        if speculates and name in _RIVALS_OF_SPECULATION:
            raise ConfigurationError(
                f"serve: --speculate auto and {name}{dot}{rest} are mutually exclusive; "
                "give only one"
            )


def refuse_parsed_flags(args: argparse.Namespace) -> None:
    """Check vLLM's parsed flags: abbreviations and `--config` files are only resolved here.

    Raises:
        ConfigurationError: If one of them is not supported.
    """
    for refused in REFUSED_FLAGS:
        value = getattr(args, refused.destination, None)
        if value is not None and value is not False and value != refused.allowed:
            raise refused.error()
