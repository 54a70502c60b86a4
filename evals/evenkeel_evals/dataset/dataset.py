"""Golden datasets: `<name>.jsonl` with the items, `<name>.toml` with version, licence and hash."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from evenkeel.errors import ConfigurationError, MissingPartError
from evenkeel.toml_file import read_toml_file
from evenkeel_evals.dataset.version import compare, digest_items, hash_items, read_lock
from evenkeel_evals.scorers.base import Scorer, make_scorer

# Where a checkout keeps its datasets, and how many an error names.
_DATASETS = Path("golden_datasets")
_MOST_NAMED = 6


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Item:
    """One question with its expected answer.

    Attributes:
        id: Unique within the dataset.
        messages: The conversation up to the answer.
        reference: The value the scorer compares with; its type depends on the scorer.
        scorer: How an answer is judged.
        tags: The slices the item belongs to.
        cluster_id: Items with the same id are variants of one question; their errors are not
            independent.
    """

    id: str
    messages: tuple[Message, ...]
    reference: Any
    scorer: Scorer
    tags: tuple[str, ...]
    cluster_id: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """A loaded dataset.

    Attributes:
        name: Name of the folder.
        version: From the .toml.
        content_hash: `sha256:` and the digest of the .jsonl file, whatever its line ends.
        items: Every valid item, in file order.
        problems: One message per bad item, `file:line: what is wrong`, and one if the content
            does not match the .toml; valid items are loaded regardless.
    """

    name: str
    version: str
    content_hash: str
    items: tuple[Item, ...]
    problems: tuple[str, ...]


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid")
    role: str = Field(pattern="^(system|developer|user|assistant|tool)$")
    content: str


class _Row(BaseModel):
    """One line of the .jsonl file."""

    model_config = ConfigDict(extra="forbid")
    id: str = Field(min_length=1)
    messages: list[_Message] = Field(min_length=1)
    reference: Any
    scorer: str | dict[str, Any] = "exact"
    tags: list[str] = []
    cluster_id: str | None = None


class _Card(BaseModel):
    """The keys read from the .toml file; it may have more."""

    version: str
    sha256: str | None = None


def load_dataset(folder: Path) -> Dataset:
    """Read a dataset folder.

    Raises:
        ConfigurationError: If the folder, its .jsonl or its .toml is missing or unreadable, or it
            has no valid item.
    """
    items_path = find_items_file(folder)
    card_path = items_path.with_suffix(".toml")
    card = read_toml_file(card_path, _Card)
    try:
        content = items_path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{items_path} cannot be read: {error.strerror}") from error
    items, problems = _read_items(items_path.name, content.splitlines())
    digest = digest_items(content)
    # Earlier versions locked a file as it is, with its line ends.
    if card.sha256 is not None and card.sha256 not in (digest, sha256(content).hexdigest()):
        problems.append(
            f"{items_path.name}: sha256 is {digest[:12]}…, but {card_path.name} says "
            f"{card.sha256[:12]}…: the items changed since version {card.version}"
        )
    lock = read_lock(items_path)
    difference = None if lock is None else compare(lock, hash_items(content))
    if lock is not None and difference is not None and not difference.is_empty:
        problems.append(
            f"{items_path.name}: differs from the lock of {lock.version}; {difference.describe()}"
        )
    if not items:
        first = f"; first problem: {problems[0]}" if problems else ""
        raise ConfigurationError(f"{items_path} has no usable item{first}")
    return Dataset(items_path.stem, card.version, f"sha256:{digest}", tuple(items), tuple(problems))


def count_clusters(items: Sequence[Item]) -> int:
    """Return how many clusters the items form; an item without one is its own."""
    return len({item.cluster_id for item in items})


def refuse_damaged(dataset: Dataset, *, is_allowed: bool) -> None:
    """Check that a dataset is valid and matches its card and its lock.

    Raises:
        ConfigurationError: If it has a problem and that is not allowed.
    """
    if dataset.problems and not is_allowed:
        more = len(dataset.problems) - 1
        others = f" (and {more} more problem{'s' if more > 1 else ''})" if more else ""
        raise ConfigurationError(
            f"{dataset.problems[0]}{others}; --allow-damaged uses the good items, "
            "`evenkeel eval lock` makes a changed dataset a new version"
        )


def find_items_file(folder: Path) -> Path:
    """Return the .jsonl file of a dataset folder.

    Raises:
        ConfigurationError: If it is not a folder, or does not hold exactly one.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder; {_name_datasets(folder)}")
    named = folder / f"{folder.resolve().name}.jsonl"
    if named.is_file():
        return named
    found = sorted(folder.glob("*.jsonl"))
    if len(found) != 1:
        raise ConfigurationError(
            f"{folder} holds {len(found)} .jsonl files, expected {named.name} or exactly one"
        )
    return found[0]


def _name_datasets(folder: Path) -> str:
    """Return the dataset folders beside a missing one, and in golden_datasets here, as text."""
    found = {
        path.parent
        for place in (folder.parent, _DATASETS)
        for path in place.glob("*/*.jsonl")
        if path.stem == path.parent.name and path.with_suffix(".toml").is_file()
    }
    if not found:
        return f"expected a dataset folder such as {_DATASETS}/support"
    shown = ", ".join(str(path) for path in sorted(found)[:_MOST_NAMED])
    more = len(found) - _MOST_NAMED
    return f"datasets here: {shown}{f' and {more} more' if more > 0 else ''}"


def _read_items(file_name: str, lines: Sequence[bytes]) -> tuple[list[Item], list[str]]:
    items: list[Item] = []
    problems: list[str] = []
    line_of_id: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            item = _read_item(line)
        except MissingPartError:
            # The item is valid; the installation lacks an optional dependency.
            raise
        except (ConfigurationError, ValueError) as error:
            what = _first_problem(error) if isinstance(error, ValidationError) else str(error)
            problems.append(f"{file_name}:{number}: {what}")
            continue
        if item.id in line_of_id:
            problems.append(
                f"{file_name}:{number}: id {item.id!r} is already on line {line_of_id[item.id]}"
            )
            continue
        line_of_id[item.id] = number
        items.append(item)
    return items, problems


def check_row(row: Mapping[str, Any]) -> None:
    """Check that a row is a valid item.

    Raises:
        ConfigurationError: If it is not; the message names the first problem.
    """
    try:
        _read_item(json.dumps(row, ensure_ascii=False).encode())
    except UnicodeEncodeError as error:
        raise ConfigurationError("a text in it contains half of a surrogate pair") from error
    except ValidationError as error:
        raise ConfigurationError(_first_problem(error)) from error


def _read_item(line: bytes) -> Item:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"not JSON: {error}") from error
    if not isinstance(raw, dict):
        raise ConfigurationError(f"is a JSON {type(raw).__name__}, expected an object")
    row = _Row.model_validate(raw)
    return Item(
        id=row.id,
        messages=tuple(Message(m.role, m.content) for m in row.messages),
        reference=row.reference,
        scorer=make_scorer(row.scorer, row.reference),
        tags=tuple(dict.fromkeys(row.tags)),
        cluster_id=row.cluster_id or row.id,
    )


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "item"
    if first["type"] == "missing":
        return f"{where} is missing"
    return f"{where}: {first['msg']} (value {str(first['input'])[:60]!r})"
