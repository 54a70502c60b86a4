"""Which bodies are known to have been accepted."""

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evenkeel_collector.log.repeats import DIGEST_BYTES, SeenBodies, digest_of, mark, read_mark
from evenkeel_collector.log.write_ahead_log import WriteAheadLog
from tests.fixtures.manual_clock import ManualClock

TIMEOUT_S = 30
WINDOW_S = 600.0
NOW_S = 1_700_000_000.0


def digest(number: int) -> bytes:
    return number.to_bytes(DIGEST_BYTES, "big")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("/v1/traces", None, b"body"), ("/v1/metrics", None, b"body")),
        (("/v1/traces", "a", b"body"), ("/v1/traces", "b", b"body")),
        (("/v1/traces", None, b"body"), ("/v1/traces", "", b"body")),
        (("/v1/traces", "a", b"bbody"), ("/v1/traces", "ab", b"body")),
        (("/v1/traces", "a", b"body"), ("/v1/traces", "a", b"body2")),
    ],
    ids=["signal", "tenant", "no tenant", "where the tenant ends", "bytes"],
)
def test_digests_differ(
    one: tuple[str, str | None, bytes], other: tuple[str, str | None, bytes]
) -> None:
    assert digest_of(*one) == digest_of(*one)
    assert digest_of(*one) != digest_of(*other)


@given(st.binary(max_size=100), st.binary(min_size=DIGEST_BYTES, max_size=DIGEST_BYTES))
def test_a_mark_is_read_back(payload: bytes, known_by: bytes) -> None:
    assert read_mark(mark(payload, known_by)) == known_by


@pytest.mark.parametrize("payload", [b"", b"\xea", b"\xea\x3e\x10short", b"\x0a" * 40])
def test_a_payload_without_a_mark_has_none(payload: bytes) -> None:
    assert read_mark(payload) is None


@settings(max_examples=200)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("remember"), st.integers(0, 30)),
            st.tuples(st.just("wait"), st.integers(1, 900)),
            st.tuples(st.just("save"), st.just(0)),
            st.tuples(st.just("restart"), st.just(0)),
        ),
        max_size=40,
    )
)
@example(
    [("remember", 0), ("wait", 717), ("wait", 900), ("wait", 900), ("restart", 0), ("wait", 483)]
)
def test_a_body_is_known_for_a_window_and_not_for_ever(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int]]
) -> None:
    clock = ManualClock(NOW_S)
    folder = tmp_path_factory.mktemp("repeats")
    repeats = SeenBodies(folder, WINDOW_S, clock=clock)
    seen: dict[int, float] = {}
    for kind, number in events:
        if kind == "remember":
            repeats.remember([digest(number)])
            seen[number] = clock.now_s
        elif kind == "wait":
            clock.now_s += number
        elif kind == "save":
            repeats.save()
        else:
            # The log saves before it forgets; what it has not forgotten it remembers again.
            repeats.save()
            repeats = SeenBodies(folder, WINDOW_S, clock=clock)
        for known, at_s in seen.items():
            # Journals are named by whole seconds.
            if clock.now_s - at_s < WINDOW_S - 1:
                assert repeats.knows(digest(known))
            if clock.now_s - at_s >= 5 * WINDOW_S:
                assert not repeats.knows(digest(known))
        assert len(list(folder.iterdir())) <= 3


def test_memory_and_journals_are_bounded(tmp_path: Path) -> None:
    clock = ManualClock(NOW_S)
    repeats = SeenBodies(tmp_path, WINDOW_S, max_digests=10, clock=clock)
    for number in range(1_000):
        repeats.remember([digest(number)])
        repeats.save()
        clock.now_s += 1
    assert sum(repeats.knows(digest(number)) for number in range(1_000)) <= 20
    assert repeats.knows(digest(999))
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) <= 3 * 11 * DIGEST_BYTES
    again = SeenBodies(tmp_path, WINDOW_S, max_digests=10, clock=clock)
    assert again.knows(digest(999))


def test_a_journal_that_cannot_be_deleted_stops_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock(NOW_S)
    # What no unlink removes, not even root's.
    (tmp_path / "000000000001.digests").mkdir()
    seen = SeenBodies(tmp_path, WINDOW_S, clock=clock)
    for number in range(5):
        clock.now_s += WINDOW_S
        seen.remember([digest(number)])
        seen.save()
    assert seen.knows(digest(4))
    assert "cannot delete digests of bodies" in caplog.text


def test_a_torn_journal_is_read_up_to_the_tear(tmp_path: Path) -> None:
    repeats = SeenBodies(tmp_path)
    repeats.remember([digest(1)])
    repeats.save()
    [journal] = tmp_path.iterdir()
    with journal.open("ab") as file:
        file.write(b"torn")
    repeats = SeenBodies(tmp_path)
    assert repeats.knows(digest(1))
    repeats.remember([digest(2)])
    repeats.save()
    repeats = SeenBodies(tmp_path)
    assert repeats.knows(digest(1))
    assert repeats.knows(digest(2))


def test_a_clock_that_was_set_back_forgets_nothing(tmp_path: Path) -> None:
    clock = ManualClock(NOW_S)
    repeats = SeenBodies(tmp_path, WINDOW_S, clock=clock)
    repeats.remember([digest(1)])
    repeats.save()
    clock.now_s -= 100_000
    assert repeats.knows(digest(1))
    assert SeenBodies(tmp_path, WINDOW_S, clock=clock).knows(digest(1))


def test_a_clock_set_forward_and_back_forgets_nothing_over_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(NOW_S)
    repeats = SeenBodies(tmp_path, WINDOW_S, clock=clock)
    # Two journals begin a day ahead.
    for number, step_s in enumerate((86_400, 700)):
        clock.now_s += step_s
        repeats.remember([digest(number)])
        repeats.save()
    clock.now_s = NOW_S
    # Three windows on, only the newest has to be known.
    for number in (2, 3, 4):
        clock.now_s += 700
        repeats.remember([digest(number)])
        repeats.save()
    repeats = SeenBodies(tmp_path, WINDOW_S, clock=clock)
    assert repeats.knows(digest(4))
    assert len(list(tmp_path.iterdir())) <= 3
    # The journals from ahead do not come back once their time has come.
    clock.now_s = NOW_S + 86_400
    assert not SeenBodies(tmp_path, WINDOW_S, clock=clock).knows(digest(0))


def test_the_log_knows_a_body_once_it_is_on_disk_also_after_a_crash(tmp_path: Path) -> None:
    log = WriteAheadLog(tmp_path / "log", "node")
    assert not log.repeats.knows(digest(1))
    log.append(b"body", 1, digest(1)).result(TIMEOUT_S)
    assert log.repeats.knows(digest(1))
    log.close()
    # Its own segment says it, before anything was saved.
    log = WriteAheadLog(tmp_path / "log", "node")
    assert log.repeats.knows(digest(1))
    segment = log.next_sealed(TIMEOUT_S)
    assert segment is not None
    log.delete(segment)
    log.close()
    # The segment is gone: the journal says it.
    log = WriteAheadLog(tmp_path / "log", "node")
    assert log.next_sealed(0) is None
    assert log.repeats.knows(digest(1))
    log.close()
