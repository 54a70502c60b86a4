"""Writes the dataset `support`: `python -m golden_datasets.support.generate`.

The seed is fixed and all draws come from it, so every run writes the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from golden_datasets.support.items import Author, Dataset
from golden_datasets.support.knowledge import Knowledge, read_knowledge
from golden_datasets.support.rewordings import read_all_wordings

NAME = "support"
VERSION = "2.0.0"
LICENCE = "Apache-2.0"
SEED = "support-1"
FOLDER = Path(__file__).parent
MAX_TOKENS = 96
# Of knowledge/system_prompts.toml: the full prompt is the first role, every section, and the
# longest JSON rule before the section on handing over; the short one is the shortest role alone.
FULL_ROLE, FULL_RULE, SHORT_ROLE = 0, 8, 5


def render(knowledge: Knowledge) -> dict[str, str]:
    """Return the text of every generated file by its path under the dataset's folder."""
    dataset = Author(knowledge, SEED).dataset()
    items = _lines(asdict(item) for item in dataset.items)
    pairs = _lines(asdict(pair) for pair in dataset.pairs)
    return {
        "support.jsonl": items,
        "pairs.jsonl": pairs,
        "wordings.jsonl": _lines({"text": t, "answer": a} for t, a in read_all_wordings()),
        "support.toml": _manifest(dataset, items, pairs),
        "sides/full.toml": _side("full", "1", full_prompt(knowledge)),
        "sides/short.toml": _side("short", "2", knowledge.roles[SHORT_ROLE]),
    }


def full_prompt(knowledge: Knowledge) -> str:
    """Return the long system prompt, with its JSON rule."""
    rule = knowledge.json_rules.train[FULL_RULE]
    return "\n".join(
        [knowledge.roles[FULL_ROLE], *knowledge.sections[:-1], rule, knowledge.sections[-1]]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Write the files; with --check write nothing and return 1 if one differs."""
    parser = argparse.ArgumentParser(
        prog="python -m golden_datasets.support.generate",
        description="Write the golden dataset `support` from its knowledge.",
        epilog="Example: python -m golden_datasets.support.generate --check",
    )
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the files are")
    args = parser.parse_args(argv)
    files = render(read_knowledge())
    if args.check:
        return _compare(args.folder, files)
    for name, text in files.items():
        path = args.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        print(f"wrote {name}: {len(text.splitlines())} lines")
    return 0


def _compare(folder: Path, files: Mapping[str, str]) -> int:
    stale = [name for name, text in files.items() if _read(folder / name) != text.encode()]
    for name in stale:
        print(f"{name} differs from what knowledge/ gives; run without --check", file=sys.stderr)
    return 1 if stale else 0


def _read(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _lines(records: Iterable[dict[str, Any]]) -> str:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _manifest(dataset: Dataset, items: str, pairs: str) -> str:
    counts = Counter(tag for item in dataset.items for tag in item.tags)
    lines = [
        f'name = "{NAME}"',
        f'version = "{VERSION}"',
        f'licence = "{LICENCE}"',
        f'sha256 = "{hashlib.sha256(items.encode()).hexdigest()}"',
        f'pairs_sha256 = "{hashlib.sha256(pairs.encode()).hexdigest()}"',
        f"num_items = {len(dataset.items)}",
        f"num_clusters = {len({item.cluster_id for item in dataset.items})}",
        f"num_pairs = {len(dataset.pairs)}",
        "",
        "[tags]",
        *(f"{tag} = {count}" for tag, count in counts.items()),
    ]
    return "\n".join(lines) + "\n"


def _side(name: str, version: str, system: str) -> str:
    return (
        f'name = "{name}"\n'
        f'model = "{NAME}"\n\n'
        "[prompt]\n"
        f'name = "{NAME}"\n'
        f'version = "{version}"\n'
        f'system = """\n{system}"""\n\n'
        "[sampling]\n"
        "temperature = 0\n"
        f"max_tokens = {MAX_TOKENS}\n"
    )


if __name__ == "__main__":
    sys.exit(main())
