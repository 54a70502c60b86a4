"""A chat server, a dataset and two sides, for tests of `evenkeel eval run` as a process."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.checkout import source_path

ROOT = Path(__file__).parents[2]
NUM_ITEMS = 60
CONCURRENCY = 3
SENTINEL = "what you can help me with"


@dataclass(frozen=True)
class Place:
    url: str
    log: Path
    dataset: Path
    report: Path

    def start(self, *flags: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [
                *(sys.executable, "-m", "evenkeel", "eval", "run", str(self.dataset)),
                *("--baseline", str(self.dataset / "a.toml")),
                *("--candidate", str(self.dataset / "b.toml")),
                *("--url", self.url, "--otlp-endpoint", "none", "--warmup", "0", "--json"),
                *("--gate", "accuracy>=-5%, shift_ttft<=+50%"),
                *("--concurrency", str(CONCURRENCY), "--report", str(self.report), *flags),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": source_path()},
        )

    def answered(self) -> Counter[str]:
        """Return how often each question was answered; the drift sentinel's is left out."""
        lines = self.log.read_text(encoding="utf-8").splitlines()
        return Counter(line for line in lines if SENTINEL not in line)

    def sentinels(self) -> int:
        return self.log.read_text(encoding="utf-8").count(SENTINEL)


@contextmanager
def serving_place(tmp_path: Path, num_items: int = NUM_ITEMS) -> Iterator[Place]:
    """Run the server for the length of the block."""
    dataset = tmp_path / "echo"
    dataset.mkdir()
    rows = (
        {"id": f"q{i}", "messages": [{"role": "user", "content": f"say {i}"}]}
        | {"reference": f"say {i}"}
        for i in range(num_items)
    )
    (dataset / "echo.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (dataset / "echo.toml").write_text('version = "1"\n')
    (dataset / "a.toml").write_text('[prompt]\nversion = "1"\nsystem = "good"\n')
    (dataset / "b.toml").write_text('[prompt]\nversion = "2"\nsystem = "worse"\n')
    log = tmp_path / "answered.txt"
    log.touch()
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("chat_server.py")), str(log), "0.02"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    port = server.stdout.readline().strip()
    try:
        yield Place(f"http://127.0.0.1:{port}", log, dataset, tmp_path / "report")
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
