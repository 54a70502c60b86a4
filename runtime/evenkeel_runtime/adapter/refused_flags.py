"""Flags of vLLM that `evenkeel serve` does not take, refused before anything heavy is imported."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass

from evenkeel.errors import ConfigurationError

_ONE_SERVER = (
    "one HTTP process is observed; run several `evenkeel serve` behind a load balancer instead"
)


@dataclass(frozen=True, slots=True)
class RefusedFlag:
    """A flag of vLLM that starts something which cannot be observed.

    Attributes:
        names: How vLLM spells it, the long name first.
        reason: Why it is refused, and what to do.
        allowed: The value that changes nothing; None for a switch.
    """

    names: tuple[str, ...]
    reason: str
    allowed: int | None = None

    @property
    def destination(self) -> str:
        """Its name in vLLM's parsed flags."""
        return self.names[0].lstrip("-").replace("-", "_")

    def error(self) -> ConfigurationError:
        """Return what to raise."""
        return ConfigurationError(f"serve: {self.names[0]}: {self.reason}")


# vLLM 0.32, `vllm/entrypoints/cli/serve.py`: every way to serve other than from this process.
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
        flags: What the command line says beyond our own flags.
        speculates: Whether `--speculate auto` was given.

    Raises:
        ConfigurationError: If one of them cannot be served with.
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
                f"serve: --speculate auto and {name}{dot}{rest} exclude each other; "
                "give one of them"
            )


def refuse_parsed_flags(args: argparse.Namespace) -> None:
    """Check vLLM's parsed flags: what an abbreviation or a `--config` file said is known only here.

    Raises:
        ConfigurationError: If one of them cannot be served with.
    """
    for refused in REFUSED_FLAGS:
        value = getattr(args, refused.destination, None)
        if value is not None and value is not False and value != refused.allowed:
            raise refused.error()
