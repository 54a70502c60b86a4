"""Caches answers across runs, for accuracy gates only: a cached answer has no latency."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError
from evenkeel.private_files import FOLDER_MODE, replace_private
from evenkeel_evals.ask.client import Reply
from evenkeel_evals.ask.sides import Side
from evenkeel_evals.dataset.dataset import Item


@dataclass(frozen=True, slots=True)
class CacheKey:
    """Everything that determines an answer.

    Attributes:
        side: The side to ask, with its model and sampling.
        engine: Version of the side's server; None if the server does not report one.
        messages: The conversation.
        repeat: Index of this repeat of the same request. A repeat must not reuse an earlier
            repeat's answer, or an inconsistent model would look consistent.
    """

    side: Side
    engine: str | None
    messages: list[dict[str, str]]
    repeat: int

    @property
    def digest(self) -> str:
        """Return the cache key; it covers prompt texts, but not the names of sides and prompts."""
        record = {
            "server": self.side.url if self.side.serve is None else self.side.serve.arguments,
            "model": self.side.model,
            "engine": self.engine,
            "sampling": dict(self.side.sampling),
            "messages": self.messages,
            "repeat": self.repeat,
        }
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


class AnswerCache:
    """A folder of cached answers, one small file each; several runs can share it.

    Args:
        folder: The folder; created if it does not exist.

    Raises:
        ConfigurationError: If it cannot be written.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(
                f"--answer-cache {folder} cannot be written: {error.strerror}"
            ) from error

    def find(self, key: CacheKey, now_ns: int) -> Reply | None:
        """Return the cached answer without latencies; None if it is missing or damaged."""
        try:
            record: dict[str, Any] = json.loads(self._path(key).read_text(encoding="utf-8"))
            return Reply(
                start_ns=now_ns,
                end_ns=now_ns,
                text=str(record["text"]),
                input_tokens=record["input_tokens"],
                output_tokens=record["output_tokens"],
                finish_reason=record["finish_reason"],
                is_cached=True,
            )
        except (OSError, ValueError, RecursionError, KeyError, TypeError):
            return None

    def keep(self, key: CacheKey, reply: Reply) -> None:
        """Cache an answer, but not an error. A full disk disables the cache, not the run."""
        if reply.text is None:
            return
        path = self._path(key)
        record = {
            "text": reply.text,
            "input_tokens": reply.input_tokens,
            "output_tokens": reply.output_tokens,
            "finish_reason": reply.finish_reason,
        }
        with suppress(OSError):
            replace_private(path, json.dumps(record).encode("utf-8", errors="replace"))

    def _path(self, key: CacheKey) -> Path:
        digest = key.digest
        return self._folder / digest[:2] / f"{digest}.json"


@dataclass(frozen=True, slots=True)
class RunCache:
    """How one run uses the cache.

    Attributes:
        cache: The stored answers.
        is_read: Whether cached answers are used; never if a gate is on latency, since then every
            call has to be made.
        sides: Baseline and candidate under "A" and "B", with the models they use.
        engines: Version of each side's server.
        num_repeats: Times the run asks each item per side.
    """

    cache: AnswerCache
    is_read: bool
    sides: Mapping[str, Side]
    engines: Mapping[str, str | None]
    num_repeats: int

    def key(self, letter: str, item: Item, repeat: int) -> CacheKey:
        """Return the cache key of one call.

        If both sides would send the same request, B's calls count as further repeats: reusing
        A's answers would make a side compared with itself look identical.
        """
        found = self._key(letter, item, repeat)
        if letter == "B" and found == self._key("A", item, repeat):
            return self._key("B", item, repeat + self.num_repeats)
        return found

    def _key(self, letter: str, item: Item, repeat: int) -> CacheKey:
        side = self.sides[letter]
        plain = replace(side, name="", prompt_name="", prompt_version="", system=None)
        return CacheKey(plain, self.engines.get(letter), side.messages_for(item), repeat)
