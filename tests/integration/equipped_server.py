"""A real `evenkeel serve` with what is off until asked for: cache, drafts, compression."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from evenkeel_runtime.speculation.store_file import load_store
from tests.integration.otlp_receiver import OtlpReceiver, ReceivedSpan
from tests.integration.redis_process import RedisProcess, run_redis
from tests.integration.served_model import ServedModel, serve

CACHE_HEADER = "x-evenkeel-cache"
POLICY = """
backend = "redis"
redis_url = "{url}"
redis_timeout_s = 10
embedding_timeout_s = 10
shows_texts = true

[[routes]]
route = "serve"
mode = "serve"
similarities = [0.75]
draft_similarity = 0.6
wrong_hit_limit = 0.4
alpha = 0.3
replay_ratio = 1.0

[[routes]]
route = "draft"
mode = "draft"

[[routes]]
route = "shadow"
mode = "shadow"

[[routes]]
mode = "off"
"""
_STORE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class EquippedServer:
    """A server with all its hooks, and the Redis that its cache is in."""

    served: ServedModel
    redis: RedisProcess

    @property
    def folder(self) -> Path:
        """With `control.toml`, `serve.log`, and the data folder."""
        return self.served.folder

    @property
    def log(self) -> Path:
        return self.folder / "serve.log"

    def ask(self, text: str, route: str, tenant: str, **more: Any) -> httpx.Response:
        """Ask in a chat, greedily; it must be answered."""
        response = self.post(text, route, tenant, **more)
        assert response.status_code == 200, response.text
        return response

    def post(
        self, text: str, route: str, tenant: str, slo_class: str = "patient", **more: Any
    ) -> httpx.Response:
        body = {
            "model": self.served.model,
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "max_tokens": 64,
        }
        headers = {
            "x-evenkeel-route": route,
            "x-evenkeel-tenant": tenant,
            "x-evenkeel-slo-class": slo_class,
        }
        url = f"{self.served.url}/v1/chat/completions"
        return httpx.post(url, json=body | more, headers=headers, timeout=120)

    def span(self, response: httpx.Response) -> ReceivedSpan:
        request_id = response.json()["id"]
        return self.served.wait_for_request(evenkeel__request__id=request_id)

    def cache(self) -> dict[str, Any]:
        """The cache's own page."""
        answer: dict[str, Any] = httpx.get(f"{self.served.url}/v1/evenkeel/cache").json()
        return answer

    def wait_until_stored(self, count: int) -> None:
        deadline = time.monotonic() + 120
        while self.cache()["counts"]["stored"] < count:
            assert time.monotonic() < deadline, self.cache()
            time.sleep(0.02)

    def control(self) -> dict[str, Any]:
        """Control's own page."""
        state: dict[str, Any] = httpx.get(f"{self.served.url}/control").json()
        return state

    def wait_for_control(self, **state: object) -> None:
        deadline = time.monotonic() + 120
        while not state.items() <= self.control().items():
            assert time.monotonic() < deadline, (state, self.control())
            time.sleep(0.02)

    @contextmanager
    def controlled_by(self, text: str) -> Iterator[None]:
        """Have another control file while the block runs."""
        path = self.folder / "control.toml"
        before = path.read_text()
        path.write_text(text)
        try:
            yield
        finally:
            path.write_text(before)


@contextmanager
def run_equipped_server(folder: Path, receiver: OtlpReceiver) -> Iterator[EquippedServer]:
    """Start Redis and the server, and end them with the block."""
    settings = {
        "EVENKEEL_SPECULATION_CANARY_RATIO": "1",
        "EVENKEEL_SPECULATION_RAISE_INTERNAL_ERRORS": "true",
        "EVENKEEL_SPECULATION_STORE_FILE": str(folder / "answers"),
    }
    policy, compression = folder / "cache.toml", folder / "compression.toml"
    compression.write_text('routes = ["compress"]\nmin_tokens = 40\nkeep_turns = 1\n')
    flags = ("--cache", str(policy), "--compression", str(compression), "--speculate", "auto")
    with run_redis() as redis:
        policy.write_text(POLICY.format(url=redis.url))
        with serve(folder, receiver, *flags, settings=settings) as served:
            yield EquippedServer(served, redis)
    # What the engine learned is on disk, however it was ended.
    assert load_store(folder / "answers", _STORE_BYTES, 1 << 20) is not None
