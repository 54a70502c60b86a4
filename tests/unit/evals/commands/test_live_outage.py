"""A live evaluation waits for what does not answer, and leaves the store alone meanwhile."""

from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel.errors import CannotMeasureError, KeyRefusedError, StoreLoginError
from evenkeel_evals.commands import live


def test_an_outage_is_said_once_and_asked_about_less_and_less(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    now = 1e9

    def sleep(seconds: float) -> None:
        nonlocal now
        pauses.append(seconds)
        now += seconds

    clock = SimpleNamespace(
        sleep=sleep,
        monotonic=lambda: now,
        time_ns=lambda: int(now * 1e9),
    )
    monkeypatch.setattr(live, "time", clock)
    config: Any = SimpleNamespace(window_s=60.0, settle_s=0.0)
    run: Any = SimpleNamespace(windows=[], unsent=[], next_from_ns=None, estimates=lambda *_: [])
    watch = live._Watch(config, run, "none", False, SimpleNamespace(), None)  # type: ignore[arg-type]
    taken: list[tuple[int, int]] = []

    def take(_: object, span_ns: tuple[int, int]) -> None:
        taken.append(span_ns)
        raise CannotMeasureError("no server answers")

    monkeypatch.setattr(watch, "_take", take)
    with pytest.raises(CannotMeasureError):
        watch.go(SimpleNamespace(), 120.0, False, 100.0)  # type: ignore[arg-type]
    assert pauses[:6] == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0]
    assert max(pauses) == 15.0
    assert sum(pauses) == pytest.approx(100.0)
    assert len(set(taken)) == 1
    assert capsys.readouterr().err == "evenkeel: no server answers; retrying\n"


@pytest.mark.parametrize("refusal", [KeyRefusedError, StoreLoginError])
def test_a_refused_key_ends_the_evaluation(
    refusal: type[CannotMeasureError], monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Any = SimpleNamespace(window_s=60.0, settle_s=0.0)
    run: Any = SimpleNamespace(windows=[], unsent=[], next_from_ns=None, estimates=lambda *_: [])
    watch = live._Watch(config, run, "none", False, SimpleNamespace(), None)  # type: ignore[arg-type]
    num_taken = 0

    def take(*_: object) -> None:
        nonlocal num_taken
        num_taken += 1
        raise refusal("answered 401; give its key")

    monkeypatch.setattr(watch, "_take", take)
    with pytest.raises(refusal, match="give its key"):
        watch.go(SimpleNamespace(), 120.0, False, 3.0)  # type: ignore[arg-type]
    assert num_taken == 1
