"""`evenkeel serve` with a vLLM that lacks a name the request hook builds on."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx

from tests.checkout import source_path
from tests.fixtures.served_model import VLLM_CACHES, free_port

READY_TIMEOUT_S = 600.0
# What Python imports first: once vLLM's outputs are there, one of them has no field `index`, as far
# as anybody can see who asks; vLLM itself does not.
OTHER_RELEASE = """
import importlib.abc, importlib.util, sys

class OtherRelease(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "vllm.outputs":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module
        def exec_module(module):
            execute(module)
            del module.CompletionOutput.__annotations__["index"]
        spec.loader.exec_module = exec_module
        return spec

sys.meta_path.insert(0, OtherRelease())
"""


def test_requests_are_served_with_one_warning_and_a_count(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(OTHER_RELEASE)
    (tmp_path / "cache.toml").write_text("[[routes]]\nsemantic = false\n")
    (tmp_path / "control.toml").write_text('mode = "act"\n')
    log = tmp_path / "serve.log"
    url = f"http://127.0.0.1:{free_port()}"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "evenkeel", "serve", "demo", "--port", url[17:]),
                *("--data-dir", str(tmp_path / "data"), "--max-model-len", "256"),
                *("--speculate", "none"),
                *("--cache", str(tmp_path / "cache.toml")),
                *("--control-file", str(tmp_path / "control.toml")),
            ],
            env=dict(os.environ)
            | {
                "PYTHONPATH": os.pathsep.join([str(tmp_path), source_path()]),
                "VLLM_CACHE_ROOT": str(VLLM_CACHES),
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + READY_TIMEOUT_S
        while not answers(url):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        body = {"model": "support", "prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True}
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=120)
        assert answer.status_code == 200, answer.text
        assert answer.json()["usage"]["completion_tokens"] == 4
        page = httpx.get(f"{url}/metrics").text
        assert 'evenkeel_runtime_missing_hooks_total{hook="requests"} 1.0' in page
        assert "vllm:generation_tokens_total" in page
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    said = log.read_text(errors="replace")
    for line in ("missing=CompletionOutput", "control is off", "the response cache is off"):
        assert said.count(line) == 1, said
    assert "Traceback" not in said


def answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/health", timeout=10).is_success
    return False
