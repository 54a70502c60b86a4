"""When an agent's request began, for an event at its end."""

from evenkeel_collector.intake import begun_requests
from evenkeel_collector.intake.begun_requests import BegunRequest, BegunRequests


def test_a_request_has_one_end_however_often_it_is_sent() -> None:
    begun = BegunRequests()
    assert begun.ended("c", 20) is None
    begun.add("c", BegunRequest(10))
    assert begun.ended("c", 5) is None
    for _ in range(2):
        ended = begun.ended("c", 20)
        assert ended is not None and ended.start_ns == 10
        # The event of its begin again.
        begun.add("c", BegunRequest(10))
    # The next answer, whose begin nobody reported.
    assert begun.ended("c", 30) is None
    begun.add("c", BegunRequest(25))
    assert begun.ended("c", 30) == BegunRequest(25, end_ns=30)


def test_the_oldest_of_too_many_conversations_is_forgotten() -> None:
    begun = BegunRequests()
    for number in range(begun_requests.MAX_CONVERSATIONS + 1):
        begun.add(str(number), BegunRequest(1))
    assert begun.ended("0", 2) is None
    assert begun.ended("1", 2) is not None
