"""Dataset versions: the lock, the changes since, item by item, and the changelog."""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evenkeel.errors import ConfigurationError, first_line

FIRST_VERSION = "1.0.0"
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Lock:
    """A locked version of a dataset.

    Attributes:
        version: The version.
        items: Hash of each item, by id.
    """

    version: str
    items: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Difference:
    """Ids of the items that differ from the lock."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Return whether nothing changed."""
        return not (self.added or self.changed or self.removed)

    def describe(self) -> str:
        """Return one line, with a few ids of each kind."""
        parts = []
        for word in ("added", "changed", "removed"):
            ids: tuple[str, ...] = getattr(self, word)
            if ids:
                more = f" and {len(ids) - _SHOWN} more" if len(ids) > _SHOWN else ""
                parts.append(f"{word}: {', '.join(ids[:_SHOWN])}{more}")
        return "; ".join(parts) or "nothing changed"


def digest_items(content: bytes) -> str:
    """Return the SHA-256 of a .jsonl file, the same with any line ends and a byte order mark.

    A checkout may change these; in JSON they stand between the items, never in one.
    """
    plain = content.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return hashlib.sha256(plain).hexdigest()


def lock_path(items_path: Path) -> Path:
    """Return the path of a .jsonl file's lock."""
    return items_path.with_suffix(".lock.json")


def hash_items(content: bytes) -> dict[str, str]:
    """Return the hash of each item by id, independent of spacing and key order."""
    found: dict[str, str] = {}
    for line in content.splitlines():
        try:
            row = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if isinstance(row, dict) and "id" in row:
            text = json.dumps(row, sort_keys=True, ensure_ascii=False)
            found[str(row["id"])] = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]
    return found


def read_lock(items_path: Path) -> Lock | None:
    """Return the lock, or None if there is none.

    Raises:
        ConfigurationError: If it cannot be read.
    """
    path = lock_path(items_path)
    if not path.exists():
        return None
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return Lock(str(record["version"]), dict(record["items"]))
    except (OSError, ValueError, RecursionError, KeyError, TypeError) as error:
        raise ConfigurationError(
            f"{path} is not a lock; recreate it: evenkeel eval lock"
        ) from error


def compare(lock: Lock, items: Mapping[str, str]) -> Difference:
    """Return the changes since the lock was written."""
    return Difference(
        added=tuple(sorted(items.keys() - lock.items.keys())),
        changed=tuple(
            sorted(k for k in items.keys() & lock.items.keys() if items[k] != lock.items[k])
        ),
        removed=tuple(sorted(lock.items.keys() - items.keys())),
    )


def next_version(version: str, difference: Difference) -> str:
    """Return the version after a change: minor if items were only added, else major.

    Results on changed or removed items are not comparable with older ones.

    Raises:
        ConfigurationError: If `version` is not of the form 1.2.3.
    """
    match = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)", version)
    if match is None:
        raise ConfigurationError(f"version is {version!r}, expected one such as 1.2.0")
    major, minor = int(match[1]), int(match[2])
    if difference.changed or difference.removed:
        return f"{major + 1}.0.0"
    return f"{major}.{minor + 1}.0"


def write_lock(items_path: Path, version: str, difference: Difference, note: str) -> None:
    """Write the lock, card and changelog of a new version.

    The card's other lines are kept as they are.

    Raises:
        ConfigurationError: If a file cannot be written.
    """
    content = items_path.read_bytes()
    card_path, changes_path = items_path.with_suffix(".toml"), items_path.parent / "CHANGELOG.md"
    try:
        card = card_path.read_text(encoding="utf-8") if card_path.exists() else ""
        card = _set(card, "sha256", digest_items(content))
        card_path.write_text(_set(card, "version", version), encoding="utf-8")
        record = {"version": version, "items": hash_items(content)}
        lock_path(items_path).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        old = changes_path.read_text(encoding="utf-8") if changes_path.exists() else ""
        is_first = len(difference.added) == len(record["items"])
        listed = f"- {len(difference.added)} items" if is_first else _listed(difference)
        entry = f"## {version}\n\n{note}\n\n{listed}\n"
        changes_path.write_text(entry + ("\n" + old if old else ""), encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{error.filename} cannot be written: {error.strerror}") from error


def refresh_card(items_path: Path) -> bool:
    """Write the .jsonl file's digest to its card, if that has another; return whether it had.

    For a file whose items are those of the lock, but written in another way.

    Raises:
        ConfigurationError: If the card cannot be read or written.
    """
    card_path = items_path.with_suffix(".toml")
    try:
        card = card_path.read_text(encoding="utf-8")
        fresh = _set(card, "sha256", digest_items(items_path.read_bytes()))
        if fresh == card:
            return False
        card_path.write_text(fresh, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{card_path}: {first_line(error)}") from error
    return True


def _listed(difference: Difference) -> str:
    lines: Sequence[tuple[str, tuple[str, ...]]] = (
        ("added", difference.added),
        ("changed", difference.changed),
        ("removed", difference.removed),
    )
    return "\n".join(f"- {word}: {', '.join(ids)}" for word, ids in lines if ids)


def _set(card: str, key: str, value: str) -> str:
    """Return the TOML with a top-level key set, the rest untouched."""
    line = f'{key} = "{value}"'
    head, table, rest = card.partition("\n[") if not card.startswith("[") else ("", "\n[", card[1:])
    replaced, count = re.subn(rf"(?m)^{key}\s*=.*$", line, head)
    if not count:
        replaced = f"{line}\n{head}" if head else line
    return replaced.rstrip("\n") + "\n" + table + rest
