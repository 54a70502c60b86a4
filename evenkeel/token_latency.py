"""TTFT, ITL, TPOT and stall of one request, computed from its token emission times.

docs/metrics.md has the definitions. Timestamps are integer nanoseconds, durations are float
seconds, and missing values are None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import sub

# With speculation several tokens arrive at once, so half of the gaps may be 0.
ZERO_GAPS = "tokens that arrive together have gaps of 0"


@dataclass(frozen=True, slots=True)
class Emissions:
    """Token arrivals at the server's output, in order: two columns of equal length.

    Attributes:
        time_ns: When each arrived.
        tokens: How many new tokens it contained.
    """

    time_ns: Sequence[int]
    tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class TokenLatency:
    """Latency of one request's token stream, in seconds.

    Attributes:
        ttft_s: First output token − arrival, queue included.
        tpot_s: (last − first token time) / (output tokens − 1); None below 2 tokens.
        itl_p50_s: Median per-token gap after the first token; None below 2 tokens.
        itl_p99_s: 99th percentile of the same gaps.
        stall_s: Longest gap between two emissions; None with fewer than 2 emissions.
    """

    ttft_s: float | None
    tpot_s: float | None
    itl_p50_s: float | None
    itl_p99_s: float | None
    stall_s: float | None


def measure(arrival_ns: int, emissions: Emissions) -> TokenLatency:
    """Return the token latency of one request; every field is None when no token was emitted.

    An emission of k tokens after a gap g counts as one gap g and k − 1 gaps of 0. Tokens that
    share the first emission are k − 1 gaps of 0 as well.

    Raises:
        ValueError: If times run backwards or an emission has no token.
    """
    times_ns = emissions.time_ns
    if not times_ns:
        return TokenLatency(None, None, None, None, None)
    gaps_ns = sorted(map(sub, times_ns[1:], times_ns))
    if times_ns[0] < arrival_ns or (gaps_ns and gaps_ns[0] < 0) or min(emissions.tokens) < 1:
        _refuse_disorder(arrival_ns, emissions)
    num_tokens = sum(emissions.tokens)
    ttft_s = (times_ns[0] - arrival_ns) / 1e9
    if num_tokens < 2:
        return TokenLatency(ttft_s, None, None, None, None)
    num_zero_gaps = num_tokens - 1 - len(gaps_ns)
    return TokenLatency(
        ttft_s=ttft_s,
        tpot_s=(times_ns[-1] - times_ns[0]) / 1e9 / (num_tokens - 1),
        itl_p50_s=_quantile_ns(gaps_ns, num_zero_gaps, 0.50) / 1e9,
        itl_p99_s=_quantile_ns(gaps_ns, num_zero_gaps, 0.99) / 1e9,
        stall_s=gaps_ns[-1] / 1e9 if gaps_ns else None,
    )


def zero_gap_note(*gaps_s: float | None) -> str:
    """Return what to say beside percentiles of ITL: why one of them is 0; "" if none is."""
    # A digest of zeros may return slightly more.
    return ZERO_GAPS if any(gap_s is not None and gap_s < 0.5e-9 for gap_s in gaps_s) else ""


def _refuse_disorder(arrival_ns: int, emissions: Emissions) -> None:
    for previous_ns, time_ns in pairwise((arrival_ns, *emissions.time_ns)):
        if time_ns < previous_ns:
            raise ValueError(f"emission at {time_ns} ns is before {previous_ns} ns")
    raise ValueError(f"emission has {min(emissions.tokens)} tokens, expected at least 1")


def _quantile_ns(sorted_gaps_ns: Sequence[int], num_zero_gaps: int, q: float) -> float:
    """Linear-interpolated quantile of `num_zero_gaps` zeros followed by the sorted gaps."""
    rank = q * (num_zero_gaps + len(sorted_gaps_ns) - 1)
    low = int(rank)
    high = min(low + 1, num_zero_gaps + len(sorted_gaps_ns) - 1)

    def at(index: int) -> int:
        return 0 if index < num_zero_gaps else sorted_gaps_ns[index - num_zero_gaps]

    return at(low) + (at(high) - at(low)) * (rank - low)
