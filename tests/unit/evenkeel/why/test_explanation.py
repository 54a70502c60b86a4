"""`evenkeel why`: the same explanation from the runtime's answer and from the store."""

import json
from collections.abc import Iterator
from http.server import HTTPServer
from typing import Any

import pytest

from evenkeel import cli
from evenkeel.why.explanation import RequestWhy, from_runtime, from_store, id_tail, tell
from tests.fixtures.http_stub import QuietHandler, serving

LEDGER = {"ttft.queue.budget": 4.0, "ttft.prefill.own": 1.0, "decode.decode.own": 0.5}
SAME: dict[str, Any] = {
    "request_id": "chatcmpl-1", "trace_id": "ab", "model": "support", "tenant": "acme",
    "status": "ok", "arrival": "2026-11-25T00:59:34+00:00", "response_cache": None, "ttft_s": 5.0,
    "decode_s": 0.5, "e2e_s": 5.5,
}  # fmt: skip
ANSWER: dict[str, Any] = SAME | {
    "ledger": LEDGER,
    "without": [
        {"request_id": "chatcmpl-2", "prefill_tokens": 1500, "decode_tokens": 4, "spared_s": 0.3,
         "text": ""},
    ],
    "shared_by": "cost_model", "model_error_ratio": 0.1, "note": None,
    "prefix_cache": {
        "prompt_tokens": 900, "hit_tokens": 100, "missed_tokens": 800, "lost_tokens": 800,
        "miss": "evicted", "cost_s": 0.12,
        "evicted": {"before_arrival_s": 3.0, "for_request": "chatcmpl-3"}, "diverged": None,
    },
    "cancelled": None,
}  # fmt: skip
ROW: dict[str, Any] = SAME | {
    "num_found": 1,
    "ledger": LEDGER,
    "attributes": {
        "evenkeel.rivals.request_ids": '["chatcmpl-2"]',
        "evenkeel.rivals.cost_s": "[0.3]",
        "evenkeel.rivals.prefill_tokens": "[1500]",
        "evenkeel.rivals.decode_tokens": "[4]",
        "evenkeel.prefix.miss": "evicted",
        "evenkeel.prefix.missed_tokens": "800",
        "evenkeel.prefix.cost_s": "0.12",
        "evenkeel.prefix.evicted_s": "3.0",
        "evenkeel.prefix.evicted_by": "chatcmpl-3",
    },
}


def test_runtime_and_store_give_the_same_explanation() -> None:
    assert from_runtime(ANSWER) == from_store(ROW)


def test_the_text_has_the_cause_who_delayed_it_and_what_would_help() -> None:
    text = "\n".join(tell(from_runtime(ANSWER), 200))
    assert text.splitlines()[0].startswith("chatcmpl-1  ok  support  acme")
    assert "Without waiting for batch capacity, the first token would have come after 1 s" in text
    assert "to the first token, 5 s" in text and "80%" in text
    assert "300 ms  chatcmpl-2, prompt of 1,500 tokens and 4 tokens decoded" in text
    assert "evicted 3 s before this request arrived by chatcmpl-3" in text
    assert "--max-num-batched-tokens" in text
    assert "ttft.queue.budget" not in text, "no internal name on a screen"


def test_no_line_is_longer_than_asked_for() -> None:
    assert max(map(len, tell(from_runtime(ANSWER), 72))) <= 72


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"response_cache": "exact", "ledger": {}}, "The response cache answered it"),
        ({"ledger": {}}, "It has no ledger"),
        ({"ttft_s": None, "status": "aborted"}, "ended without a token after 5.5 s: aborted"),
        ({"ttft_s": None}, "It took 5.5 s; its sender does not report when the first token came."),
        ({"num_found": 1_412}, "1,412 requests have this ID; this is the newest."),
        (
            {"reasoning_tokens": 2140, "visible_tokens": 60, "visible_ttft_s": 12.0},
            "after 5 s. The answer has 2,140 tokens of reasoning. Its first visible token came "
            "after 12 s.",
        ),
        (
            {"reasoning_tokens": 2140, "visible_tokens": 0},
            "The answer has 2,140 tokens of reasoning. It shows nothing.",
        ),
        ({"repeated_share": 0.62}, "62% of the answer repeats what it has said before."),
        ({"tool_calls_failed": 1}, "Tool calls in the answer that did not parse: 1."),
    ],
)
def test_what_is_missing_or_odd_is_said(changes: dict[str, Any], expected: str) -> None:
    assert expected in " ".join(tell(from_store(ROW | changes), 1000))


def test_a_request_of_another_tenant_has_no_name() -> None:
    rival = ANSWER["without"][0] | {"request_id": None}
    text = "\n".join(tell(from_runtime(ANSWER | {"without": [rival]})))
    assert "another tenant's request, prompt of 1,500 tokens" in text


def test_as_json_it_has_the_sentences_and_the_flags() -> None:
    found: RequestWhy = from_runtime(ANSWER)
    said = json.loads(json.dumps(found.to_json()))
    assert said["ledger"] == LEDGER and said["without"][0]["request_id"] == "chatcmpl-2"
    assert said["explanation"][0].startswith("Without waiting for batch capacity")
    assert said["what_would_help"][0]["cause"] == "queue.budget"


@pytest.mark.parametrize("rivals", ["[NaN]", "[1e999]", '["long"]', "[null]", "[[]]"])
def test_numbers_of_a_span_that_are_none_are_left_out(rivals: str) -> None:
    attributes = ROW["attributes"] | {
        "evenkeel.rivals.cost_s": rivals,
        "evenkeel.prefix.missed_tokens": "nan",
        "evenkeel.prefix.cost_s": "inf",
    }
    found = from_store(ROW | {"attributes": attributes})
    assert found.without == [] and found.prefix is not None
    assert found.prefix.missed_tokens is None and found.prefix.cost_s is None
    assert list(tell(found))


# Paths that `foreign` was asked for.
asked: list[str] = []


@pytest.fixture
def foreign(request: pytest.FixtureRequest) -> Iterator[str]:
    """Return the address of a server that answers everything with the parameter."""
    asked.clear()

    class Handler(QuietHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(request.param)

    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as url:
        yield url


@pytest.mark.parametrize(
    "foreign",
    [
        b"<html>", b"\xff", b"[]", b"{}", b'{"status": "ok"}', b"[" * 100_000,
        json.dumps(ANSWER | {"ledger": [1]}).encode(),
        json.dumps(ANSWER | {"ledger": {"ttft.queue.budget": "long"}}).encode(),
        json.dumps(ANSWER | {"without": [{}]}).encode(),
        json.dumps(ANSWER | {"prefix_cache": {"miss": "evicted"}}).encode(),
    ],
    indirect=True,
)  # fmt: skip
def test_who_is_no_runtime_is_named_in_one_line(
    foreign: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["why", "x", "--url", foreign]) == 3
    err = capsys.readouterr().err
    assert "did not answer as a runtime does" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"title": "Unauthorized", "detail": "an API key is required"}', "an API key is required"),
        ("no entry", "no entry"),
        ("[1]", "[1]"),
        ('{"detail": "two\\nlines"}', "two lines"),
        ("<html>\n<h1>no</h1>", "<html> <h1>no</h1>"),
        ('{"detail": "' + 200 * "x" + '"}', 160 * "x"),
    ],
)
def test_a_refusal_is_told_by_its_reason(
    text: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    class Handler(QuietHandler):
        def do_GET(self) -> None:
            self.send_response(401)
            self.end_headers()
            self.wfile.write(text.encode())

    with serving(HTTPServer(("127.0.0.1", 0), Handler)) as url:
        assert cli.main(["why", "x", "--url", url.replace("//", "//user:s3cret@")]) == 3
    warning, line = capsys.readouterr().err.splitlines()
    assert warning.startswith("warning: the address contains a secret")
    assert line == f"evenkeel: {url}/why/x answered 401: {reason}"


@pytest.mark.parametrize(
    ("url", "code"),
    [("http://user:s3cret@127.0.0.1:1", 3), ("http://user:s3cret/x@h", 2), ("user:s3cret@h", 2)],
)
def test_an_address_is_shown_without_its_password(
    url: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["why", "x", "--url", url]) == code
    assert "s3cret" not in capsys.readouterr().err


@pytest.mark.parametrize("foreign", [json.dumps(ANSWER).encode()], indirect=True)
def test_an_id_with_any_characters_is_asked_for_whole(foreign: str) -> None:
    assert cli.main(["why", "a b/c?d#e%2F", "--url", foreign]) == 0
    assert asked == ["/why/a%20b%2Fc%3Fd%23e%252F"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["why"], 2, "ID"),
        (["why", "x", "--url", "http://127.0.0.1:1"], 3, "is `evenkeel serve` running?"),
        (["why", "x", "--store-url", "http://127.0.0.1:1"], 3, "is `evenkeel collect` running?"),
        (["why", "x", "--store-url", "nowhere"], 2, "expected one such as"),
        (["why", "x", "--url", "http://a", "--store-url", "http://b"], 2, "not allowed"),
    ],
)
def test_an_error_is_one_line(
    arguments: list[str], code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(arguments) == code
    err = capsys.readouterr().err
    assert message in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("…4390755b7409", "4390755b7409"),
        ("4390755b7409", "4390755b7409"),
        ("...755b7409", "755b7409"),
        ("…", ""),
        ("7409", ""),
        ("chatcmpl-0123456789abcdef0123456789abcdef", ""),
        ("0123456789abcdef0123456789abcdef", ""),
    ],
)
def test_the_end_of_an_id_is_told_from_a_whole_one(text: str, tail: str) -> None:
    assert id_tail(text) == tail
