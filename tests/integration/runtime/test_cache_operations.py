"""A real vLLM's cache follows its file, its sources and deletions."""

import httpx

from evenkeel.cli import main
from evenkeel.private_files import replace_private
from tests.fixtures.collector_process import wait_for
from tests.fixtures.equipped_server import CACHE_HEADER, EquippedServer

TENANT = "operations"


def ask(server: EquippedServer, text: str, **headers: str) -> str | None:
    """Ask on the route that serves; return which layer of the cache answered."""
    response = httpx.post(
        f"{server.served.url}/v1/chat/completions",
        json={
            "model": server.served.model,
            "messages": [{"role": "user", "content": text}],
            "temperature": 0,
            "max_tokens": 16,
        },
        headers={"x-evenkeel-route": "serve", "x-evenkeel-tenant": TENANT} | headers,
        timeout=120,
    )
    assert response.status_code == 200, response.text
    return response.headers.get(CACHE_HEADER)


def learn(server: EquippedServer, text: str, **headers: str) -> None:
    assert ask(server, text, **headers) is None
    # By the answer: answers of earlier tests may be stored meanwhile, so a count says nothing.
    wait_for(lambda: ask(server, text, **headers) == "exact")


def test_the_file_switches_the_cache_off_and_on(equipped: EquippedServer) -> None:
    text = "How do I send a toaster back?"
    learn(equipped, text)
    path = equipped.folder / "cache.toml"
    before = path.read_bytes()
    try:
        # Whole: a reader must not find it empty.
        replace_private(path, b"enabled = false\n" + before)
        wait_for(lambda: not equipped.cache()["enabled"])
        assert ask(equipped, text) is None
        replace_private(path, b"enabled = maybe\n" + before)
        wait_for(lambda: equipped.cache()["counts"]["reloads"].get("rejected", 0) > 0)
        assert not equipped.cache()["enabled"]
    finally:
        replace_private(path, before)
    wait_for(lambda: equipped.cache()["enabled"])
    assert ask(equipped, text) == "exact"
    assert equipped.log.read_text().count("file rejected") == 1


def test_another_version_of_a_source_is_another_answer(equipped: EquippedServer) -> None:
    text = "How long can a toaster be kept before it is sent back?"
    learn(equipped, text, **{"x-evenkeel-knowledge": "docs@1, prices@7"})
    assert ask(equipped, text, **{"x-evenkeel-knowledge": "prices@7,docs@1"}) == "exact"
    for other in ("docs@2, prices@7", "docs@1", "docs"):
        assert ask(equipped, text, **{"x-evenkeel-knowledge": other}) is None
    assert ask(equipped, text) is None


def test_what_is_flushed_is_answered_by_the_model(equipped: EquippedServer) -> None:
    text = "What does a toaster weigh?"
    learn(equipped, text, **{"x-evenkeel-prompt": "support@ops"})
    assert main(["cache", "flush", "--prompt", "support@ops", "--url", equipped.served.url]) == 0
    assert ask(equipped, text, **{"x-evenkeel-prompt": "support@ops"}) is None
    wait_for(lambda: ask(equipped, text, **{"x-evenkeel-prompt": "support@ops"}) == "exact")
    assert main(["cache", "flush", "--route", "serve", "--url", equipped.served.url]) == 0
    assert ask(equipped, text, **{"x-evenkeel-prompt": "support@ops"}) is None
    audited = (equipped.folder / "data" / "cache-audit.jsonl").read_text()
    assert '"event": "flushed"' in audited
