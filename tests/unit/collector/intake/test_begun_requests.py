"""When an agent's request began, for an event at its end."""

from evenkeel_collector.intake import begun_requests
from evenkeel_collector.intake.begun_requests import AgentConversation, BegunRequest, BegunRequests

C = AgentConversation("acme", "c")


def test_a_request_has_one_end_however_often_it_is_sent() -> None:
    begun = BegunRequests()
    assert begun.ended(C, 20) is None
    begun.add(C, BegunRequest(10))
    assert begun.ended(C, 5) is None
    for _ in range(2):
        ended = begun.ended(C, 20)
        assert ended is not None and ended.start_ns == 10
        # The event of its begin again.
        begun.add(C, BegunRequest(10))
    # The next answer, whose begin nobody reported.
    assert begun.ended(C, 30) is None
    begun.add(C, BegunRequest(25))
    assert begun.ended(C, 30) == BegunRequest(25, end_ns=30)


def test_the_oldest_of_too_many_conversations_is_forgotten() -> None:
    begun = BegunRequests()
    for number in range(begun_requests.MAX_CONVERSATIONS + 1):
        begun.add(AgentConversation("acme", str(number)), BegunRequest(1))
    assert begun.ended(AgentConversation("acme", "0"), 2) is None
    assert begun.ended(AgentConversation("acme", "1"), 2) is not None


def test_a_conversation_of_another_tenant_or_with_an_endless_id_is_not_known() -> None:
    begun = BegunRequests()
    begun.add(C, BegunRequest(10))
    begun.add(AgentConversation("other", "c"), BegunRequest(15))
    endless = AgentConversation("acme", "c" * (begun_requests.MAX_ID + 1))
    begun.add(endless, BegunRequest(10))
    assert begun.ended(C, 20) == BegunRequest(10, end_ns=20)
    assert begun.ended(endless, 20) is None
