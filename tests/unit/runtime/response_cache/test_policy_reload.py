"""The cache follows its file: what can change does, what cannot is said, a broken one is left."""

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from evenkeel.embedding import hash_model
from evenkeel.errors import ConfigurationError
from evenkeel.watched_file import WatchedFile
from evenkeel_runtime.response_cache.audit import AuditLog
from evenkeel_runtime.response_cache.backend import Changes
from evenkeel_runtime.response_cache.cache import ResponseCache
from evenkeel_runtime.response_cache.hit_class import CLASSES_VERSION, SAME_WORDS, HitClass
from evenkeel_runtime.response_cache.knowledge import KnowledgeFiles
from evenkeel_runtime.response_cache.memory_backend import MemoryBackend
from evenkeel_runtime.response_cache.policy_reload import PolicyFile, follow
from evenkeel_runtime.response_cache.question import Bypass
from evenkeel_runtime.response_cache.settings_file import HitMode, read_policy
from evenkeel_runtime.response_cache.setup import OpenedCache, open_cache
from evenkeel_runtime.response_cache.state import describe
from evenkeel_runtime.wire.caller import Caller
from tests.unit.runtime.response_cache.questions import entry, question, read

FAQ = """
[[routes]]
route = "faq"
mode = "serve"
semantic = false
{more}
[[routes]]
mode = "off"
"""


class Folder:
    """A cache, and the folder that its file is in."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.file = path / "cache.toml"
        self.file.write_text(text)
        self.opened: OpenedCache = open_cache(self.file, path)
        self.cache = self.opened.cache

    async def write(self, text: str) -> None:
        self.file.write_text(text)
        await self.opened.file.reload()

    def audited(self) -> list[dict[str, Any]]:
        log = self.path / "cache-audit.jsonl"
        lines = log.read_text().splitlines() if log.exists() else []
        return [
            {key: value for key, value in json.loads(line).items() if key != "time"}
            for line in lines
        ]

    def ask(self, **caller: Any) -> Any:
        return read(policy=self.cache.modes.policy, caller=Caller(route="faq", **caller))


def faq(more: str = "", top: str = "") -> str:
    return top + FAQ.format(more=more)


async def test_the_kill_switch_works_without_a_restart_and_back(tmp_path: Path) -> None:
    folder = Folder(tmp_path, faq())
    assert not isinstance(folder.ask(), Bypass)
    await folder.write(faq(top="enabled = false\n"))
    assert folder.ask() == Bypass("route_off")
    state = await describe(folder.cache)
    assert (state.enabled, state.modes) == (False, {"faq": HitMode.OFF, "*": HitMode.OFF})
    await folder.write(faq())
    assert not isinstance(folder.ask(), Bypass)
    assert folder.audited() == [
        {"event": "file", "key": "enabled", "before": True, "after": False},
        {"event": "file", "key": "enabled", "before": False, "after": True},
    ]
    assert folder.cache.counts.reloads == {"applied": 2}
    await folder.cache.close()


class Lingering(MemoryBackend):
    """Another runtime's changes, and there is no end of them."""

    async def read_changes(self) -> Changes:
        await asyncio.Event().wait()
        return Changes()


async def test_the_kill_switch_does_not_wait_for_a_slow_backend(tmp_path: Path) -> None:
    path = tmp_path / "cache.toml"
    path.write_text(faq())
    file = WatchedFile(path, read_policy, logging.getLogger(__name__))
    cache = ResponseCache(file.current, Lingering(4096), None, AuditLog(None))
    errors: list[Exception] = []
    watched = PolicyFile(file, cache, KnowledgeFiles(tmp_path))
    following = asyncio.create_task(follow(cache, watched, errors.append))
    await asyncio.sleep(0.01)
    path.write_text(faq(top="enabled = false\n"))
    async with asyncio.timeout(20):
        while cache.policy.enabled:
            await asyncio.sleep(0.01)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert errors == []


async def test_a_broken_file_keeps_the_last_good_one_and_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path, faq())
    with caplog.at_level(logging.WARNING):
        await folder.write(faq('ttl = "never"'))
        for _ in range(3):
            await folder.opened.file.reload()
    assert not isinstance(folder.ask(), Bypass)
    assert folder.cache.counts.reloads == {"rejected": 1}
    (record,) = caplog.records
    assert "routes.0.ttl" in record.getMessage()
    assert folder.audited() == [{"event": "file_rejected"}]
    folder.file.unlink()
    await folder.opened.file.reload()
    assert folder.cache.counts.reloads == {"rejected": 2}
    assert not isinstance(folder.ask(), Bypass)
    await folder.cache.close()


def test_at_the_start_a_broken_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="mode"):
        Folder(tmp_path, '[[routes]]\nmode = "on"')


async def test_what_needs_a_restart_is_said_and_the_rest_applied(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = Folder(tmp_path, faq())
    before = folder.cache.policy.max_bytes
    secret = 'backend = "redis"\nredis_url = "redis://:hidden@host"\nmax_bytes = 8192\n'
    with caplog.at_level(logging.WARNING):
        await folder.write(faq("max_temperature = 0.5", top=secret))
        await folder.opened.file.reload()
    policy = folder.cache.policy
    assert (policy.backend, policy.redis_url, policy.max_bytes) == ("memory", None, before)
    assert policy.find_route("faq").max_temperature == 0.5
    (record,) = caplog.records
    assert record.getMessage().endswith(": backend, max_bytes, redis_url")
    assert (await describe(folder.cache)).needs_restart == ["backend", "max_bytes", "redis_url"]
    assert folder.audited() == [
        {"event": "needs_restart", "keys": "backend, max_bytes, redis_url"},
        {"event": "file", "key": "routes.faq.max_temperature", "before": 0.0, "after": 0.5},
    ]
    assert "hidden" not in (tmp_path / "cache-audit.jsonl").read_text() + caplog.text
    # Undone, nothing is left to restart for.
    await folder.write(faq())
    assert (await describe(folder.cache)).needs_restart == []
    await folder.cache.close()


async def test_meanings_are_compared_from_the_next_start_on_if_no_route_did(
    tmp_path: Path,
) -> None:
    folder = Folder(tmp_path, faq())
    await folder.write(faq().replace("semantic = false", ""))
    assert folder.cache.needs_restart == ("semantic",)
    assert folder.cache.sketch(folder.ask()) is None
    await folder.cache.close()


async def test_a_route_put_into_shadow_stays_there_when_the_file_changes(tmp_path: Path) -> None:
    folder = Folder(tmp_path, faq())
    modes = folder.cache.modes
    modes.set("faq", HitMode.SHADOW)
    await folder.write(faq("max_temperature = 0.5"))
    assert modes.describe()["faq"] is HitMode.SHADOW
    await folder.write(faq().replace('"serve"', '"off"'))
    assert modes.describe()["faq"] is HitMode.OFF
    await folder.write(faq())
    assert modes.describe()["faq"] is HitMode.SHADOW
    # Left out and put back, as by a tool that writes the file in steps.
    await folder.write('[[routes]]\nmode = "serve"\n')
    await folder.write(faq())
    assert modes.describe()["faq"] is HitMode.SHADOW
    modes.set("faq", HitMode.SERVE)
    assert modes.describe()["faq"] is HitMode.SERVE
    await folder.cache.close()


@pytest.mark.parametrize(
    ("more", "keeps"),
    [
        pytest.param("replay_ratio = 0.5", True, id="how much is compared"),
        pytest.param("wrong_hit_limit = 0.1", False, id="another limit"),
        pytest.param("alpha = 0.01", False, id="another confidence"),
        pytest.param("similarities = [0.9]", False, id="another ladder"),
        pytest.param("leads = [0.3]", False, id="another lead"),
    ],
)
async def test_evidence_lasts_as_long_as_what_it_was_collected_for(
    more: str, keeps: bool, tmp_path: Path
) -> None:
    folder = Folder(tmp_path, faq())
    control = folder.cache.control(folder.cache.policy.find_route("faq"))
    for _ in range(1000):
        control.record(HitClass(SAME_WORDS, 0.99, 0.5), is_wrong=False)
    assert control.threshold is not None
    await folder.write(faq(more))
    control = folder.cache.control(folder.cache.policy.find_route("faq"))
    assert (control.threshold is not None) is keeps
    assert (control.classes[0].seen == 1000) is keeps
    reasons = [event.get("reason") for event in folder.audited() if event["event"] == "control"]
    assert reasons == ([] if keeps else ["file"])
    await folder.cache.close()


async def test_labels_count_again_under_another_limit(tmp_path: Path) -> None:
    pairs = [[SAME_WORDS, 0.99, 0.5, False]] * 30
    collected = {"embedder": hash_model(), "classes": CLASSES_VERSION}
    labels = json.dumps({"collected": collected, "pairs": pairs})
    (tmp_path / "cache-labels.json").write_text(labels)
    semantic = faq().replace("semantic = false", "")
    folder = Folder(tmp_path, semantic)
    folder.cache.controls.load("weights")
    for text in (semantic, semantic.replace("[[routes]]", "[[routes]]\nwrong_hit_limit = 0.1", 1)):
        await folder.write(text)
        control = folder.cache.control(folder.cache.policy.find_route("faq"))
        assert control.evidence[SAME_WORDS][0].labelled == 30
    assert control.limit == 0.1
    await folder.cache.close()


async def test_a_changed_source_is_noticed_and_its_answers_go(tmp_path: Path) -> None:
    source = tmp_path / "docs.md"
    source.write_text("30 days")
    folder = Folder(tmp_path, faq('knowledge = { docs = "@docs.md", prices = "7" }'))
    cache, asked = folder.cache, folder.ask()
    assert [item.partition("@")[0] for item in asked.knowledge] == ["docs", "prices"]
    await cache.keep(asked, entry(asked))
    assert await cache.find_exact(folder.ask()) is not None
    source.write_text("14 days")
    await folder.opened.file.reload()
    later = folder.ask()
    assert later.id != asked.id and later.scope != asked.scope
    assert await cache.find_exact(later) is None
    assert (await cache.measure()).entries == 0  # type: ignore[union-attr]
    source.write_text("30 days")
    await folder.opened.file.reload()
    # The same content is the same version, whenever it was written.
    assert folder.ask().id == asked.id
    (changed, *_) = [e for e in folder.audited() if e["event"] == "file"]
    assert changed["key"] == "routes.faq.knowledge" and changed["before"] != changed["after"]
    await cache.close()


async def test_a_source_that_is_out_of_reach_for_a_while_keeps_its_answers(tmp_path: Path) -> None:
    source = tmp_path / "docs.md"
    source.write_text("30 days")
    folder = Folder(tmp_path, faq('knowledge = { docs = "@docs.md" }'))
    cache, asked = folder.cache, folder.ask()
    await cache.keep(asked, entry(asked))
    source.unlink()
    await folder.opened.file.reload()
    assert folder.ask() == Bypass("unknown_knowledge")
    source.write_text("30 days")
    await folder.opened.file.reload()
    assert await cache.find_exact(folder.ask()) is not None
    # Another version makes them go, also after it was out of reach.
    source.unlink()
    await folder.opened.file.reload()
    source.write_text("14 days")
    await folder.opened.file.reload()
    assert (await cache.measure()).entries == 0  # type: ignore[union-attr]
    await cache.close()


async def test_a_source_that_cannot_be_read_serves_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        folder = Folder(tmp_path, faq('knowledge = { docs = "@docs.md" }'))
        for _ in range(3):
            await folder.opened.file.reload()
    assert folder.ask() == Bypass("unknown_knowledge")
    assert len(caplog.records) == 1
    # The request may say what the route cannot.
    assert folder.ask(knowledge=("docs@1",)).knowledge == ("docs@1",)
    (tmp_path / "docs.md").write_text("30 days")
    await folder.opened.file.reload()
    assert not isinstance(folder.ask(), Bypass)
    await folder.cache.close()


@pytest.mark.parametrize(
    ("stored", "asked"),
    [
        pytest.param(("docs@1",), ("docs@2",), id="another version"),
        pytest.param(("docs@1",), (), id="none"),
        pytest.param((), ("docs@1",), id="none stored"),
        pytest.param(("docs@1",), ("docs@1", "prices@7"), id="one more source"),
    ],
)
def test_answers_are_for_exactly_the_sources_they_were_made_from(
    stored: tuple[str, ...], asked: tuple[str, ...]
) -> None:
    first, second = (question(caller=Caller(knowledge=of)) for of in (stored, asked))
    assert first.id != second.id and first.scope != second.scope
    assert first.id == question(caller=Caller(knowledge=stored)).id


def test_a_header_that_cannot_be_read_bypasses_the_cache() -> None:
    assert read(caller=Caller(knowledge=None)) == Bypass("unknown_knowledge")
