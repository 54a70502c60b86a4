"""`evenkeel cache flush` against a server that says what it was asked for."""

import json
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from evenkeel.cli import main
from evenkeel.why.command import WHY
from evenkeel_runtime.response_cache.command import CACHE
from tests.fixtures.http_stub import QuietHandler, serving


class Asked(HTTPServer):
    """Answers each DELETE alike, and keeps what was asked."""

    status, said = 200, '{"deleted": 3}'
    state = '{"modes": {"faq": "serve", "*": "shadow"}}'

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.queries: list[dict[str, str]] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(QuietHandler):
    server: Asked

    def do_DELETE(self) -> None:
        query = parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        self.server.queries.append({name: values[0] for name, values in query.items()})
        self.server.keys.append(self.headers.get("authorization"))
        self._answer(self.server.said.encode())

    def do_GET(self) -> None:
        self._answer(self.server.state.encode())

    def _answer(self, data: bytes) -> None:
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def server() -> Iterator[Asked]:
    asked = Asked()
    with serving(asked):
        yield asked


def run(*argv: str) -> int:
    return main(["cache", "flush", *argv], [CACHE])


@pytest.mark.parametrize(
    ("flags", "query"),
    [
        (["--route", "*"], {"route": "*"}),
        (["--prompt", "support@3"], {"prompt": "support@3"}),
        (["--knowledge", "docs"], {"knowledge": "docs"}),
        (["--tenant", ""], {"tenant": ""}),
        (["--tenant", "acme", "--subject", "ann"], {"tenant": "acme", "subject": "ann"}),
        (["--all"], {"all": "true"}),
    ],
)
def test_what_is_named_is_asked_for(
    flags: list[str], query: dict[str, str], server: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*flags, "--url", server.url + "/") == 0
    assert server.queries == [query]
    assert capsys.readouterr().out == "3 answers deleted\n"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--route", "fqa"], ": the cache file has no route 'fqa'; did you mean 'faq'?"),
        (["--route", "faq"], ": none is stored for route 'faq'"),
        (["--prompt", "support@9"], ": none is stored for prompt 'support@9'"),
        (
            ["--tenant", "acme", "--subject", "ann"],
            ": none is stored for tenant 'acme' and subject 'ann'",
        ),
        (["--all"], ""),
    ],
)
def test_a_name_for_which_nothing_is_stored_is_said(
    flags: list[str], said: str, server: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    server.said = '{"deleted": 0}'
    assert run(*flags, "--url", server.url) == 0
    assert capsys.readouterr().out == f"0 answers deleted{said}\n"


@pytest.mark.parametrize("state", ['{"routes": {}}', "<html>"])
def test_a_server_that_does_not_say_its_routes_is_no_error(
    state: str, server: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    server.said, server.state = '{"deleted": 0}', state
    assert run("--route", "faq", "--url", server.url) == 0
    assert capsys.readouterr().out == "0 answers deleted: none is stored for route 'faq'\n"


def test_json_and_a_key(
    server: Asked, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "secret")
    assert run("--all", "--json", "--url", server.url) == 0
    assert json.loads(capsys.readouterr().out) == {"deleted": 3}
    assert server.keys == ["Bearer secret"]


@pytest.mark.parametrize("key", ["ключ", "schlüssel", "a\nb", "a\tb"])
def test_a_key_that_cannot_be_sent_is_one_line_without_it(
    key: str, server: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "key").write_text(key + "\n", encoding="utf-8")
    flags = ("--api-key", f"@{tmp_path / 'key'}", "--url", server.url)
    assert run("--all", *flags) == 2
    assert main(["why", "x", *flags], [WHY]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 2 and shown.count("API key") == 2 and key not in shown
    assert server.keys == []


@pytest.mark.parametrize(
    ("status", "said", "code"),
    [
        (404, '{"detail": "the response cache is not enabled"}', 2),
        (401, '{"detail": "an API key is required"}', 2),
        (503, '{"detail": "the answers may not have been deleted"}', 3),
        (200, "<html>", 3),
        (200, "[" * 100_000, 3),
    ],
)
def test_a_refusal_is_one_line_and_an_exit_code(
    status: int, said: str, code: int, server: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    server.status, server.said = status, said
    assert run("--all", "--url", server.url) == code
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert "detail" not in said or json.loads(said)["detail"] in shown


def test_no_server_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--all", "--url", "http://127.0.0.1:9") == 3
    assert "did not answer" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://localhost", "http://localhost:80x"])
def test_what_is_no_address_is_a_wrong_flag(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--all", "--url", url) == 2
    assert f"--url is {url!r}, expected one such as" in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags", [[], ["--all", "--route", "faq"], ["--route", "a", "--tenant", "b"]]
)
def test_exactly_one_selection(flags: list[str]) -> None:
    assert run(*flags) == 2


def test_a_subject_needs_its_tenant(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--all", "--subject", "ann") == 2
    assert "--tenant" in capsys.readouterr().err
