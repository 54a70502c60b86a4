"""Every cause of the ledger has a name that a person can read."""

from evenkeel.why.causes import NAMES, cause_name, describe_cause
from evenkeel_runtime.wire.cause import CAUSES


def test_every_cause_has_a_name_and_no_name_is_left_over() -> None:
    assert set(NAMES) == {str(cause) for cause in CAUSES}
    assert len(set(NAMES.values())) == len(NAMES)


def test_a_key_of_the_ledger_is_described_with_its_phase() -> None:
    assert describe_cause("ttft.queue.budget") == "Waiting for batch capacity (first token)"
    assert describe_cause("decode.preemption") == "Preemption and recomputation (decode)"


def test_what_is_unknown_stays_as_it_is() -> None:
    assert describe_cause("total.queue.budget") == "total.queue.budget"
    assert cause_name("queue.new") == "queue.new"
