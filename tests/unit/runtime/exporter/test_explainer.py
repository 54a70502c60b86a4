"""Which requests the engine's records are asked for."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from evenkeel.spans import Status
from evenkeel_runtime.exporter.explainer import Explainer
from evenkeel_runtime.exporter.record import FinishedRequest
from evenkeel_runtime.exporter.why_answers import WhyStore
from evenkeel_runtime.ledger.attribution import Ledger
from evenkeel_runtime.ledger.engine_seconds import EngineSeconds
from evenkeel_runtime.wire.observation import Observation


class Reader:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def ask_ledger(self, request_id: str, *_: Any, **__: Any) -> Future[Ledger | None]:
        self.asked.append(request_id)
        answer: Future[Ledger | None] = Future()
        answer.set_result(Ledger({}, engine=EngineSeconds(0.5)))
        return answer


@pytest.mark.parametrize(("submitted_ns", "engine_s"), [(5, 0.5), (None, 0.0)])
def test_the_engine_has_no_records_of_a_request_that_it_never_got(
    submitted_ns: int | None, engine_s: float
) -> None:
    """Such as of one whose client left the gate: to wait for them would hold up all spans."""
    reader: Any = Reader()
    seen = Observation(
        request_id="r-1",
        model="support",
        operation="chat",
        arrival_unix_ns=0,
        arrival_ns=0,
        end_ns=9,
        status=Status.ABORTED,
        reached_engine=True,
        submitted_ns=submitted_ns,
    )
    request = FinishedRequest.begin(seen)
    Explainer(reader, WhyStore()).explain([request])
    assert reader.asked == ["r-1"] * (submitted_ns is not None)
    request.complete(10)
    assert (seen.engine_s, seen.queue_s) == (engine_s, 9e-9)
