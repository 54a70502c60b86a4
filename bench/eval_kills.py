"""Kill evaluation runs at random moments and resume them. Prints a table, writes JSON.

    python bench/eval_kills.py --kills 200 --json build/bench/eval_kills.json

Runs against tests/fixtures/chat_server.py, which records every answer. Lost: items without an
answer at the end. Repeated: answers given twice, beyond those in flight at a kill, which the run
reports itself (`num_asked_again`). Changed: verdicts that differ when a complete run is repeated.
"""

import argparse
import json
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.report import write_report
from tests.fixtures.eval_setup import serving_setup

NUM_ITEMS = 100
KILLS_A_RUN = 10


def kill_one_run(folder: Path, generator: random.Random, num_kills: int) -> Counter[str]:
    """Return what was lost, repeated and changed in one run that was killed `num_kills` times."""
    figures = Counter(kills=num_kills)
    with serving_setup(folder, NUM_ITEMS) as setup:
        for _ in range(num_kills):
            process = setup.start()
            # From before the first call to after the last: reading, asking, judging, writing.
            time.sleep(generator.uniform(0.5, 2.5))
            process.kill()
            process.communicate()
        outputs = [setup.start().communicate()[0] for _ in range(2)]
        record, answered = json.loads(outputs[0]), setup.answered()
    repeated = sum(answered.values()) - len(answered)
    figures["lost"] = 2 * NUM_ITEMS - len(answered) + record["num_unmeasured"]
    figures["asked_again"] = record["num_asked_again"]
    figures["repeated"] = max(0, repeated - record["num_asked_again"])
    figures["changed"] = int(outputs[0] != outputs[1])
    return figures


def kill_runs(num_kills: int, seed: int) -> Counter[str]:
    """Return what became of as many runs as it takes to kill them `num_kills` times."""
    generator = random.Random(seed)
    total: Counter[str] = Counter(kills=0, lost=0, asked_again=0, repeated=0, changed=0)
    while total["kills"] < num_kills:
        with tempfile.TemporaryDirectory() as folder:
            wanted = min(KILLS_A_RUN, num_kills - total["kills"])
            total.update(kill_one_run(Path(folder), generator, wanted))
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    total = kill_runs(args.kills, args.seed)
    for name, value in total.items():
        print(f"{name:12} {value}")
    write_report(args.json, total)


if __name__ == "__main__":
    main()
