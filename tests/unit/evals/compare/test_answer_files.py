"""Answers recorded elsewhere: supported formats, and messages about lines that do not fit."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.errors import ConfigurationError
from evenkeel_evals.compare import answer_files
from evenkeel_evals.compare.answer_files import AnswerFile, read_answers


def read(lines: list[Any], folder: Path, name: str = "a.jsonl") -> AnswerFile:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / name).write_text("\n".join(texts), encoding="utf-8")
    return read_answers(folder / name)


CHOICES = [{"message": {"role": "assistant", "content": "Paris"}}]


@pytest.mark.parametrize(
    "record",
    [
        {"id": "q", "answer": "Paris"},
        {"id": "q", "output": "Paris"},
        {"id": "q", "response": "Paris"},
        {"id": "q", "completion": "Paris"},
        {"id": "q", "choices": CHOICES},
        {"id": "q", "choices": [{"text": "Paris"}]},
        {"id": "q", "response": {"choices": CHOICES}},
        {"id": "q", "output": {"role": "assistant", "content": "Paris"}},
        {"id": "q", "messages": [{"role": "user", "content": "?"}, CHOICES[0]["message"]]},
        {"id": "q", "answer": [{"type": "text", "text": "Paris"}]},
        # An OpenAI batch line: the id of the response is not that of the item.
        {
            "id": "batch_1",
            "custom_id": "q",
            "error": None,
            "response": {"status_code": 200, "body": {"id": "chatcmpl-1", "choices": CHOICES}},
        },
    ],
)
def test_shapes(record: dict[str, Any], tmp_path: Path) -> None:
    found = read([record], tmp_path)
    assert found.answers["q"].reply.text == "Paris"
    assert found.problems == ()


def test_times_tokens_and_cost(tmp_path: Path) -> None:
    found = read(
        [
            {
                "id": 1,
                "answer": "",
                "ttft_s": 0.5,
                "e2e_s": 1.5,
                "output_tokens": 11,
                "cost": 0.01,
                "trace_id": "a" * 32,
            },
            {"id": 2, "answer": "x", "usage": {"prompt_tokens": 7, "completion_tokens": 1}},
            {"id": 3, "error": {"message": "HTTP 500: broken\nmore"}, "answer": None},
            {"id": 4, "answer": "x", "e2e_s": -1, "ttft_s": "soon", "cost": True},
            {"id": 5, "answer": "x", "ttft_s": 2, "e2e_s": 1},
            '{"id": 6, "answer": "x", "e2e_s": NaN}',
        ],
        tmp_path,
    )
    first, second = found.answers["1"], found.answers["2"]
    assert (first.reply.text, first.reply.tpot_s, first.cost) == ("", 0.1, 0.01)
    assert first.trace_id == "a" * 32
    assert (second.reply.input_tokens, second.reply.output_tokens) == (7, 1)
    assert (found.answers["3"].reply.text, found.answers["3"].reply.error) == (
        None,
        "HTTP 500: broken",
    )
    assert {found.answers[i].reply.e2e_s for i in "456"} == {None}
    assert [problem.partition(": ")[2] for problem in found.problems] == [
        "ttft_s is 'soon', expected a number of 0 or more; it is not used",
        "e2e_s is -1, expected a number of 0 or more; it is not used",
        "cost is True, expected a number of 0 or more; it is not used",
        "ttft_s 2 is above e2e_s 1; neither is used",
        "e2e_s is nan, expected a number of 0 or more; it is not used",
    ]


def test_lines_that_do_not_fit_are_named(tmp_path: Path) -> None:
    lines = [
        '{"id": "a", "answer": "1"}',
        "{",
        "",
        "[1]",
        '{"answer": "x"}',
        '{"id": "b"}',
        '{"id": "a", "answer": "2"}',
        '{"id": {}, "answer": "x"}',
        "[" * 100_000,
    ]
    found = read(lines, tmp_path)
    assert found.answers["a"].reply.text == "1"
    assert len(found.answers) == 1
    assert [problem[:34] for problem in found.problems] == [
        "a.jsonl:2: not JSON: Expecting pro",
        "a.jsonl:4: is not an object",
        "a.jsonl:5: has no id; expected one",
        "a.jsonl:6: has no answer; expected",
        "a.jsonl:7: id 'a' is already at a.",
        "a.jsonl:8: has no id; expected one",
        "a.jsonl:9: not JSON: maximum recur",
    ]


def test_problems_are_counted_beyond_a_hundred(tmp_path: Path) -> None:
    found = read(['{"id": "a", "answer": "1"}', *["{"] * 150], tmp_path)
    assert (len(found.problems), found.problems[-1]) == (101, "and 50 more")


def test_a_log_of_inspect(tmp_path: Path) -> None:
    sample = {
        "id": 7,
        "epoch": 1,
        "output": {
            "choices": CHOICES,
            "time": 1.25,
            "usage": {"input_tokens": 3, "output_tokens": 4},
        },
    }
    again = {**sample, "epoch": 2}
    failed = {"id": 8, "epoch": 1, "output": {}, "error": {"message": "limit"}}
    log = {"eval": {"task": "t"}, "samples": [sample, again, failed]}
    found = read([log], tmp_path, "log.json")
    assert (found.answers["7"].reply.text, found.answers["7"].reply.e2e_s) == ("Paris", 1.25)
    assert "limit" in str(found.answers["8"].reply.error)
    assert found.problems == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no answers"),
        (b"{\n", "has no answers; first problem: a.jsonl:1: not JSON"),
        (b'{"id": "a", "answer": "\xff"}', "a.jsonl:1 is not UTF-8"),
        (b"x" * 3_000, "a.jsonl:1 is longer than"),
        (b'{"id": "a", "answer": "1"}\n' * 200, "is larger than"),
        (
            b'{"id": "a", "answer": "1"}\n{"id": "b", "answer": "1"}\n{"id": "c", "answer": "1"}',
            "more than 2 answers",
        ),
    ],
)
def test_files_are_bounded(
    content: bytes, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_files, "MAX_FILE_BYTES", 4_000)
    monkeypatch.setattr(answer_files, "MAX_LINE_BYTES", 2_000)
    monkeypatch.setattr(answer_files, "MAX_ANSWERS", 2)
    (tmp_path / "a.jsonl").write_bytes(content)
    with pytest.raises(ConfigurationError, match=message):
        read_answers(tmp_path / "a.jsonl")


VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
KEYS = st.sampled_from(
    [
        *answer_files.ID_KEYS,
        *answer_files.TEXT_KEYS,
        "error",
        "usage",
        "ttft_s",
        "e2e_s",
        "cost",
        "output_tokens",
    ]
)


@given(st.dictionaries(KEYS, VALUES))
def test_no_record_raises_anything_else(tmp_path_factory: Any, record: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("any")
    try:
        read([record], folder)
    except ConfigurationError as error:
        assert "has no answers" in str(error)


def test_a_failed_request_is_told_from_a_missing_answer(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        {"id": "null", "answer": None, "e2e_s": 0.1},
        {"id": "failed", "error": "HTTP 500", "ttft_s": 0.01, "e2e_s": 0.03, "output_tokens": 3},
        {"id": "late", "error": "timed out after 30 s"},
        {"id": "limit", "error": "Request timeout", "e2e_s": 30.0},
        {"id": "mute", "error": "timeout", "e2e_s": 29, "output_tokens": 11},
        {"id": "slow", "error": "timeout", "ttft_s": 9, "e2e_s": 29, "output_tokens": 11},
        {"id": "fine", "answer": "A", "error": {}, "e2e_s": 2.0},
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    replies = {name: given.reply for name, given in read_answers(path).answers.items()}
    assert replies["null"].error == "its answer has no text"
    assert (replies["failed"].ttft_s, replies["failed"].e2e_s) == (None, None)
    assert (replies["limit"].has_timed_out, replies["limit"].e2e_s) == (True, 30.0)
    # The timeout is unknown: at least as long as the longest answer.
    assert (replies["late"].has_timed_out, replies["late"].e2e_s) == (True, 30.0)
    assert (replies["mute"].has_timed_out, replies["mute"].tpot_s) == (True, None)
    assert replies["failed"].tpot_s is None
    assert (replies["slow"].has_timed_out, replies["slow"].tpot_s) == (True, 2.0)
    assert (replies["fine"].text, replies["fine"].error) == ("A", None)


@pytest.mark.parametrize(
    "cost",
    ["1" + "0" * 400, "NaN", "Infinity", "-1", "true", '"1"'],
    ids=["too large for a float", "NaN", "infinite", "negative", "true", "a text"],
)
def test_a_cost_that_is_none_is_not_used_and_said(cost: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"id": "a", "answer": "x", "cost": {cost}}}\n')
    found = read_answers(path)
    assert found.answers["a"].cost is None
    assert "cost is" in str(found)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"model": "m", "input_tokens": 9, "cached_tokens": 4, "output_tokens": 2}, ("m", 9, 4, 2)),
        (
            {
                "model": "m",
                "usage": {
                    "prompt_tokens": 9,
                    "prompt_tokens_details": {"cached_tokens": 4},
                    "completion_tokens": 2,
                },
            },
            ("m", 9, 4, 2),
        ),
        ({"input_tokens": 9, "cached_tokens": -1}, ("", 9, None, None)),
    ],
    ids=["plain keys", "OpenAI's usage", "nonsense is not used"],
)
def test_what_an_answer_used(
    tmp_path: Path, line: dict[str, Any], expected: tuple[str, int, int | None, int | None]
) -> None:
    given = read([{"id": "a", "answer": "x", **line}], tmp_path).answers["a"]
    reply = given.reply
    found = (given.model, reply.input_tokens, reply.cached_tokens, reply.output_tokens)
    assert found == expected
