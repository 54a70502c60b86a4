"""Check that random damage to log segments never costs an intact record.

Each segment is damaged like by disks, power failures and other programs, and recovered like by a
starting collector. Some are also given to real collectors, whose stores must have each intact
record exactly once. Prints a table, writes JSON, exits 1 if an intact record is lost or anything
else is stored.

    python bench/hostile_log.py                                # 1,000 segments, a few minutes
    python bench/hostile_log.py --segments 50 --in-store 5     # a smoke run
"""

import argparse
import logging
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from bench.report import write_report
from evenkeel_collector.log.quarantine import (
    DAMAGED_SUFFIX,
    SEALED_SUFFIX,
    list_quarantined,
    replay_quarantine,
)
from evenkeel_collector.log.recovery import OPEN_SUFFIX, Recovered, recover
from evenkeel_collector.log.segment_format import encode_segment, read_bodies
from tests.fixtures.collector_process import running_collector
from tests.fixtures.otlp_payload import trace_request
from tests.hostile.log_damage import NODE, damage, intact_bodies

FIRST_NS = 1_795_168_800_000_000_000
SPANS_A_BODY = 2
STORE_TIMEOUT_S = 300
# Figures that must be 0.
BAD = ("lost", "stored_damaged", "stored_twice", "not_kept", "lost_in_store", "wrong_in_store")


def bodies_of(number: int, rng: random.Random) -> list[bytes]:
    """Return bodies that differ, some with a whole segment in an attribute."""
    bodies = []
    for index in range(rng.randint(1, 40)):
        attributes = {"evenkeel.status": "ok", "text": rng.randbytes(rng.choice((5, 400))).hex()}
        if rng.random() < 0.1:
            forged = trace_request(1, service="forged").SerializeToString()
            attributes["raw"] = encode_segment("forged", FIRST_NS, [forged])
        request = trace_request(SPANS_A_BODY, attributes, service=f"{number}-{index}")
        bodies.append(request.SerializeToString())
    return bodies


def stored_in(found: Recovered) -> Counter[bytes]:
    return Counter(
        body
        for segment in found.segments
        for body in read_bodies(segment.path.read_bytes(), segment.name)
    )


def damage_one(folder: Path, number: int, rng: random.Random, figures: Counter[str]) -> bytes:
    """Recover one damaged segment alone; return its damaged bytes."""
    name = f"{FIRST_NS + number:020d}-{NODE}"
    bodies = bodies_of(number, rng)
    damaged = damage(encode_segment(name, FIRST_NS + number, bodies), rng)
    intact = Counter(intact_bodies(name, FIRST_NS + number, bodies, damaged))
    folder.mkdir()
    (folder / f"{name}{rng.choice((OPEN_SUFFIX, SEALED_SUFFIX))}").write_bytes(damaged)
    found = recover(folder)
    stored = stored_in(found)
    kept = sum(path.stat().st_size for path in list_quarantined(folder, DAMAGED_SUFFIX))
    figures["records"] += len(bodies)
    figures["intact"] += intact.total()
    figures["lost"] += (intact - stored).total()
    figures["stored_damaged"] += sum(count for body, count in stored.items() if body not in bodies)
    figures["stored_twice"] += sum(count - 1 for count in stored.values())
    figures["not_kept"] += kept < found.num_damaged_bytes
    figures["damaged_bytes"] += found.num_damaged_bytes
    figures["torn_bytes"] += found.num_torn_bytes
    for segment in found.segments:
        segment.path.unlink()
    figures["replayed_records"] += replay_quarantine(folder).records
    figures["stored_twice"] += (stored & stored_in(recover(folder))).total()
    return damaged


def store(folder: Path, num_segments: int, rng: random.Random, figures: Counter[str]) -> None:
    """Have a real collector store damaged segments, all at once."""
    log = folder / "log"
    log.mkdir(parents=True)
    expected = Counter[str]()
    for number in range(num_segments):
        name = f"{FIRST_NS + number:020d}-{NODE}"
        bodies = bodies_of(number, rng)
        damaged = damage(encode_segment(name, FIRST_NS + number, bodies), rng)
        (log / f"{name}{rng.choice((OPEN_SUFFIX, SEALED_SUFFIX))}").write_bytes(damaged)
        intact = intact_bodies(name, FIRST_NS + number, bodies, damaged)
        expected.update(f"{number}-{bodies.index(body)}" for body in intact)
    with running_collector(folder) as collector:
        deadline_s = time.monotonic() + STORE_TIMEOUT_S
        while any(log.glob("*.*")) and time.monotonic() < deadline_s:
            time.sleep(0.1)
        rows = collector.rows("SELECT ServiceName, count() FROM spans GROUP BY 1")
    found = Counter(dict(rows))
    wanted = Counter({name: count * SPANS_A_BODY for name, count in expected.items()})
    figures["segments_in_store"] += num_segments
    figures["lost_in_store"] += (wanted - found).total()
    figures["wrong_in_store"] += (found - wanted).total()


def main() -> int:
    """Run, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--segments", type=int, default=1000)
    parser.add_argument("--in-store", type=int, default=200, help="segments given to a collector")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument(
        "--json", dest="output", type=Path, default=Path("build/bench/hostile_log.json")
    )
    args = parser.parse_args()
    logging.disable(logging.ERROR)  # each damaged segment is one, by intent
    rng = random.Random(args.seed)
    figures = Counter[str](dict.fromkeys(BAD, 0))
    with tempfile.TemporaryDirectory(prefix="hostile-log-") as name:
        for number in range(args.segments):
            damage_one(Path(name) / str(number), number, rng, figures)
        figures["segments"] = args.segments
        if args.in_store:
            store(Path(name) / "store", args.in_store, rng, figures)
    is_good = not any(figures[key] for key in BAD)
    for key, value in sorted(figures.items()):
        print(f"{key:20} {value:>12,}{'  BAD' if key in BAD and value else ''}")
    write_report(args.output, dict(figures))
    print(f"{args.output}; no intact record lost, nothing damaged stored: {is_good}")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
