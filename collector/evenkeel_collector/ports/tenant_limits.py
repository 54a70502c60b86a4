"""Limits per tenant: bytes per second, requests per second, and the size of one request."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from evenkeel_collector.ports.access import DEFAULT_LIMITS, TenantLimits
from evenkeel_collector.ports.decompress import TooLargeError

# A sender may save up this much of its rate, for batches that come in bursts.
BURST_S = 2.0
# Tenants invented by senders must not fill the memory; the oldest are forgotten, and start full.
MAX_TENANTS = 10_000


class RateLimitedError(Exception):
    """The tenant exceeded its rate; it may retry after `retry_after_s`."""

    def __init__(self, message: str, retry_after_s: int) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class _Bucket:
    """A token bucket that may go into debt once: any request passes a bucket that is not empty."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._level = rate * BURST_S
        self._at_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the next request may pass; 0 if it may pass now."""
        self._level = min(self._level + (now_s - self._at_s) * self._rate, self._rate * BURST_S)
        self._at_s = now_s
        return 0.0 if self._level > 0 else -self._level / self._rate + 1e-3

    def take(self, amount: float) -> None:
        self._level -= amount


class TenantMeter:
    """Enforces each tenant's limits.

    Args:
        limits: By tenant; `default` applies to all other tenants and to senders without one.
        clock: Seconds, monotonic.
    """

    def __init__(
        self, limits: Mapping[str, TenantLimits], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: dict[str | None, tuple[_Bucket | None, _Bucket | None]] = {}

    def use(self, limits: Mapping[str, TenantLimits]) -> None:
        """Replace the limits in force; each tenant starts with a full allowance."""
        self._limits = limits
        self._buckets = {}

    def admit(self, tenant: str | None, num_bytes: int) -> None:
        """Count one request.

        Raises:
            TooLargeError: If it is larger than this tenant may send.
            RateLimitedError: If the tenant is over its rate; nothing was counted.
        """
        limits = self._limits.get(tenant or "") or self._limits.get(DEFAULT_LIMITS)
        if limits is None:
            return
        if limits.request_bytes is not None and num_bytes > limits.request_bytes:
            raise TooLargeError(f"body is larger than the tenant's {limits.request_bytes} bytes")
        now_s = self._clock()
        by_bytes, by_requests = self._buckets_of(tenant, limits, now_s)
        waits_s = [bucket.wait_s(now_s) for bucket in (by_bytes, by_requests) if bucket]
        if any(waits_s):
            raise RateLimitedError(
                f"tenant {tenant or 'unknown'!r} is over its rate", max(1, math.ceil(max(waits_s)))
            )
        if by_bytes:
            by_bytes.take(num_bytes)
        if by_requests:
            by_requests.take(1)

    def _buckets_of(
        self, tenant: str | None, limits: TenantLimits, now_s: float
    ) -> tuple[_Bucket | None, _Bucket | None]:
        found = self._buckets.get(tenant)
        if found is None:
            if len(self._buckets) >= MAX_TENANTS:
                del self._buckets[next(iter(self._buckets))]
            found = (
                _Bucket(limits.bytes_per_s, now_s) if limits.bytes_per_s else None,
                _Bucket(limits.requests_per_s, now_s) if limits.requests_per_s else None,
            )
            self._buckets[tenant] = found
        return found
