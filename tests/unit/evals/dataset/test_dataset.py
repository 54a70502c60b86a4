"""Loading golden datasets, good and bad."""

import codecs
import hashlib
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_evals.commands.dataset import run_lock
from evenkeel_evals.dataset.dataset import load_dataset, refuse_damaged
from evenkeel_evals.dataset.version import hash_items

GOOD = {
    "id": "a",
    "messages": [{"role": "user", "content": "2 + 2?"}],
    "reference": "4",
    "scorer": "exact",
    "tags": ["sums"],
    "cluster_id": "c1",
}


def write(folder: Path, lines: list[Any], card: str = "", with_hash: bool = True) -> Path:
    folder = folder / "sums"
    folder.mkdir()
    text = "".join(
        (line if isinstance(line, str) else json.dumps(line, ensure_ascii=False)) + "\n"
        for line in lines
    )
    (folder / "sums.jsonl").write_text(text, encoding="utf-8")
    digest = hashlib.sha256(text.encode()).hexdigest()
    named = f'sha256 = "{digest}"\n' if with_hash else ""
    (folder / "sums.toml").write_text(f'version = "1.0.0"\n{named}{card}', encoding="utf-8")
    return folder


def test_a_good_dataset_loads_whole(tmp_path: Path) -> None:
    last = {**GOOD, "id": "b", "cluster_id": None, "tags": ["sums", "easy", "sums"]}
    dataset = load_dataset(write(tmp_path, [GOOD, last]))
    assert (dataset.name, dataset.version, dataset.problems) == ("sums", "1.0.0", ())
    assert [item.id for item in dataset.items] == ["a", "b"]
    assert [item.tags for item in dataset.items] == [("sums",), ("sums", "easy")]
    assert [item.cluster_id for item in dataset.items] == ["c1", "b"]
    assert dataset.items[0].scorer.score(" 4 ").value == 1.0


@pytest.mark.parametrize(
    ("name", "line", "problem"),
    [
        ("not JSON", "{", "not JSON"),
        ("too deep", "[" * 100_000, "not JSON"),
        ("not an object", "[1]", "is a JSON list"),
        ("no messages", {k: v for k, v in GOOD.items() if k != "messages"}, "messages is missing"),
        ("empty messages", {**GOOD, "id": "z", "messages": []}, "messages"),
        ("strange role", {**GOOD, "messages": [{"role": "robot", "content": "?"}]}, "role"),
        ("unknown key", {**GOOD, "id": "z", "refrence": 1}, "refrence"),
        ("unknown scorer", {**GOOD, "id": "z", "scorer": "vibes"}, "scorer 'vibes' is unknown"),
        ("scorer option", {**GOOD, "id": "z", "scorer": {"name": "exact", "x": 1}}, "option 'x'"),
        ("reference", {**GOOD, "id": "z", "reference": 4}, "needs a string"),
        ("duplicate id", GOOD, "id 'a' is already on line 1"),
    ],
)
def test_a_bad_item_is_one_line_with_its_place_and_the_rest_is_kept(
    tmp_path: Path, name: str, line: Any, problem: str
) -> None:
    dataset = load_dataset(write(tmp_path, [GOOD, line, {**GOOD, "id": "last"}]))
    assert [item.id for item in dataset.items] == ["a", "last"], name
    assert len(dataset.problems) == 1
    assert dataset.problems[0].startswith("sums.jsonl:2: ")
    assert problem in dataset.problems[0]
    assert "\n" not in dataset.problems[0]


def test_items_that_are_not_what_the_card_says_are_reported(tmp_path: Path) -> None:
    folder = write(tmp_path, [GOOD])
    items = folder / "sums.jsonl"
    items.write_text(items.read_text() + json.dumps({**GOOD, "id": "b"}) + "\n")
    dataset = load_dataset(folder)
    assert len(dataset.items) == 2
    assert "the items changed since version 1.0.0" in dataset.problems[0]


def test_the_hash_is_that_of_the_items_file(tmp_path: Path) -> None:
    folder = write(tmp_path, [GOOD])
    digest = hashlib.sha256((folder / "sums.jsonl").read_bytes()).hexdigest()
    assert load_dataset(folder).content_hash == f"sha256:{digest}"


def test_text_that_only_looks_like_a_line_end_does_not_end_a_line(tmp_path: Path) -> None:
    item = {**GOOD, "messages": [{"role": "user", "content": "a\u2028b\x85c"}]}
    dataset = load_dataset(write(tmp_path, [item]))
    assert dataset.items[0].messages[0].content == "a\u2028b\x85c"


def test_a_missing_folder_is_refused_with_the_datasets_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=r"expected a dataset folder such as golden_d"):
        load_dataset(Path("nosuch"))
    for place in (tmp_path, tmp_path / "golden_datasets"):
        place.mkdir(exist_ok=True)
        write(place, [GOOD])
    with pytest.raises(
        ConfigurationError,
        match=r"nosuch is not a folder; datasets here: golden_datasets/sums, sums",
    ):
        load_dataset(Path("nosuch"))


def test_what_is_no_dataset_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is not a folder"):
        load_dataset(tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match=r"0 \.jsonl files"):
        load_dataset(tmp_path)
    with pytest.raises(ConfigurationError, match=r"no usable item.*sums\.jsonl:1: not JSON"):
        load_dataset(write(tmp_path, ["{"]))


@pytest.mark.parametrize(
    ("card", "what"), [("version = ", "is not TOML"), ("", "version is missing")]
)
def test_a_bad_card_is_refused(tmp_path: Path, card: str, what: str) -> None:
    folder = write(tmp_path, [GOOD])
    (folder / "sums.toml").write_text(card)
    with pytest.raises(ConfigurationError, match=what):
        load_dataset(folder)


def test_a_damaged_dataset_is_refused_unless_it_is_allowed(tmp_path: Path) -> None:
    dataset = load_dataset(write(tmp_path, [GOOD, "{", "["]))
    with pytest.raises(ConfigurationError, match=r"sums.jsonl:2: .* \(and 1 more problem\)"):
        refuse_damaged(dataset, is_allowed=False)
    refuse_damaged(dataset, is_allowed=True)


def test_a_dataset_that_is_not_what_its_card_says_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path, [GOOD])
    with (folder / "sums.jsonl").open("a") as file:
        file.write(json.dumps({**GOOD, "id": "z"}) + "\n")
    with pytest.raises(ConfigurationError, match="the items changed since"):
        refuse_damaged(load_dataset(folder), is_allowed=False)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_the_lock_has_every_item_however_its_lines_end(tmp_path: Path, end: str) -> None:
    folder = write(tmp_path, [GOOD])
    rows = [GOOD | {"id": name} for name in ("a", "b")]
    content = "".join(json.dumps(row) + end for row in rows).encode()
    (folder / "sums.jsonl").write_bytes(content)
    assert len(load_dataset(folder).items) == len(hash_items(content)) == 2


@pytest.mark.parametrize("end", [b"\r\n", b"\r"])
@pytest.mark.parametrize("start", [b"", codecs.BOM_UTF8])
def test_line_ends_and_a_byte_order_mark_do_not_change_a_dataset(
    tmp_path: Path, start: bytes, end: bytes
) -> None:
    folder = write(tmp_path, [GOOD, {**GOOD, "id": "z"}])
    before = load_dataset(folder)
    content = (folder / "sums.jsonl").read_bytes()
    (folder / "sums.jsonl").write_bytes(start + content.replace(b"\n", end))
    after = load_dataset(folder)
    assert (after.problems, after.content_hash) == ((), before.content_hash)


def test_a_file_that_was_locked_with_its_line_ends_still_matches(tmp_path: Path) -> None:
    folder = write(tmp_path, [GOOD])
    content = (folder / "sums.jsonl").read_bytes().replace(b"\n", b"\r\n")
    (folder / "sums.jsonl").write_bytes(content)
    card = f'version = "1"\nsha256 = "{hashlib.sha256(content).hexdigest()}"\n'
    (folder / "sums.toml").write_text(card)
    assert load_dataset(folder).problems == ()


def test_a_lock_of_the_same_items_written_in_another_way_makes_them_usable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, [GOOD])
    lock = Namespace(dataset=folder, note="first", check=False)
    run_lock(lock)
    rewritten = json.dumps(dict(reversed(GOOD.items())), indent=None, separators=(",", ":"))
    (folder / "sums.jsonl").write_text(rewritten + "\n")
    assert "the items changed" in load_dataset(folder).problems[0]
    run_lock(lock)
    assert "sums@1.0.0: the same items, written in another way" in capsys.readouterr().out
    assert load_dataset(folder).problems == ()
    run_lock(lock)
    assert "sums@1.0.0: nothing changed" in capsys.readouterr().out
