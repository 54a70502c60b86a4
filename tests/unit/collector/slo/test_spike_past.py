from evenkeel_collector.slo.spike_past import SEPARATOR, in_pieces


def test_cohorts_are_read_in_pieces_that_a_server_accepts() -> None:
    cohorts = [("模型" * 32, "租户" * 32, f"route {number}") for number in range(400)]
    pieces = list(in_pieces(cohorts))
    assert [text for piece in pieces for text in piece] == [SEPARATOR.join(c) for c in cohorts]
    assert all(sum(len(text.encode()) for text in piece) <= 32 * 1024 for piece in pieces)
    assert len(list(in_pieces(cohorts[:50]))) == 1
    assert list(in_pieces([])) == []
