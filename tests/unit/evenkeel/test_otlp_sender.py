"""Batches are sent until they are taken or refused, and no longer."""

import pytest

from evenkeel import otlp_sender
from evenkeel.otlp_sender import Delivery, deliver, open_sender
from evenkeel.otlp_target import OtlpTarget

TAKEN = Delivery(is_done=True)
FULL = Delivery(is_done=False, retry_after_s=0.001, reason="HTTP 503")
REFUSED = Delivery(is_done=True, num_rejected=3, reason="HTTP 400")
AWAY = Delivery(is_done=False, reason="ConnectError", is_unreachable=True)


@pytest.mark.parametrize(
    ("answers", "last", "attempts"),
    [
        ([TAKEN], TAKEN, 1),
        ([FULL, FULL, TAKEN], TAKEN, 3),
        ([REFUSED, TAKEN], REFUSED, 1),
        ([AWAY, TAKEN], AWAY, 1),
        ([FULL] * 20, FULL, otlp_sender.MAX_ATTEMPTS),
    ],
)
def test_a_batch_is_sent_until_it_is_over(
    answers: list[Delivery], last: Delivery, attempts: int
) -> None:
    asked: list[tuple[bytes, int]] = []

    def send(body: bytes, num_spans: int) -> Delivery:
        asked.append((body, num_spans))
        return answers[len(asked) - 1]

    assert deliver(send, b"batch", 3) == last
    assert asked == [(b"batch", 3)] * attempts


def test_a_receiver_that_is_not_there_is_not_waited_for() -> None:
    send = open_sender(OtlpTarget("http://127.0.0.1:9/v1/traces"))
    assert deliver(send, b"", 1) == Delivery(False, reason="ConnectError", is_unreachable=True)
