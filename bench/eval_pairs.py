"""Measure `evenkeel eval run` for 100 items on two sides, alternating with something else.

    python bench/eval_pairs.py --json build/eval_pairs.json
    python bench/eval_pairs.py --other ../before --runs 5              another checkout
    python bench/eval_pairs.py --promptfoo node_modules/.bin/promptfoo

The server is tests/fixtures/chat_server.py, which answers after 10 ms. All programs use the same
server in turn, start like a command, and have the same number of requests in flight.
"""

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

from bench.report import write_report
from tests.checkout import source_path

ROOT = Path(__file__).parents[1]
NUM_ITEMS = 100
CONCURRENCY = 4


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


def write_promptfoo(folder: Path, url: str) -> Path:
    """The same items, sides and scorer as promptfoo's; JSON is YAML."""
    config = {
        "prompts": [
            [{"role": "system", "content": side}, {"role": "user", "content": "{{question}}"}]
            for side in "ab"
        ],
        "providers": [{"id": "openai:chat:m", "config": {"apiBaseUrl": f"{url}/v1"}}],
        "tests": [
            {
                "vars": {"question": f"say {i}"},
                "assert": [{"type": "equals", "value": f"say {i}"}],
            }
            for i in range(NUM_ITEMS)
        ],
    }
    config["prompts"] = [
        {"raw": json.dumps(p), "label": f"side {i}"} for i, p in enumerate(config["prompts"])
    ]
    path = folder / "promptfoo.yaml"
    path.write_text(json.dumps(config))
    return path


def run_promptfoo(program: Path, config: Path) -> float:
    home = config.parent / "promptfoo"
    switches = ("DISABLE_TELEMETRY", "DISABLE_UPDATE", "DISABLE_REMOTE_GENERATION")
    started = time.perf_counter()
    subprocess.run(
        [
            *(str(program), "eval", "--config", str(config), "--no-cache", "--no-table"),
            *("--no-progress-bar", "--max-concurrency", str(CONCURRENCY)),
            *("--output", str(config.with_name("promptfoo.json"))),
        ],
        cwd=config.parent,
        env={
            **os.environ,
            **{f"PROMPTFOO_{name}": "1" for name in switches},
            "PROMPTFOO_CONFIG_DIR": str(home),
            "OPENAI_API_KEY": "none",
        },
        capture_output=True,
        check=True,
    )
    taken = time.perf_counter() - started
    stats = json.loads(config.with_name("promptfoo.json").read_text())["results"]["stats"]
    assert stats["successes"] == 2 * NUM_ITEMS, stats
    return taken


def run_once(checkout: Path, dataset: Path, url: str) -> float:
    own = checkout / ".venv" / "bin" / "python"
    python = str(own) if own.is_file() else sys.executable
    started = time.perf_counter()
    subprocess.run(
        [
            *(python, "-m", "evenkeel", "eval", "run", str(dataset), "--url", url),
            *("--baseline", str(dataset / "a.toml"), "--candidate", str(dataset / "b.toml")),
            *("--gate", "accuracy>=-5%, shift_e2e<=+50%", "--otlp-endpoint", "none", "--json"),
            *("--allow-inconclusive", "--concurrency", str(CONCURRENCY)),
        ],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": source_path(checkout)},
        capture_output=True,
        check=True,
    )
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", type=Path, metavar="DIR", help="another checkout")
    parser.add_argument("--promptfoo", type=Path, metavar="PATH", help="the program of promptfoo")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="PATH")
    args = parser.parse_args()
    if args.other is not None and not (args.other / "evals" / "evenkeel_evals").is_dir():
        sys.exit(f"{args.other} has its packages elsewhere: compare it with a checkout of its age")
    checkouts = {"this": ROOT} | ({"other": args.other.resolve()} if args.other else {})
    taken: dict[str, list[float]] = {name: [] for name in checkouts}
    if args.promptfoo is not None:
        taken["promptfoo"] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        dataset = write_dataset(folder)
        program = ROOT / "tests" / "fixtures" / "chat_server.py"
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
                if args.promptfoo is not None:
                    config = write_promptfoo(folder, url)
                    taken["promptfoo"].append(run_promptfoo(args.promptfoo.resolve(), config))
        finally:
            server.terminate()
            server.wait()
    for which, seconds in taken.items():
        low, middle, high = min(seconds), statistics.median(seconds), max(seconds)
        print(f"{which}: median {middle:.2f} s ({low:.2f} to {high:.2f})")
    write_report(args.json, {"items": NUM_ITEMS, "seconds": taken})


if __name__ == "__main__":
    main()
