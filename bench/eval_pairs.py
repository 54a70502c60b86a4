"""How long `evenkeel eval run` takes for 100 items on two sides, by turns with another checkout.

    python bench/eval_pairs.py --json build/eval_pairs.json
    python bench/eval_pairs.py --other ../before --runs 5

The server is tests/integration/chat_server.py, which answers after 10 ms; both checkouts ask the
same one, in turn, and start as a command does.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
NUM_ITEMS = 100


def write_dataset(folder: Path) -> Path:
    dataset = folder / "say"
    dataset.mkdir()
    rows = [
        {
            "id": f"i{i}",
            "messages": [{"role": "user", "content": f"say {i}"}],
            "reference": f"say {i}",
            "scorer": "exact",
        }
        for i in range(NUM_ITEMS)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    digest = hashlib.sha256(text.encode()).hexdigest()
    (dataset / "say.jsonl").write_text(text)
    (dataset / "say.toml").write_text(f'version = "1.0.0"\nsha256 = "{digest}"\n')
    for name in ("a", "b"):
        prompt = f'name = "{name}"\n[prompt]\nname = "{name}"\nsystem = "{name}"\n'
        (dataset / f"{name}.toml").write_text(prompt)
    return dataset


def run_once(checkout: Path, dataset: Path, url: str) -> float:
    started = time.perf_counter()
    subprocess.run(
        [
            *(sys.executable, "-m", "evenkeel", "eval", "run", str(dataset), "--url", url),
            *("--baseline", str(dataset / "a.toml"), "--candidate", str(dataset / "b.toml")),
            *("--gate", "accuracy>=-5%, shift_e2e<=+50%", "--otlp-endpoint", "none", "--json"),
            "--allow-inconclusive",
        ],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        check=True,
    )
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, metavar="DIR", help="another checkout")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="PATH")
    args = parser.parse_args()
    checkouts = {"this": ROOT} | ({"other": args.other.resolve()} if args.other else {})
    taken: dict[str, list[float]] = {name: [] for name in checkouts}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = write_dataset(folder)
        program = ROOT / "tests" / "integration" / "chat_server.py"
        server = subprocess.Popen(
            [sys.executable, str(program), str(folder / "log"), "0.01"],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            url = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            for _ in range(args.runs):
                for which, checkout in checkouts.items():
                    taken[which].append(run_once(checkout, dataset, url))
        finally:
            server.terminate()
            server.wait()
    for which, seconds in taken.items():
        low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
        print(f"{which}: median {middle:.2f} s ({low:.2f} to {high:.2f})")
    if args.json is not None:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps({"items": NUM_ITEMS, "seconds": taken}) + "\n")


if __name__ == "__main__":
    main()
