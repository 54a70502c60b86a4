"""Fill a store with a day of requests for bench/dashboard.py, in repeatable pieces.

    python bench/dashboard_store.py --store build/bench/dashboard --seconds 500

Run it until it reports that all requests are stored. They are spread evenly from 24 hours before
the first run to a few hours after the last, so that the store has a full day before any time in
these hours. Run it again before a later measurement.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

STORE = Path("build/bench/dashboard")
REQUESTS_A_DAY = 20_000_000
CHUNK = 500_000
DAY_S = 86_400
AHEAD_S = 4 * 3_600
SLOS = """\
apiVersion: openslo/v1
kind: SLO
metadata: {name: chat-ttft}
spec:
  service: chat
  indicator: {metric: ttft, select: {slo_class: interactive}}
  objectives: [{op: lte, value: 0.9, target: 0.9}]
  timeWindow: [{duration: 30d, isRolling: true}]
"""
# Two models, six tenants, two classes, six prompt versions; 3% errors; a quarter drafted; three of
# four in a conversation; latencies log-normal.
INSERT = """INSERT INTO requests (time, trace_id, span_id, service, operation, request_id, model,
    tenant, session_id, slo_class, route, prompt_name, prompt_version, status, finish_reason,
    queue_s, prefill_s, decode_s, ttft_s, tpot_s, itl_p50_s, itl_p99_s, stall_s, e2e_s,
    input_tokens, cached_tokens, output_tokens, drafted_tokens, accepted_tokens,
    drafted_by_position, accepted_by_position, sample_weight)
WITH
    exp(randNormal(-4.1, 1.2)) AS queue, exp(randNormal(-1.8, 0.6)) AS prefill,
    exp(randNormal(0.5, 0.7)) AS decode, number % 4 = 0 AS is_drafted, number % 33 = 0 AS has_failed
SELECT
    fromUnixTimestamp64Nano(toInt64({begin_ns} + number * {gap_ns}), 'UTC'),
    lower(hex(sipHash128(number))), lower(hex(sipHash64(number))), 'fleet', 'chat',
    concat('chatcmpl-', lower(hex(sipHash64(number, 1)))), concat('model-', toString(number % 2)),
    concat('tenant-', toString(number % 6)),
    if(number % 4 = 3, NULL, concat('session-', toString(intDiv(number, 40)))),
    if(number % 5 = 0, 'batch', 'interactive'), '/v1/chat/completions',
    concat('prompt-', toString(number % 3)), toString(1 + number % 2),
    if(has_failed, 'error', 'ok'), if(has_failed, 'error', if(number % 7 = 0, 'length', 'stop')),
    queue, prefill, decode, queue + prefill, decode / 100, decode / 90, decode / 40, decode / 20,
    queue + prefill + decode, 50 + number % 900, 16 * (number % 4), 20 + number % 200,
    if(is_drafted, 120, NULL), if(is_drafted, 70, NULL),
    if(is_drafted, [40, 40, 40], []), if(is_drafted, [35, 22, 13], []), 1
FROM numbers({first}, {count})
SETTINGS max_partitions_per_insert_block = 1000"""
# The objectives are set before, so that the rollups count them as the requests come.
PROGRAM = """
import sys
from pathlib import Path
from evenkeel_collector.store.storage import open_embedded
from evenkeel.slo.file.slo_file import read_slo_file
storage = open_embedded(Path(sys.argv[1]))
storage.rollups.use(read_slo_file(Path(sys.argv[2])).slos)
client = storage.connect()
for statement in sys.stdin:
    client.command(statement.replace(chr(11), chr(10)))
    print("done", flush=True)
"""


def fill(
    folder: Path, requests_a_day: int, seconds: float, inserts: Sequence[str] = (INSERT,)
) -> bool:
    """Store the missing requests for a limited time; return whether all are stored.

    Args:
        folder: The data folder of a collector that does not run.
        requests_a_day: How many requests each 24 hours have.
        seconds: After which no further piece is begun.
        inserts: What to run for each piece.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "slos.yaml").write_text(SLOS, encoding="utf-8")
    notes = folder / "filled.json"
    if not notes.exists():
        begin_ns = time.time_ns() - DAY_S * 10**9
        notes.write_text(json.dumps({"begin_ns": begin_ns, "total": 0, "stored": 0}))
    state = json.loads(notes.read_text())
    lasts_s = (time.time_ns() - state["begin_ns"]) // 10**9 + AHEAD_S
    state["total"] = max(state["total"], requests_a_day * lasts_s // DAY_S)
    deadline = time.monotonic() + seconds
    program = [sys.executable, "-c", PROGRAM, str(folder / "store"), str(folder / "slos.yaml")]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as storing:
        assert storing.stdin is not None and storing.stdout is not None
        while state["stored"] < state["total"] and time.monotonic() < deadline:
            count = min(CHUNK, state["total"] - state["stored"])
            for insert in inserts:
                statement = insert.format(
                    begin_ns=state["begin_ns"],
                    gap_ns=DAY_S * 10**9 // requests_a_day,
                    first=state["stored"],
                    count=count,
                )
                storing.stdin.write(statement.replace("\n", "\v") + "\n")
                storing.stdin.flush()
                if storing.stdout.readline() != "done\n":
                    raise SystemExit("the store refused a piece; see above")
            state["stored"] += count
            notes.write_text(json.dumps(state))
        storing.stdin.close()
    return bool(state["stored"] == state["total"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=STORE, help="the folder to keep")
    parser.add_argument("--requests", type=int, default=REQUESTS_A_DAY, help="in 24 hours")
    parser.add_argument("--seconds", type=float, default=500.0, help="time limit of this run")
    args = parser.parse_args()
    is_full = fill(args.store, args.requests, args.seconds)
    stored = json.loads((args.store / "filled.json").read_text())
    print(f"{stored['stored']:,} of {stored['total']:,} requests are stored in {args.store}")
    return 0 if is_full else 1


if __name__ == "__main__":
    sys.exit(main())
