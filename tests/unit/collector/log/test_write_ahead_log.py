import errno
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evenkeel_collector.log.isolation import Isolated, Poison
from evenkeel_collector.log.quarantine import SEALED_SUFFIX, list_quarantined, replay_quarantine
from evenkeel_collector.log.seal_policy import LogLimits
from evenkeel_collector.log.segment_format import (
    HEADER,
    RECORD,
    encode_header,
    encode_segment,
    read_bodies,
)
from evenkeel_collector.log.write_ahead_log import LogFullError, LogWriteError, WriteAheadLog

SOON = LogLimits(seal_age_s=0.02, rest_s=0.0)
NEVER = LogLimits(seal_age_s=1000.0)
TIMEOUT_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "log"


def segment_files(folder: Path) -> list[str]:
    return sorted(path.suffix for path in folder.iterdir() if path.is_file())


def test_an_acknowledged_body_is_in_a_segment_on_disk(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", NEVER)
    log.append(b"body", 1).result(TIMEOUT_S)
    (path,) = folder.iterdir()
    assert read_bodies(path.read_bytes()) == [b"body"]
    assert path.name.endswith("-node.open")
    log.close()


def test_a_segment_is_sealed_by_age_and_deleted_once_stored(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", SOON)
    log.append(b"body", 1).result(TIMEOUT_S)
    segment = log.next_sealed(TIMEOUT_S)
    assert segment is not None
    assert read_bodies(segment.path.read_bytes()) == [b"body"]
    assert log.num_bytes() == segment.num_bytes
    assert log.oldest_ns() == segment.created_ns
    assert not log.is_drained()
    log.delete(segment)
    assert log.is_drained()
    assert (log.num_bytes(), log.oldest_ns(), segment_files(folder)) == (0, None, [])
    log.close()


def test_a_segment_is_sealed_by_its_number_of_spans(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", LogLimits(seal_age_s=1000.0, seal_spans=10))
    log.append(b"a", 9).result(TIMEOUT_S)
    assert log.next_sealed(0.05) is None
    log.append(b"b", 1).result(TIMEOUT_S)
    segment = log.next_sealed(TIMEOUT_S)
    assert segment is not None
    assert read_bodies(segment.path.read_bytes()) == [b"a", b"b"]
    log.close()


def test_a_segment_grows_while_the_store_has_another_in_hand(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", SOON)
    log.append(b"first", 1).result(TIMEOUT_S)
    first = log.next_sealed(TIMEOUT_S)
    assert first is not None
    log.append(b"second", 1).result(TIMEOUT_S)
    time.sleep(5 * SOON.seal_age_s)
    log.append(b"third", 1).result(TIMEOUT_S)
    log.delete(first)
    both = log.next_sealed(TIMEOUT_S)
    assert both is not None
    assert read_bodies(both.path.read_bytes()) == [b"second", b"third"]
    log.close()


def test_a_segment_younger_than_its_time_is_sealed_by_age_once_the_store_is_free(
    folder: Path,
) -> None:
    log = WriteAheadLog(folder, "node", LogLimits(seal_age_s=0.2, rest_s=0.0))
    log.append(b"first", 1).result(TIMEOUT_S)
    first = log.next_sealed(TIMEOUT_S)
    assert first is not None
    log.append(b"second", 1).result(TIMEOUT_S)
    log.delete(first)
    second = log.next_sealed(TIMEOUT_S)
    assert second is not None
    assert read_bodies(second.path.read_bytes()) == [b"second"]
    log.close()


@pytest.mark.parametrize("unread_age_s", [None, 1000.0], ids=["readers unseen", "nobody reads"])
def test_a_full_log_refuses_and_takes_again_once_there_is_room(
    folder: Path, unread_age_s: float | None
) -> None:
    limits = LogLimits(max_log_bytes=300, seal_age_s=1000.0, unread_age_s=unread_age_s)
    log = WriteAheadLog(folder, "node", limits)
    log.append(b"x" * 200, 1).result(TIMEOUT_S)
    assert log.next_sealed(0.05) is None, "it is young, and has room"
    with pytest.raises(LogFullError, match="300 bytes"):
        log.append(b"x" * 200, 1)
    # No reader is waited for.
    segment = log.next_sealed(TIMEOUT_S)
    assert segment is not None
    log.delete(segment)
    log.append(b"x" * 200, 1).result(TIMEOUT_S)
    log.close()


def test_a_reader_waits_for_what_was_acknowledged_before_and_for_nothing_else(
    folder: Path,
) -> None:
    log = WriteAheadLog(
        folder, "node", LogLimits(seal_age_s=0.0, rest_s=1000.0, unread_age_s=1000.0)
    )
    log.make_visible(TIMEOUT_S)
    log.append(b"first", 1).result(TIMEOUT_S)
    assert log.next_sealed(0.05) is None, "nobody reads"
    visible = threading.Event()

    def read() -> None:
        log.make_visible(TIMEOUT_S)
        visible.set()

    reader = threading.Thread(target=read)
    reader.start()
    segment = log.next_sealed(TIMEOUT_S)
    assert segment is not None
    assert not visible.is_set()
    log.append(b"second", 1).result(TIMEOUT_S)
    another = threading.Thread(target=log.make_visible, args=[TIMEOUT_S])
    another.start()
    another.join(0.05)
    assert another.is_alive(), "what it looks for is in the store's hands"
    log.delete(segment)
    for each in (reader, another):
        each.join(TIMEOUT_S)
    assert visible.is_set()
    assert not another.is_alive()
    # So soon after the last one, a reader does without; an evaluation does not.
    log.make_visible(TIMEOUT_S)
    assert log.next_sealed(0.05) is None
    log.make_visible(0.0, rest_s=0.0)
    assert log.next_sealed(TIMEOUT_S) is not None
    log.close()


class LateReaders(WriteAheadLog):
    """A log whose readers wake up only once the next segment is sealed."""

    def _wait_for(self, name: str, until_s: float) -> None:
        super()._wait_for(name, until_s)
        self._sealing.wait_for(lambda: bool(self._sealed), 0.1)
        # A sealed segment wakes one waiter: the store is to hear of it, too.
        self._sealing.notify()


def test_a_reader_waits_for_what_is_sealed_while_it_waits(folder: Path) -> None:
    log = LateReaders(folder, "node", SOON)
    log.append(b"first", 1).result(TIMEOUT_S)
    first = log.next_sealed(TIMEOUT_S)
    assert first is not None
    log.append(b"second", 1).result(TIMEOUT_S)
    reader = threading.Thread(target=log.make_visible, args=[TIMEOUT_S, 0.0])
    reader.start()
    reader.join(0.05)
    log.delete(first)
    second = log.next_sealed(TIMEOUT_S)
    assert second is not None
    reader.join(0.3)
    assert reader.is_alive(), "it has not seen the second body"
    log.delete(second)
    reader.join(TIMEOUT_S)
    assert not reader.is_alive()
    log.close()


def test_a_reader_waits_no_longer_than_it_wants_for_a_store_that_hangs(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", LogLimits(seal_age_s=0.0, unread_age_s=1000.0))
    log.append(b"first", 1).result(TIMEOUT_S)
    log.make_visible(0.01)
    assert not log.is_drained()
    log.append(b"second", 1).result(TIMEOUT_S)
    begin_s = time.monotonic()
    log.make_visible(1000.0)
    assert time.monotonic() - begin_s < 500.0
    log.close()


def test_a_reader_does_not_wait_for_a_large_segment(folder: Path) -> None:
    limits = LogLimits(seal_age_s=0.0, unread_age_s=1000.0, small_spans=10)
    log = WriteAheadLog(folder, "node", limits)
    log.append(b"large", 10).result(TIMEOUT_S)
    assert log.next_sealed(TIMEOUT_S) is not None
    begin_s = time.monotonic()
    log.make_visible(1000.0)
    assert time.monotonic() - begin_s < 500.0
    log.close()


def test_a_log_that_waits_for_the_store_sleeps(folder: Path) -> None:
    before = threading.enumerate()
    log = WriteAheadLog(folder, "node", SOON)
    log.append(b"first", 1).result(TIMEOUT_S)
    assert log.next_sealed(TIMEOUT_S) is not None
    log.append(b"second", 1).result(TIMEOUT_S)
    (writer,) = [each for each in threading.enumerate() if each not in before]
    # Once it has written, it does not wake: one that looks every so often never rests so long.
    give_up_s = time.monotonic() + TIMEOUT_S
    num_switches = -1
    while num_switches != (num_switches := voluntary_switches(writer)):
        assert time.monotonic() < give_up_s
        time.sleep(10 * SOON.seal_age_s)
    log.close()


def voluntary_switches(thread: threading.Thread) -> int:
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def test_closing_seals_what_was_accepted_and_refuses_what_comes_later(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", NEVER)
    accepted = log.append(b"body", 1)
    log.close()
    accepted.result(0)
    assert segment_files(folder) == [".sealed"]
    assert log.next_sealed(0) is not None
    with pytest.raises(LogFullError, match="shutting down"):
        log.append(b"late", 1)


def test_what_a_crash_left_is_sealed_in_order_without_its_torn_tail(folder: Path) -> None:
    folder.mkdir()
    names = [f"{number:020d}-node" for number in (4, 5, 6)]
    whole = encode_segment(names[1], 5, [b"first"])
    torn = encode_segment(names[1], 5, [b"first", b"second"])[len(whole) : -3]
    (folder / f"{names[1]}.open").write_bytes(whole + torn)
    (folder / f"{names[0]}.sealed").write_bytes(encode_segment(names[0], 4, [b"older"]))
    (folder / f"{names[2]}.open").write_bytes(encode_header(names[2], 6)[:4])
    log = WriteAheadLog(folder, "node", NEVER)
    first = log.next_sealed(0)
    assert first is not None
    assert first.name == names[0]
    log.delete(first)
    second = log.next_sealed(0)
    assert second is not None
    assert second.name == names[1]
    assert second.path.read_bytes() == whole
    log.delete(second)
    assert log.is_drained()
    assert log.recovered.num_torn_bytes == len(torn) + 4
    assert log.recovered.num_damaged == 0
    log.close()


def test_recovery_finds_every_acknowledged_record_wherever_the_last_one_is_cut(
    tmp_path: Path,
) -> None:
    name = "00000000000000000005-node"
    whole = encode_segment(name, 5, [b"first"])
    last = encode_segment(name, 5, [b"first", b"last"])[len(whole) :]
    for num_kept in range(len(last)):
        folder = tmp_path / str(num_kept)
        folder.mkdir()
        (folder / f"{name}.open").write_bytes(whole + last[:num_kept])
        log = WriteAheadLog(folder, "node", NEVER)
        segment = log.next_sealed(0)
        assert segment is not None
        assert segment.path.read_bytes() == whole, num_kept
        log.close()


def test_poison_is_kept_with_its_reason_and_the_rest_keeps_the_segments_name(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", LogLimits(seal_age_s=60.0))
    for body in (b"first", b"poison", b"last"):
        log.append(body, 1).result(TIMEOUT_S)
    log.close()
    segment = log.next_sealed(TIMEOUT_S)
    assert segment is not None
    bodies = read_bodies(segment.path.read_bytes())
    assert b"poison" in bodies
    good = [body for body in bodies if body != b"poison"]
    left = log.part(segment, Isolated(good, [Poison([b"poison"], "Code: 26")]))
    assert left is not None
    assert left.name == segment.name
    assert read_bodies(left.path.read_bytes()) == good
    (kept,) = list_quarantined(folder, SEALED_SUFFIX)
    assert kept.name.startswith(segment.name)
    assert read_bodies(kept.read_bytes()) == [b"poison"]
    assert kept.with_suffix(".reason").read_text() == "Code: 26\n"

    while (waiting := log.next_sealed(0)) is not None:
        log.delete(waiting)
    assert log.num_bytes() == 0
    assert replay_quarantine(folder).refused == 1
    again = WriteAheadLog(folder, "node", NEVER)
    replayed = again.next_sealed(0)
    assert replayed is not None
    assert read_bodies(replayed.path.read_bytes()) == [b"poison"]
    assert replayed.created_ns == segment.created_ns
    assert list((folder / "quarantine").iterdir()) == []
    again.close()


def test_poison_that_is_found_later_does_not_replace_the_first(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", SOON)
    log.append(b"body", 1).result(TIMEOUT_S)
    segment = log.next_sealed(TIMEOUT_S)
    assert segment is not None
    for body in (b"first", b"second"):
        left = log.part(segment, Isolated([b"body"], [Poison([body], "no")]))
        assert left is not None
        segment = left
    log.close()
    kept = list_quarantined(folder, SEALED_SUFFIX)
    assert sorted(read_bodies(path.read_bytes()) for path in kept) == [[b"first"], [b"second"]]


def test_a_segment_of_nothing_but_poison_leaves_the_log(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", SOON)
    log.append(b"poison", 1).result(TIMEOUT_S)
    segment = log.next_sealed(TIMEOUT_S)
    assert segment is not None
    assert log.part(segment, Isolated([], [Poison([b"poison"], "no")])) is None
    assert log.is_drained()
    assert log.num_bytes() == 0
    log.close()


@pytest.fixture
def small_disk() -> Iterator[Callable[[int], None]]:
    """Limits how large a file may grow, which the kernel enforces in the middle of a write."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda num_bytes: resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", range(10, 10 + 2 * (RECORD.size + 100), 37))
def test_a_disk_that_is_full_in_the_middle_of_a_record_loses_nothing_acknowledged(
    folder: Path, small_disk: Callable[[int], None], room: int
) -> None:
    log = WriteAheadLog(folder, "node", NEVER)
    body = b"x" * 100
    small_disk(room)
    acknowledged = 0
    for _ in range(4):
        try:
            log.append(body, 1).result(TIMEOUT_S)
            acknowledged += 1
        except LogWriteError:
            pass
    small_disk(resource.RLIM_INFINITY)
    log.append(body, 1).result(TIMEOUT_S)
    log.close()
    files = [path for path in folder.iterdir() if path.is_file()]
    stored = [one for path in files for one in read_bodies(path.read_bytes())]
    assert stored == [body] * (acknowledged + 1)
    assert log.num_bytes() == sum(path.stat().st_size for path in files)


@pytest.mark.parametrize("call", ["unlink", "ftruncate", "close", "rename"])
@pytest.mark.parametrize("num_before", [0, 1])
def test_a_disk_that_takes_nothing_any_more_does_not_end_the_log(
    folder: Path,
    small_disk: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
    call: str,
    num_before: int,
) -> None:
    """As when a file system is remounted read-only after an error."""
    log = WriteAheadLog(folder, "node", NEVER)
    for _ in range(num_before):
        log.append(b"body", 1).result(TIMEOUT_S)
    small_disk(HEADER.size + num_before * (RECORD.size + 4) + 1)
    real = getattr(os, call)

    def refuse(*arguments: Any, **more: Any) -> None:
        if call == "close":
            real(*arguments)
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as disk:
        disk.setattr(os, call, refuse)
        # The next segment has room for its first record.
        for _ in range(3 if num_before == 0 else 1):
            with pytest.raises(LogWriteError):
                log.append(b"body", 1).result(TIMEOUT_S)
    small_disk(resource.RLIM_INFINITY)
    log.append(b"body", 1).result(TIMEOUT_S)
    log.close()
    again = WriteAheadLog(folder, "node", NEVER)
    stored = [
        body
        for segment in again.recovered.segments
        for body in read_bodies(segment.path.read_bytes(), segment.name)
    ]
    again.close()
    assert stored == [b"body"] * (num_before + 1)


def test_a_full_disk_is_logged_once_and_not_per_request(
    folder: Path, small_disk: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    log = WriteAheadLog(folder, "node", NEVER)
    for _ in range(2):
        caplog.clear()
        small_disk(0)
        for _ in range(20):
            with pytest.raises(LogWriteError):
                log.append(b"body", 1).result(TIMEOUT_S)
        small_disk(resource.RLIM_INFINITY)
        log.append(b"body", 1).result(TIMEOUT_S)
        assert [record.message for record in caplog.records] == [
            "log write failed error=[Errno 27] File too large"
        ]
    log.close()


def test_a_sender_that_gave_up_does_not_stop_the_log(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", NEVER)
    abandoned = [log.append(b"x" * 100_000, 1) for _ in range(50)]
    for future in abandoned:
        future.cancel()
    log.append(b"body", 1).result(TIMEOUT_S)
    log.close()
    assert log.num_bytes() > 0


def test_a_disk_that_refuses_is_an_error_for_the_sender_and_not_the_end(folder: Path) -> None:
    log = WriteAheadLog(folder, "node", NEVER)
    folder.rmdir()
    with pytest.raises(LogWriteError, match="No such file"):
        log.append(b"body", 1).result(TIMEOUT_S)
    os.mkdir(folder)
    log.append(b"body", 1).result(TIMEOUT_S)
    log.close()
