"""Measure what pricing adds to an insert: CPU per span without prices, and with 2 and 20 of them.

Inserts the spans of bench/ingest.py, one in four an LLM request, into an embedded store, in turns.
Compares the CPU of the process. Prints a table and writes JSON.

    python bench/price_insert.py --json build/price_insert.json
"""

import argparse
import datetime as dt
import io
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.ingest import build_body, make_unique
from bench.report import write_report
from evenkeel.prices.price_file import ModelPrice, PriceFile
from evenkeel_collector.log.segment_format import encode_segment
from evenkeel_collector.store.storage import insert_segment, open_embedded

SPANS = 16_384
READ: dict[str, Any] = {
    "source": "made up for this measurement",
    "read": dt.date(2026, 11, 25),
    "valid_from": dt.datetime(2026, 1, 1, tzinfo=dt.UTC),
}


def price_file(num: int) -> PriceFile:
    """Return a file with so many prices; the last one is that of the bench's requests."""
    names = [f"model-{number}" for number in range(num - 1)] + ["dem*"] * bool(num)
    return PriceFile(
        model=tuple(
            ModelPrice(name=name, input=1, cached_input=0.5, output=4, **READ) for name in names
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", dest="out", type=Path, default=Path("build/price_insert.json"))
    args = parser.parse_args()
    files = {num: price_file(num) for num in (0, 2, 20)}
    took: dict[int, list[float]] = {num: [] for num in files}
    body = build_body(SPANS, 1)
    with tempfile.TemporaryDirectory() as folder:
        storage = open_embedded(Path(folder))
        client = storage.connect()
        for turn in range(args.rounds + 1):
            for num, file in files.items():
                storage.prices.use(file)
                segment = io.BytesIO(encode_segment("bench", time.time_ns(), [make_unique(body)]))
                began = time.process_time()
                insert_segment(client, storage.insert_settings, f"{turn}-{num}", segment)
                spent_us = (time.process_time() - began) / SPANS * 1e6
                if turn:  # the first insert of each kind is not like the others
                    took[num].append(spent_us)
        client.close()
        storage.close()
    base = statistics.median(took[0])
    found = {
        num: {
            "cpu_us_a_span": round(statistics.median(each), 2),
            "ratio": round(statistics.median(b / a for a, b in zip(took[0], each, strict=True)), 3),
        }
        for num, each in took.items()
    }
    write_report(args.out, found)
    print(f"{SPANS:,} spans an insert, {args.rounds} rounds, without prices {base:.1f} µs a span\n")
    print("| prices | CPU per span | of that without prices |\n|---|---|---|")
    for num, each in found.items():
        print(f"| {num} | {each['cpu_us_a_span']:.1f} µs | {each['ratio']:.3f} |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
