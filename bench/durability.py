"""Check that the collector loses and duplicates nothing: killed, abused, without store or disk.

Starts real `evenkeel collect` processes in a temporary folder and counts what was acknowledged
against what can be queried. Prints a table, writes JSON, exits 1 if anything is lost or duplicated.

    python bench/durability.py                                         # the full run, near an hour
    python bench/durability.py --modes kill --kills 50 --seed 4        # a piece of it
    python bench/durability.py --kills 5 --bodies 2000 --stopped-s 5   # a smoke run
"""

import argparse
import logging
import random
import resource
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from evenkeel_collector.log.recovery import OPEN_SUFFIX, recover
from evenkeel_collector.log.segment_format import RECORD, read_bodies
from tests.fixtures.clickhouse_server import clickhouse_server
from tests.fixtures.collector_process import (
    CollectorProcess,
    running_collector,
    running_unread_collector,
    start_collector,
)
from tests.fixtures.log_payload import logs_request
from tests.fixtures.otlp_payload import mutate, trace_request

PROTOBUF = {"content-type": "application/x-protobuf"}
REQUEST = {"evenkeel.status": "ok", "gen_ai.request.model": "m"}
NUM_SENDERS = 4
SPANS_A_REQUEST = 40
DRAIN_S = 300
MODES = ("kill", "bodies", "stopped", "disk", "torn")
# Figures that must be 0.
BAD = ("_lost", "_that_lost", "_doubled", "_5xx", "crashed", "quarantined", "_too_much", "damaged")
# Memory flat: between the first quarter of the mutated bodies and the last.
MAX_GROWN_MIB = 64
# Half of the senders send log records; each record is a row of `logs`.
OF_LOGS = "-logs"
COUNTS = {
    "logs": "SELECT ServiceName, count() FROM logs GROUP BY 1",
    "spans": "SELECT ServiceName, count() FROM spans GROUP BY 1",
    "requests": "SELECT service, count() FROM requests GROUP BY 1",
    "requests_1m": "SELECT service, sum(num_requests) FROM requests_1m GROUP BY 1",
    "requests_1h": "SELECT service, sum(num_requests) FROM requests_1h GROUP BY 1",
}


class Sender(threading.Thread):
    """Sends uniquely named requests, and records which were acknowledged.

    Args:
        prefix: Of the requests' names.
        url: The collector's.
        suffix: Of the names; OF_LOGS if log records are sent.
    """

    def __init__(self, prefix: str, url: str, suffix: str = "") -> None:
        super().__init__()
        self._prefix, self._url, self._suffix = prefix, url, suffix
        self.sent: set[str] = set()
        self.acknowledged: set[str] = set()
        self.statuses = Counter[int]()
        self.is_stopping = threading.Event()

    def run(self) -> None:
        """Send until told to stop, or until the collector is gone."""
        with httpx.Client(timeout=30) as client:
            while not self.is_stopping.is_set():
                name = f"{self._prefix}-{len(self.sent)}{self._suffix}"
                if self._suffix == OF_LOGS:
                    path, build = "/v1/logs", logs_request
                else:
                    path, build = "/v1/traces", trace_request
                body = build(SPANS_A_REQUEST, REQUEST, service=name).SerializeToString()
                self.sent.add(name)
                try:
                    answer = client.post(f"{self._url}{path}", content=body, headers=PROTOBUF)
                except httpx.HTTPError:
                    return
                self.statuses[answer.status_code] += 1
                if answer.status_code == 200:
                    self.acknowledged.add(name)
                else:
                    self.is_stopping.wait(0.1)


def start_senders(label: str, url: str) -> list[Sender]:
    senders = [
        Sender(f"{label}-{number}", url, OF_LOGS if number % 2 else "")
        for number in range(NUM_SENDERS)
    ]
    for sender in senders:
        sender.start()
    return senders


def wait_acknowledged(senders: list[Sender]) -> None:
    """Wait until each sender that still sends has something acknowledged."""
    deadline = time.monotonic() + DRAIN_S
    while time.monotonic() < deadline:
        if all(sender.acknowledged for sender in senders if sender.is_alive()):
            return
        time.sleep(0.02)


def stop_senders(senders: list[Sender], sent: set[str], acknowledged: set[str]) -> None:
    for sender in senders:
        sender.is_stopping.set()
    for sender in senders:
        sender.join()
        sent |= sender.sent
        acknowledged |= sender.acknowledged


def wait_drained(data_dir: Path, collector: CollectorProcess) -> None:
    deadline = time.monotonic() + DRAIN_S
    while any((data_dir / "log").glob("*.*")) and time.monotonic() < deadline:
        # The last few spans wait for a reader (docs/decisions/0200).
        collector.rows("SELECT 1")
        time.sleep(0.2)


def compare(rows: Any, sent: set[str], acknowledged: set[str]) -> dict[str, int]:
    """Return the number of lost and of duplicated spans and log records, by table."""
    records = {name for name in acknowledged if name.endswith(OF_LOGS)}
    result = {
        "acknowledged_spans": len(acknowledged - records) * SPANS_A_REQUEST,
        "acknowledged_records": len(records) * SPANS_A_REQUEST,
    }
    for table, sql in COUNTS.items():
        found = dict(rows(sql))
        result[f"{table}_lost"] = sum(
            max(SPANS_A_REQUEST - found.get(name, 0), 0)
            for name in (records if table == "logs" else acknowledged - records)
        )
        result[f"{table}_doubled"] = sum(
            max(count - SPANS_A_REQUEST, 0) for name, count in found.items() if name in sent
        )
    return result


def kill(folder: Path, num_kills: int, rng: random.Random) -> dict[str, int]:
    """Kill the collector at random moments under load."""
    sent: set[str] = set()
    acknowledged: set[str] = set()
    for number in range(num_kills):
        collector = start_collector(folder)
        senders = start_senders(str(number), collector.http_url)
        if not acknowledged:
            # On a busy machine the first kill could come before there is anything to lose.
            wait_acknowledged(senders)
        time.sleep(rng.uniform(0.1, 1.5))
        collector.kill()
        stop_senders(senders, sent, acknowledged)
        print(f"\rkill {number + 1} of {num_kills}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    with running_collector(folder) as collector:
        wait_drained(folder, collector)
        damaged = len(list((folder / "log").glob("quarantine/*.damaged")))
        found = compare(collector.rows, sent, acknowledged)
        return {"kills": num_kills, "segments_damaged": damaged, **found}


def abuse(folder: Path, num_bodies: int, rng: random.Random) -> dict[str, int]:
    """Send mutated bodies; none may crash the collector, be its fault, or make it grow."""
    request = trace_request(
        3, {**REQUEST, "s": "text", "list": [1, "a"], "map": {"x": [1]}, "d": 0.5, "raw": b"\0"}
    )
    good = request.SerializeToString()
    statuses = Counter[int]()
    with running_collector(folder) as collector, httpx.Client(timeout=30) as client:
        process = psutil.Process(collector.process.pid)
        early_bytes = 0
        for number in range(num_bodies):
            answer = client.post(
                f"{collector.http_url}/v1/traces", content=mutate(good, rng), headers=PROTOBUF
            )
            statuses[answer.status_code // 100] += 1
            if number == num_bodies // 4:
                # After an insert: the first one sets up what all others use, which stays.
                client.post(f"{collector.http_url}/v1/traces", content=good, headers=PROTOBUF)
                wait_drained(folder, collector)
                early_bytes = process.memory_info().rss
        wait_drained(folder, collector)
        grown = process.memory_info().rss - early_bytes
        is_alive = collector.process.poll() is None
        quarantined = len(list((folder / "log").glob("quarantine/*.sealed")))
    return {
        "bodies": num_bodies,
        "accepted": statuses[2],
        "refused": statuses[4],
        "failed_5xx": statuses[5],
        "crashed": int(not is_alive),
        "quarantined": quarantined,
        "memory_grown_mib": grown >> 20,
        "memory_grown_too_much": int(grown >> 20 > MAX_GROWN_MIB),
    }


def stop_store(folder: Path, stopped_s: float) -> dict[str, int]:
    """Stop the store under load and start it again."""
    sent: set[str] = set()
    acknowledged: set[str] = set()
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
    folder.mkdir()
    with clickhouse_server(port, folder / "server") as server:
        data_dir = folder / "data"
        with running_collector(data_dir, ["--clickhouse", server.url]) as collector:
            senders = start_senders("stopped", collector.http_url)
            time.sleep(1)
            server.kill()
            time.sleep(stopped_s)
            waiting = sum(path.stat().st_size for path in (data_dir / "log").glob("*.*"))
            server.start()
            time.sleep(1)
            stop_senders(senders, sent, acknowledged)
            wait_drained(data_dir, collector)
            told_to_wait = sum(sender.statuses[503] for sender in senders)
            return {
                "stopped_s": int(stopped_s),
                "log_mib": waiting >> 20,
                "told_to_wait": told_to_wait,
                **compare(server.rows, sent, acknowledged),
            }


def fill_disk(folder: Path, full_s: float) -> dict[str, int]:
    """Truncate the log's writes under load, as a full disk does, with a working store."""
    sent: set[str] = set()
    acknowledged: set[str] = set()
    config = leave_store_alone(folder)
    with running_collector(folder) as collector:
        process = psutil.Process(collector.process.pid)
        _, hard = process.rlimit(resource.RLIMIT_FSIZE)
        senders = start_senders("disk", collector.http_url)
        for num_bytes in (200_000, 1000, 50_000, 100):
            time.sleep(full_s / 2)
            process.rlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
            time.sleep(full_s)
            process.rlimit(resource.RLIMIT_FSIZE, (hard, hard))
        time.sleep(1)
        stop_senders(senders, sent, acknowledged)
    told_to_wait = sum(sender.statuses[503] for sender in senders)
    config.write_text("", encoding="utf-8")
    with running_collector(folder) as collector:
        wait_drained(folder, collector)
        return {"told_to_wait": told_to_wait, **compare(collector.rows, sent, acknowledged)}


def leave_store_alone(folder: Path) -> Path:
    """Make the collector of this folder keep everything in its log; return its configuration."""
    folder.mkdir(parents=True)
    config = folder / "evenkeel.toml"
    config.write_text(f"[collector]\nmin_free_bytes = {1 << 60}\n", encoding="utf-8")
    return config


def tear(folder: Path, num_restarts: int, rng: random.Random) -> dict[str, int]:
    """Cut a killed collector's log at every byte of its last record.

    What a cut leaves is recovered as a starting collector does it; some of the cut logs are given
    to real collectors, whose stores must hold what was acknowledged before the last request.
    """
    config = leave_store_alone(folder / "whole")
    data_dir = folder / "whole"
    names = [f"torn-{number}" for number in range(5)]
    with running_unread_collector(data_dir) as collector, httpx.Client(timeout=30) as client:
        for name in names:
            body = trace_request(SPANS_A_REQUEST, REQUEST, service=name).SerializeToString()
            client.post(f"{collector.http_url}/v1/traces", content=body, headers=PROTOBUF)
        collector.kill()
    config.write_text("", encoding="utf-8")
    (path,) = (data_dir / "log").glob(f"*{OPEN_SUFFIX}")
    data = path.read_bytes()
    whole = read_bodies(data, path.stem)
    begin = len(data) - len(whole[-1]) - RECORD.size
    num_lost = 0
    cut_folder = folder / "cut"
    cut_folder.mkdir()
    for end in range(begin, len(data)):
        (cut_folder / path.name).write_bytes(data[:end])
        (segment,) = recover(cut_folder).segments
        num_lost += read_bodies(segment.path.read_bytes(), path.stem) != whole[:-1]
        segment.path.unlink()
    result = {"cuts": len(data) - begin, "cuts_that_lost": num_lost}
    acknowledged = set(names[:-1])
    for number in range(num_restarts):
        each = folder / str(number)
        (each / "log").mkdir(parents=True)
        (each / "log" / path.name).write_bytes(data[: rng.randrange(begin, len(data))])
        with running_collector(each) as collector:
            wait_drained(each, collector)
            for key, value in compare(collector.rows, set(names), acknowledged).items():
                result[key] = result.get(key, 0) + value
    return result


def main() -> int:
    """Run, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--modes", nargs="+", choices=MODES, default=MODES)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--bodies", type=int, default=100_000)
    parser.add_argument("--stopped-s", type=float, default=600)
    parser.add_argument("--full-s", type=float, default=2, help="of a full disk, four times")
    parser.add_argument(
        "--restarts", type=int, default=10, help="of torn logs, in whole collectors"
    )
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument(
        "--json", "--output", dest="output", type=Path, default=Path("build/bench/durability.json")
    )
    args = parser.parse_args()
    logging.disable(logging.WARNING)  # each cut is one, by intent
    rng = random.Random(args.seed)
    results: dict[str, dict[str, int]] = {}
    with tempfile.TemporaryDirectory(prefix="durability-") as name:
        folder = Path(name)
        if "kill" in args.modes:
            results["kill -9"] = kill(folder / "kill", args.kills, rng)
        if "bodies" in args.modes:
            results["mutated bodies"] = abuse(folder / "abuse", args.bodies, rng)
        if "stopped" in args.modes:
            results["store stopped"] = stop_store(folder / "stop", args.stopped_s)
        if "disk" in args.modes:
            results["disk full"] = fill_disk(folder / "disk", args.full_s)
        if "torn" in args.modes:
            results["torn log"] = tear(folder / "torn", args.restarts, rng)
    is_good = True
    for label, figures in results.items():
        print(f"\n{label}")
        for key, value in figures.items():
            is_bad = bool(value) and key.endswith(BAD)
            is_good &= not is_bad
            print(f"  {key:22} {value:>14,}{'  BAD' if is_bad else ''}")
    write_report(args.output, results)
    print(f"\n{args.output}; nothing lost, nothing doubled: {'yes' if is_good else 'NO'}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
