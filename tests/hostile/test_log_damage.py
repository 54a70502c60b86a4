"""A damaged log: whatever is intact is stored once, and what is not is kept, and said."""

import json
import logging
import os
import random
import signal
import tempfile
from collections import Counter
from pathlib import Path

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel_collector.log.quarantine import (
    DAMAGED_SUFFIX,
    SEALED_SUFFIX,
    list_quarantined,
    replay_quarantine,
)
from evenkeel_collector.log.recovery import OPEN_SUFFIX, recover
from evenkeel_collector.log.segment_format import (
    HEADER,
    MAX_SEGMENT_BYTES,
    encode_segment,
    read_bodies,
    read_contents,
)
from tests.fixtures.collector_process import (
    collector_environment,
    running_collector,
    start_collector,
    wait_for,
)
from tests.fixtures.log_payload import logs_request
from tests.fixtures.otlp_payload import trace_request
from tests.fixtures.python_process import run_python
from tests.hostile.log_damage import NODE, damage, intact_bodies

CREATED_NS = 1_795_168_800_000_000_000
NAME = f"{CREATED_NS:020d}-{NODE}"
SUFFIXES = (OPEN_SUFFIX, SEALED_SUFFIX)


def records(rng: random.Random) -> list[bytes]:
    """Return bodies that differ; some hold a whole segment, as a sender could send one."""
    bodies = []
    for number in range(rng.randint(1, 12)):
        body = number.to_bytes(2, "big") + rng.randbytes(rng.choice((1, 20, 300, 3000)))
        if rng.random() < 0.2:
            body += encode_segment(NAME + "f", CREATED_NS, [b"forged"])
        bodies.append(body)
    return bodies


@given(st.integers(0, 2**32), st.sampled_from(SUFFIXES))
@settings(max_examples=150, deadline=None)
def test_random_damage_costs_no_intact_record_and_stores_nothing_else(
    seed: int, suffix: str
) -> None:
    rng = random.Random(seed)
    bodies = records(rng)
    damaged = damage(encode_segment(NAME, CREATED_NS, bodies), rng)
    intact = intact_bodies(NAME, CREATED_NS, bodies, damaged)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / f"{NAME}{suffix}").write_bytes(damaged)
        logging.disable(logging.ERROR)
        try:
            found = recover(folder)
            stored = [
                body
                for segment in found.segments
                for body in read_bodies(segment.path.read_bytes(), segment.name)
            ]
            assert Counter(stored) == Counter(intact)
            kept = list_quarantined(folder, DAMAGED_SUFFIX)
            assert sum(path.stat().st_size for path in kept) >= found.num_damaged_bytes
            again = recover(folder)
            assert (again.segments, again.num_damaged) == (found.segments, 0)
            # Put together, the pieces of a record may be whole again; none is there twice.
            for path in folder.glob(f"*{SEALED_SUFFIX}"):
                path.unlink()
            replay_quarantine(folder)
            replayed = [
                body
                for path in folder.glob(f"*{SEALED_SUFFIX}")
                for body in read_bodies(path.read_bytes(), path.stem)
            ]
        finally:
            logging.disable(logging.NOTSET)
        assert Counter(stored + replayed) <= Counter(bodies)


def test_a_torn_tail_is_a_warning_and_damage_is_an_error_that_says_what_was_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = encode_segment(NAME, CREATED_NS, [b"first", b"second"])
    for label, data, level in (
        ("torn", whole[:-1], logging.WARNING),
        ("flipped", whole[:-9] + b"?" + whole[-8:], logging.ERROR),
        ("zeros", whole[:-3] + bytes(3), logging.ERROR),
        ("length beyond the file", whole[:-15] + b"\xff" + whole[-14:], logging.ERROR),
    ):
        folder = tmp_path / label
        folder.mkdir()
        (folder / f"{NAME}{OPEN_SUFFIX}").write_bytes(data)
        caplog.clear()
        (segment,) = recover(folder).segments
        assert read_bodies(segment.path.read_bytes()) == [b"first"], label
        (record,) = caplog.records
        assert (record.levelno, "cut torn tail" in record.getMessage()) == (
            level,
            label == "torn",
        ), label
        kept = list_quarantined(folder, DAMAGED_SUFFIX)
        assert len(kept) == (label != "torn"), label
        assert all(str(path) in record.getMessage() for path in kept)


def test_a_mended_damaged_file_is_replayed_and_the_rest_stays(tmp_path: Path) -> None:
    whole = encode_segment(NAME, CREATED_NS, [b"first", b"second", b"third"])
    second, third = whole.index(b"second"), whole.index(b"third")
    damaged = bytearray(whole)
    damaged[second] ^= 1
    damaged[third] ^= 1
    (tmp_path / f"{NAME}{SEALED_SUFFIX}").write_bytes(damaged)
    recover(tmp_path)
    (kept,) = list_quarantined(tmp_path, DAMAGED_SUFFIX)
    assert replay_quarantine(tmp_path).records == 0
    kept.write_bytes(kept.read_bytes().replace(b"recond", b"second"))
    replayed = replay_quarantine(tmp_path)
    assert (replayed.records, replayed.damaged_files_left) == (1, 1)
    bodies = [read_bodies(s.path.read_bytes(), s.name) for s in recover(tmp_path).segments]
    assert sorted(bodies) == [[b"first"], [b"second"]]
    (left,) = list_quarantined(tmp_path, DAMAGED_SUFFIX)
    assert b"uhird" in left.read_bytes()
    assert read_contents(left.read_bytes(), left.stem).created_ns == CREATED_NS


def service_body(service: str) -> bytes:
    request = {"evenkeel.status": "ok", "gen_ai.request.model": "m"}
    return trace_request(3, request, service=service).SerializeToString()


def test_a_collector_starts_on_a_ruined_log_and_stores_all_that_is_intact(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.mkdir()
    intact = Counter[str]()

    def put(number: int, change: object, suffix: str, lost: tuple[int, ...]) -> None:
        name = f"{CREATED_NS + number:020d}-{NODE}"
        services = [f"{number}-{each}" for each in range(4)]
        data = encode_segment(name, CREATED_NS + number, [service_body(each) for each in services])
        (log / f"{name}{suffix}").write_bytes(change(data))  # type: ignore[operator]
        intact.update({each: 3 for i, each in enumerate(services) if i not in lost})

    def at(place: bytes, by: bytes) -> object:
        return lambda data: data.replace(place, by, 1)

    put(1, at(b"1-1", b"1-?"), OPEN_SUFFIX, (1,))
    put(2, at(b"2-1", b"2-?"), SEALED_SUFFIX, (1,))
    put(3, lambda data: bytes(HEADER.size) + data[HEADER.size :], OPEN_SUFFIX, ())
    put(4, lambda data: data + data[HEADER.size :], SEALED_SUFFIX, ())
    put(5, lambda data: data[:-5], SEALED_SUFFIX, (3,))
    put(6, lambda data: data[:-5] + bytes(4096), OPEN_SUFFIX, (3,))
    put(7, lambda data: b"", SEALED_SUFFIX, (0, 1, 2, 3))
    put(8, lambda data: bytes(len(data)), OPEN_SUFFIX, (0, 1, 2, 3))
    (log / f"other{SEALED_SUFFIX}").write_bytes(b"\x89PNG of another program" * 100)
    (log / f"folder{SEALED_SUFFIX}").mkdir()
    (log / "folder.draft").mkdir()
    os.mkfifo(log / f"pipe{OPEN_SUFFIX}")
    # Reading it fails as a bad disk does, with EIO.
    (log / f"bad-disk{SEALED_SUFFIX}").symlink_to("/proc/self/mem")
    with (log / f"huge{SEALED_SUFFIX}").open("wb") as file:
        file.truncate(MAX_SEGMENT_BYTES + 1)

    stored = "SELECT ServiceName, count() FROM spans GROUP BY 1"
    rolled = "SELECT service, sum(num_requests) FROM requests_1m GROUP BY 1"
    with running_collector(tmp_path) as collector:
        body = service_body("sent")
        answer = httpx.post(
            f"{collector.http_url}/v1/traces", content=body,
            headers={"content-type": "application/x-protobuf"},
        )  # fmt: skip
        assert answer.status_code == 200
        intact["sent"] = 3
        # The rollups come last.
        wait_for(lambda: dict(collector.rows(rolled)) == intact)
        assert dict(collector.rows(stored)) == intact
        metrics = httpx.get(f"{collector.http_url}/metrics").text
        assert "evenkeel_collector_segments_damaged_total 14.0" in metrics
        assert 'evenkeel_collector_quarantine_files{kind="damaged"} 9.0' in metrics
        said = collector.stderr()
        assert said.count("log segment damaged") == 10
        assert said.count("cannot read log file, leaving it in place") == 4
        for each in ("folder.sealed", "folder.draft", "pipe.open", "bad-disk.sealed"):
            assert each in said
        assert "Traceback" not in said
    assert (log / f"bad-disk{SEALED_SUFFIX}").is_symlink()

    command = ("store", "replay-quarantine", "--json", "--data-dir", str(tmp_path))
    done = run_python("-m", "evenkeel", *command, env=collector_environment())
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"refused": 0, "records": 0, "damaged_files_left": 9}


def test_a_segment_that_is_damaged_while_it_waits_costs_one_record(tmp_path: Path) -> None:
    """What a disk spoils after the segment was sealed is found before it is inserted."""
    (tmp_path / "evenkeel.toml").write_text(f"[collector]\nmin_free_bytes = {1 << 60}\n")
    collector = start_collector(tmp_path)
    try:
        for number in range(3):
            httpx.post(
                f"{collector.http_url}/v1/traces", content=service_body(f"name-{number}"),
                headers={"content-type": "application/x-protobuf"},
            ).raise_for_status()  # fmt: skip
        for number in range(2):
            httpx.post(
                f"{collector.http_url}/v1/logs",
                content=logs_request(3, service=f"logs-{number}").SerializeToString(),
                headers={"content-type": "application/x-protobuf"},
            ).raise_for_status()
        # A query has the segment sealed.
        wait_for(
            lambda: (
                collector.rows("SELECT count() FROM logs") == [(0,)]
                and holds(tmp_path / "log", b"logs-1")
            )
        )
        # It would put another file in the place of one that is half spoilt.
        collector.process.send_signal(signal.SIGSTOP)
        for text in (b"name-0", b"logs-0"):
            (path,) = (
                each
                for each in (tmp_path / "log").glob(f"*{SEALED_SUFFIX}")
                if text in each.read_bytes()
            )
            with path.open("r+b") as file:
                file.seek(file.read().index(text))
                file.write(text[:4].upper())
        collector.process.send_signal(signal.SIGCONT)
        wait_for(lambda: "log segment damaged" in collector.stderr())
    finally:
        collector.kill()
    (tmp_path / "evenkeel.toml").write_text("")
    with running_collector(tmp_path) as collector:
        wait_for(
            lambda: (
                dict(collector.rows("SELECT ServiceName, count() FROM spans GROUP BY 1"))
                == {"name-1": 3, "name-2": 3}
            )
        )
        wait_for(
            lambda: (
                collector.rows("SELECT ServiceName, count() FROM logs GROUP BY 1")
                == [("logs-1", 3)]
            )
        )


def holds(folder: Path, text: bytes) -> bool:
    """Whether a sealed segment of a log has this text."""
    return any(text in path.read_bytes() for path in folder.glob(f"*{SEALED_SUFFIX}"))
