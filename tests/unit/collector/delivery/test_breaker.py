"""When a failing receiver is tried again."""

from evenkeel_collector.delivery.breaker import Breaker

S = 10**9
NOW = 1_795_168_800 * S


def test_a_breaker_opens_after_five_failures_and_tries_now_and_then() -> None:
    breaker = Breaker()
    for _ in range(4):
        breaker.record(False, NOW)
    assert breaker.try_acquire(NOW)
    breaker.record(False, NOW)
    assert not breaker.try_acquire(NOW + 29 * S)
    assert breaker.try_acquire(NOW + 30 * S)
    assert not breaker.try_acquire(NOW + 31 * S)
    breaker.record(True, NOW + 31 * S)
    assert breaker.try_acquire(NOW + 31 * S)
