"""Kill evaluation runs at random moments and resume them. Prints a table, writes JSON.

    python bench/eval_kills.py --kills 200 --json build/bench/eval_kills.json

Runs against tests/fixtures/chat_server.py, which records every answer. Lost: items without an
answer at the end. Repeated: answers given twice, beyond those in flight at a kill, which the run
reports itself (`num_asked_again`). Changed: verdicts that differ when a complete run is repeated.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from bench.report import write_report

ROOT = Path(__file__).parents[1]
NUM_ITEMS = 100
KILLS_A_RUN = 10


def prepare(folder: Path) -> Path:
    dataset = folder / "echo"
    dataset.mkdir()
    rows = [
        {"id": f"q{i}", "messages": [{"role": "user", "content": f"say {i}"}]}
        | {"reference": f"say {i}"}
        for i in range(NUM_ITEMS)
    ]
    (dataset / "echo.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (dataset / "echo.toml").write_text('version = "1"\n')
    (dataset / "a.toml").write_text('[prompt]\nversion = "1"\nsystem = "good"\n')
    (dataset / "b.toml").write_text('[prompt]\nversion = "2"\nsystem = "worse"\n')
    return dataset


def start(dataset: Path, url: str, report: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "evenkeel", "eval", "run", str(dataset)),
            *("--baseline", str(dataset / "a.toml"), "--candidate", str(dataset / "b.toml")),
            *("--url", url, "--otlp-endpoint", "none", "--warmup", "0", "--json"),
            *("--gate", "accuracy>=-5%, shift_ttft<=+50%", "--report", str(report)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
    )


def kill_one_run(folder: Path, generator: random.Random, num_kills: int) -> Counter[str]:
    """Return what was lost, repeated and changed in one run that was killed `num_kills` times."""
    dataset, log, report = prepare(folder), folder / "answered.txt", folder / "report"
    log.touch()
    program = ROOT / "tests" / "integration" / "chat_server.py"
    server = subprocess.Popen(
        [sys.executable, str(program), str(log), "0.02"], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
    figures: Counter[str] = Counter()
    try:
        for _ in range(num_kills):
            process = start(dataset, url, report)
            # From before the first call to after the last: reading, asking, judging, writing.
            time.sleep(generator.uniform(0.5, 2.5))
            process.kill()
            process.communicate()
            figures["kills"] += 1
        outputs = [start(dataset, url, report).communicate()[0] for _ in range(2)]
        record = json.loads(outputs[0])
        lines = log.read_text(encoding="utf-8").splitlines()
        # The drift sentinel repeats its question on purpose.
        answered = Counter(line for line in lines if "what you can help me with" not in line)
        repeated = sum(answered.values()) - len(answered)
        figures["lost"] = 2 * NUM_ITEMS - len(answered) + record["num_unmeasured"]
        figures["asked_again"] = record["num_asked_again"]
        figures["repeated"] = max(0, repeated - record["num_asked_again"])
        figures["changed"] = int(outputs[0] != outputs[1])
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    generator = random.Random(args.seed)
    total: Counter[str] = Counter(kills=0, lost=0, asked_again=0, repeated=0, changed=0)
    while total["kills"] < args.kills:
        with tempfile.TemporaryDirectory() as folder:
            wanted = min(KILLS_A_RUN, args.kills - total["kills"])
            total.update(kill_one_run(Path(folder), generator, wanted))
    for name, value in total.items():
        print(f"{name:12} {value}")
    write_report(args.json, total)


if __name__ == "__main__":
    main()
