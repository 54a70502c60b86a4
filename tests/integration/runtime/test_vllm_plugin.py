"""vLLM's own server, started by vLLM's own module entry, with this package installed beside it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from evenkeel.prompts.registry import PromptRegistry
from evenkeel_runtime.adapter.small_machine import EXECUTOR
from evenkeel_runtime.demo_model.checkpoint import target_path
from tests.checkout import source_path
from tests.fixtures.otlp_receiver import OtlpReceiver
from tests.fixtures.served_model import free_port

READY_TIMEOUT_S = 600.0
SYSTEM = "w3 w4 w5"
ENGINE_ENDS_WITHIN_S = 60.0
EVERYTHING_ENDS_WITHIN_S = 120.0


@dataclass(frozen=True, slots=True)
class Served:
    url: str
    process: subprocess.Popen[bytes]
    receiver: OtlpReceiver
    log: Path


def install(folder: Path) -> Path:
    """What an installed package leaves for vLLM to find: its entry points."""
    info = folder / "site" / "evenkeel_under_test-0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evenkeel-under-test\nVersion: 0\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nevenkeel = evenkeel_runtime.serve.plugin:register\n"
    )
    return info.parent


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("plugin")
    receiver = OtlpReceiver()
    port = free_port()
    log = folder / "vllm.log"
    (folder / "control.toml").write_text("[tenants.limited]\nrequests_per_minute = 1\n")
    (folder / "cache.toml").write_text("[[routes]]\nsemantic = false\n")
    (folder / "prompts").mkdir()
    (folder / "prompts" / "short.toml").write_text(f'system = "{SYSTEM}"\n')
    paths = [str(install(folder)), source_path(), os.environ.get("PYTHONPATH", "")]
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),
                *(
                    "--model",
                    str(target_path()),
                    "--served-model-name",
                    "support",
                    "--host",
                    "127.0.0.1",
                ),
                *("--port", str(port)),
                *("--max-model-len", "2048", "--enforce-eager", "--api-key", "secret"),
                *("--chat-template", "{% for m in messages %}{{ m.content }} {% endfor %}"),
                # As `evenkeel serve` chooses on a few cores.
                *("--distributed-executor-backend", EXECUTOR),
                # Room for one long prompt and a half.
                *("--num-gpu-blocks-override", "20"),
                *("--max-num-batched-tokens", "1024"),
            ],
            env=dict(os.environ)
            | {
                "PYTHONPATH": os.pathsep.join(paths),
                "OTEL_EXPORTER_OTLP_ENDPOINT": receiver.url,
                "EVENKEEL_RUNTIME_EXPORT_INTERVAL_S": "0.05",
                "EVENKEEL_RUNTIME_CONTROL_FILE": str(folder / "control.toml"),
                "EVENKEEL_RUNTIME_CACHE": str(folder / "cache.toml"),
                # Wrong: it is off, and all else goes on.
                "EVENKEEL_RUNTIME_COMPRESSION": str(folder / "compression.toml"),
                "EVENKEEL_RUNTIME_PROMPTS_DIR": str(folder / "prompts"),
                "EVENKEEL_DATA_DIR": str(folder / "data"),
                "VLLM_CPU_KVCACHE_SPACE": "1",
                "OMP_NUM_THREADS": "1",
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
            },
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url, process, log)
        yield Served(url, process, receiver, log)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        receiver.stop()


def wait_until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(httpx.TransportError):
            if httpx.get(f"{url}/health", timeout=10).is_success:
                return
        time.sleep(0.2)
    pytest.fail(f"vLLM did not come up:\n{log.read_text(errors='replace')[-4000:]}")


def complete(
    served: Served,
    num_tokens: int,
    stride: int = 1,
    tenant: str = "acme",
    status: int = 200,
    **more: Any,
) -> dict[str, Any]:
    body = {
        "model": "support",
        "prompt": [3 + i * stride % 500 for i in range(num_tokens)],
        "max_tokens": 8,
        "ignore_eos": True,
        "skip_special_tokens": False,
    }
    headers = {"authorization": "Bearer secret", "x-evenkeel-tenant": tenant}
    url = f"{served.url}/v1/completions"
    response = httpx.post(url, json=body | more, headers=headers, timeout=120)
    assert response.status_code == status, response.text
    found: dict[str, Any] = response.json()
    return found


def test_requests_are_recorded_with_a_ledger(served: Served) -> None:
    request_id = complete(served, 300)["id"]
    (span,) = served.receiver.wait_for(lambda s: s.kind == 2)
    seen = span.attributes
    assert seen["evenkeel.request.id"] == f"{request_id}-0"
    assert (seen["evenkeel.tenant"], seen["evenkeel.status"]) == ("acme", "ok")
    for phase in ("ttft", "decode"):
        prefix = f"evenkeel.ledger.{phase}."
        charged_s = sum(v for name, v in seen.items() if name.startswith(prefix))
        assert charged_s == pytest.approx(seen[f"evenkeel.{phase}_s"], rel=0.02)
    assert seen["evenkeel.ledger.ttft.prefill.own"] > 0


def explained(page: str) -> Any:
    """Return what a page of `/why` says, once the exporter knows the request."""
    deadline = time.monotonic() + 120
    while (found := httpx.get(page, headers={"authorization": "Bearer secret"})).is_error:
        assert time.monotonic() < deadline, found.text
    return found.json()


def test_why_asks_for_the_servers_own_api_key(served: Served) -> None:
    request_id = complete(served, 200)["id"]
    page = f"{served.url}/why/{request_id}"
    assert httpx.get(page).status_code == 401
    assert httpx.get(f"{served.url}/control").status_code == 401
    assert httpx.get(page, headers={"authorization": "Bearer wrong"}).status_code == 401
    assert explained(page)["prefix_cache"]["prompt_tokens"] == 200


def test_an_evicted_prompt_says_who_took_its_room(served: Served) -> None:
    complete(served, 1500, stride=3)
    other = complete(served, 1500, stride=7)["id"]
    again = complete(served, 1500, stride=3)["id"]
    page = f"{served.url}/why/{again}"
    answer = explained(page)
    found = answer["prefix_cache"]
    assert found["miss"] == "evicted"
    assert 0 < found["lost_tokens"] <= found["missed_tokens"]
    assert found["evicted"]["for_request"] == f"{other}-0"
    assert 0 < found["evicted"]["before_arrival_s"] < 600
    assert found["cost_s"] > 0
    assert answer["ledger"]["ttft.prefill.cache_miss"] > 0


def test_control_and_cache_come_with_it(served: Served) -> None:
    complete(served, 8, tenant="limited")
    refused = complete(served, 8, tenant="limited", status=429)
    assert refused["error"]["type"] == "quota"
    pages = [f"{served.url}{path}" for path in ("/control", "/v1/evenkeel/cache")]
    state, cache = (httpx.get(p, headers={"authorization": "Bearer secret"}).json() for p in pages)
    assert state["mode"] == "act"
    assert cache["counts"]["outcomes"]["bypass"] > 0
    said = served.log.read_text(errors="replace")
    assert said.count("start with --scheduling-policy priority") == 1
    assert said.count("prompt compression is off") == 1


def test_a_chat_may_name_a_prompt_of_the_registry(served: Served) -> None:
    def chat(tenant: str, *messages: dict[str, str], **more: Any) -> httpx.Response:
        body = {"model": "support", "messages": messages, "max_tokens": 2, "temperature": 0} | more
        headers = {"authorization": "Bearer secret", "x-evenkeel-tenant": tenant}
        url = f"{served.url}/v1/chat/completions"
        return httpx.post(url, json=body, headers=headers, timeout=120)

    user = {"role": "user", "content": "w6 w7"}
    written_out = chat("by-text", {"role": "system", "content": SYSTEM}, user)
    by_name = chat("by-name", user, prompt="short@draft")
    assert by_name.status_code == written_out.status_code == 200, by_name.text
    for part in ("choices", "usage"):
        assert by_name.json()[part] == written_out.json()[part]
    (span,) = served.receiver.wait_for(
        lambda s: s.kind == 2 and s.attributes.get("evenkeel.tenant") == "by-name"
    )
    assert span.attributes["evenkeel.prompt.name"] == "short"
    draft = PromptRegistry(served.log.parent / "prompts").draft("short")
    assert span.attributes["evenkeel.prompt.version"] == draft.version
    unknown = chat("unknown", user, prompt="long@production")
    assert unknown.status_code == 200, unknown.text
    assert unknown.json()["choices"] == chat("by-nobody", user).json()["choices"]


def test_a_seeded_prompt_of_several_steps_does_not_end_the_engine(served: Served) -> None:
    first, second = (
        complete(served, 1500, 11, seed=1, temperature=1.0)["choices"] for _ in range(2)
    )
    assert first == second


def test_metrics_are_there_and_nothing_went_wrong(served: Served) -> None:
    page = httpx.get(f"{served.url}/metrics").text
    assert "evenkeel_runtime_internal_errors_total 0.0" in page
    assert "vllm:num_requests_running" in page
    assert "not recorded" not in served.log.read_text(errors="replace")


def test_a_killed_server_takes_its_engine_along(served: Served) -> None:
    """Runs last. kill -9 gives nobody a chance to clean up."""
    children = psutil.Process(served.process.pid).children(recursive=True)
    names = [f"{child.name()} {' '.join(child.cmdline())}" for child in children]
    assert any("EngineCore" in name or "spawn_main" in name for name in names), names
    served.process.kill()
    served.process.wait()
    engines = [c for c, name in zip(children, names, strict=True) if "exporter" not in name]
    engines = [c for c in engines if "resource_tracker" not in names[children.index(c)]]
    _, alive = psutil.wait_procs(engines, timeout=ENGINE_ENDS_WITHIN_S)
    assert alive == []
    # The exporter sends what it has, Python's resource tracker ends once the others have.
    _, alive = psutil.wait_procs(children, timeout=EVERYTHING_ENDS_WITHIN_S)
    assert alive == []
