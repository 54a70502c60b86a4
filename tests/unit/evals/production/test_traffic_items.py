"""Recorded requests of any format become items, sampled by seed up to the limit."""

import json
from pathlib import Path
from typing import Any

import pytest

from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel_evals.production.traffic_items import load_traffic


def stored(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def request(number: int, **more: Any) -> dict[str, Any]:
    return {
        "trace_id": f"{number:032x}",
        "tenant": "acme",
        "input_messages": stored("user", f"Question {number}?"),
        "output_messages": stored("assistant", f"Answer {number}."),
        **more,
    }


def write(folder: Path, *rows: Any) -> str:
    path = folder / "traffic.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_request_is_an_item_with_what_was_answered_as_reference(tmp_path: Path) -> None:
    item_row = {"id": "own", "messages": [{"role": "user", "content": "Hi"}], "reference": "Hello"}
    as_objects = request(2) | {"input_messages": json.loads(request(2)["input_messages"])}
    source = write(tmp_path, request(1), as_objects, item_row, request(1))
    items = {i.id: i for i in load_traffic(source, 0, None, 0, None).items}
    assert set(items) == {f"{1:032x}", f"{2:032x}", "own"}
    first = items[f"{1:032x}"]
    assert (first.messages[0].content, first.reference) == ("Question 1?", "Answer 1.")
    assert (first.tags, first.scorer.name) == (("acme",), "normalised")


def test_the_same_question_is_one_cluster(tmp_path: Path) -> None:
    rows = [request(n, input_messages=stored("user", "Same?")) for n in range(3)]
    items = load_traffic(write(tmp_path, *rows), 0, None, 0, None).items
    assert len({i.cluster_id for i in items}) == 1 and len(items) == 3


def test_a_sample_depends_on_the_seed_and_not_on_the_order(tmp_path: Path) -> None:
    rows = [request(n) for n in range(3_000)]

    def drawn(seed: int, order: int = 1) -> list[str]:
        dataset = load_traffic(write(tmp_path, *rows[::order]), 0, 50, seed, None)
        return [item.id for item in dataset.items]

    assert drawn(1) == drawn(1) == drawn(1, -1)
    assert drawn(1) != drawn(2)
    assert len(drawn(1)) == 50
    assert len(load_traffic(write(tmp_path, *rows), 0, None, 0, None).items) == 300


def test_a_run_goes_on_with_the_requests_that_it_began_with(tmp_path: Path) -> None:
    kept = tmp_path / "report" / "traffic"
    first = load_traffic(write(tmp_path, request(1), request(2)), 0, None, 0, kept)
    again = load_traffic(write(tmp_path, request(3)), 0, None, 0, kept)
    assert again.content_hash == first.content_hash
    modes = {path.stat().st_mode & 0o077 for path in (kept, *kept.iterdir())}
    assert modes == {0}


def test_requests_without_content_are_left_out(tmp_path: Path) -> None:
    source = write(tmp_path, request(1, output_messages=""), request(2, input_messages="[]"))
    with pytest.raises(CannotMeasureError, match="no request with a question and an answer"):
        load_traffic(source, 0, None, 0, None)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(b"{\n", "traffic.jsonl:1 is not JSON", id="no JSON"),
        pytest.param(b"\n[1]\n", "traffic.jsonl:2 is a JSON list", id="a list"),
        pytest.param(b"{}\n", "is not a recorded request", id="something else"),
        pytest.param(b"[" * 100_000, "is not JSON", id="nested without end"),
        pytest.param(b'"' + b"x" * 5_000_000, "is longer than", id="a line without end"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "traffic.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        load_traffic(str(path), 0, None, 0, None)


@pytest.mark.parametrize("limit", [0, -1, 10_001])
def test_a_sample_out_of_bounds_is_refused(tmp_path: Path, limit: int) -> None:
    with pytest.raises(ConfigurationError, match="expected 1 to 10,000"):
        load_traffic(write(tmp_path, request(1)), 0, limit, 0, None)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="No such file"):
        load_traffic(str(tmp_path / "nowhere.jsonl"), 0, None, 0, None)
