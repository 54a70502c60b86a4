"""Labelled evidence from a dataset folder."""

import json
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evenkeel.cli import main
from evenkeel.embedding import hash_model, load_encoder
from evenkeel.errors import CannotMeasureError, ConfigurationError
from evenkeel_runtime.response_cache.calibrate import ask_model, calibrate, read_dataset
from evenkeel_runtime.response_cache.command import CACHE
from evenkeel_runtime.response_cache.evidence_file import LABELS_FILE, EvidenceFile
from evenkeel_runtime.response_cache.hit_class import SAME_WORDS
from evenkeel_runtime.response_cache.settings_file import CachePolicy, HitMode, RoutePolicy
from tests.fixtures.http_stub import QuietHandler, serving

DATASET = Path(__file__).parents[4] / "golden_datasets" / "support"
ANSWERS = {
    "How do I return an item?": "Send it back.",
    "How can I return the item?": "Send it back.",
    "How can I return an item please?": "Send it back.",
    "How do I repair an item?": "Call us.",
    "Where is my order?": "On its way.",
}


def run(*argv: str) -> int:
    return main(list(argv), [CACHE])


async def test_a_near_answer_is_right_or_wrong_by_its_label() -> None:
    done = await calibrate(ANSWERS, load_encoder(), "hash")
    assert (done.asked, done.bypassed) == (4, {"about_asker": 1})
    known = [pair for pair in done.labels.pairs if pair.kind == SAME_WORDS]
    assert known and not any(pair.is_wrong for pair in known)
    answers = ANSWERS | {text: f"{n}" for n, text in enumerate(ANSWERS)}
    others = await calibrate(answers, load_encoder(), "hash")
    assert others.labels.pairs and all(pair.is_wrong for pair in others.labels.pairs)


def test_a_dataset_is_its_items_of_one_message_and_its_wordings(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    one = {"messages": [{"role": "user", "content": "a?"}], "reference": "A"}
    two = {"messages": [*one["messages"], *one["messages"]], "reference": "B"}
    others = [{"messages": m, "reference": "C"} for m in (["a?"], [{"content": None}], "a?")]
    (folder / "set.jsonl").write_text("\n".join(map(json.dumps, (one, two, *others))))
    (folder / "wordings.jsonl").write_text(json.dumps({"text": "c?", "answer": "C"}) + "\n")
    assert read_dataset(folder) == {"a?": "A", "c?": "C"}


@pytest.mark.parametrize(
    ("scorer", "reference", "answer"),
    [
        ("exact", "30 days", "30 days"),
        ("normalised", ["30 days", "A month"], "30 days"),
        ({"name": "numeric", "tolerance": 1}, 30, "30"),
        ("json", {"b": 1, "a": 2}, '{"a": 2, "b": 1}'),
        ("json", '{"a": 2}', '{"a": 2}'),
        ({"name": "json", "schema": {}}, None, None),
        ({"name": "all", "of": []}, None, None),
        ("contains", "yes", None),
        ("rubric", "It is polite.", None),
        ("refusal", True, None),
    ],
)
def test_a_reference_that_is_no_answer_is_no_label(
    scorer: Any, reference: Any, answer: str | None, tmp_path: Path
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    messages = [{"role": "user", "content": "a?"}]
    item = {"messages": messages, "reference": reference, "scorer": scorer}
    (folder / "set.jsonl").write_bytes(b"\xef\xbb\xbf" + json.dumps(item).encode())
    assert read_dataset(folder) == {"a?": answer}


def test_a_dataset_without_labels_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    item = {"messages": [{"role": "user", "content": "a?"}], "reference": None, "scorer": "pii"}
    (folder / "set.jsonl").write_text(json.dumps(item))
    assert run("cache", "calibrate", str(folder), "--data-dir", str(tmp_path)) == 2
    assert "--ask" in capsys.readouterr().err
    assert not (tmp_path / LABELS_FILE).exists()


class Model(QuietHandler):
    """Answers each question with itself, in one of the ways in which models end."""

    status, page = 200, json.dumps({"model": "weights-1"})
    routes: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        """Show the page of the cache."""
        self.send_response(self.status)
        self.send_header("content-length", str(len(self.page)))
        self.end_headers()
        self.wfile.write(self.page.encode())

    def do_POST(self) -> None:
        """Answer a request."""
        self.routes.append(self.headers["x-evenkeel-route"])
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        ends = {"cut?": ("half an", "length"), "tool?": (None, "tool_calls"), "none?": ("", "stop")}
        asked = body["messages"][0]["content"]
        content, finish = ends.get(asked, (asked, "stop"))
        choice = {"message": {"content": content}, "finish_reason": finish}
        answer = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        if asked == "cached?":
            self.send_header("x-evenkeel-cache", "semantic")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def test_a_model_that_does_not_end_its_answer_gives_no_label() -> None:
    with serving(HTTPServer(("127.0.0.1", 0), Model)) as url:
        texts = ["whole?", "cut?", "tool?", "none?"]
        assert ask_model(texts, url, "any", None) == {"whole?": "whole?"}


def test_a_models_own_answers_are_asked_for_as_no_traffic(model: tuple[type[Model], str]) -> None:
    model[0].routes = []
    assert ask_model(["own?", "cached?"], model[1], "any", None) == {"own?": "own?"}
    # Unless the file names it, the cache neither answers nor stores on this route.
    assert model[0].routes == ["eval", "eval"]
    assert CachePolicy().find_route("eval").mode is HitMode.OFF


def test_a_model_that_is_refused_is_one_line_without_the_password_of_its_address() -> None:
    class Refusing(QuietHandler):
        def do_POST(self) -> None:
            self.send_error(404)

    with serving(HTTPServer(("127.0.0.1", 0), Refusing)) as url:
        with pytest.raises(CannotMeasureError) as raised:
            ask_model(["q"], url.replace("//", "//me:s3cret@"), "any", None)
    said = str(raised.value)
    assert "404" in said and "s3cret" not in said and "\n" not in said


@pytest.fixture
def model() -> Iterator[tuple[type[Model], str]]:
    class Own(Model):
        pass

    with serving(HTTPServer(("127.0.0.1", 0), Own)) as url:
        yield Own, url


@pytest.fixture
def questions(tmp_path: Path) -> str:
    folder = tmp_path / "set"
    folder.mkdir()
    lines = [json.dumps({"text": text, "answer": answer}) for text, answer in ANSWERS.items()]
    (folder / "wordings.jsonl").write_text("\n".join(lines))
    return str(folder)


def test_a_models_own_answers_are_evidence_for_its_weights_only(
    model: tuple[type[Model], str], questions: str, tmp_path: Path
) -> None:
    ask = ("cache", "calibrate", questions, "--data-dir", str(tmp_path), "--ask", "m")
    assert run(*ask, "--url", model[1]) == 0
    assert EvidenceFile(tmp_path, hash_model(), "weights-1").discarded == {}
    assert LABELS_FILE in EvidenceFile(tmp_path, hash_model(), "weights-2").discarded


def test_a_key_that_cannot_be_sent_is_one_line(
    model: tuple[type[Model], str],
    questions: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("VLLM_API_KEY", "ключ")
    assert run("cache", "calibrate", questions, "--ask", "m", "--url", model[1]) == 2
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1 and "API key" in shown


@pytest.mark.parametrize(
    ("status", "page", "said"),
    [
        pytest.param(
            404, '{"detail": "no cache; start it with --cache"}', "--cache", id="no cache"
        ),
        pytest.param(401, '{"detail": "an API key is required"}', "API key", id="no key"),
        pytest.param(200, '{"model": null}', "which weights", id="no evidence"),
    ],
)
def test_without_the_weights_no_labels_are_written(
    status: int,
    page: str,
    said: str,
    model: tuple[type[Model], str],
    questions: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model[0].status, model[0].page = status, page
    ask = ("cache", "calibrate", questions, "--data-dir", str(tmp_path), "--ask", "m")
    assert run(*ask, "--url", model[1]) == 2
    shown = capsys.readouterr().err
    assert said in shown and shown.count("\n") == 1
    assert not (tmp_path / LABELS_FILE).exists()


def test_an_address_that_is_none_is_refused_without_its_password(
    questions: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = ("cache", "calibrate", questions, "--ask", "m", "--url", "http://ann:s3cret@host:80x")
    assert run(*ask) == 2
    shown = capsys.readouterr().err
    assert "80x" in shown and "s3cret" not in shown


# Half of a character of two.
HALF = r'{"text": "a \ud83d", "answer": "b"}'


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"text": 1}', HALF])
def test_a_folder_that_is_no_dataset_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "wordings.jsonl").write_text(text)
    with pytest.raises(ConfigurationError):
        read_dataset(tmp_path)
    with pytest.raises(ConfigurationError, match="gone is not a folder"):
        read_dataset(tmp_path / "gone")


def test_the_command_writes_what_the_runtime_loads(
    questions: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("cache", "calibrate", questions, "--data-dir", str(tmp_path), "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["texts"] == 4 and said["bypassed"] == {"about_asker": 1}
    assert (tmp_path / LABELS_FILE).stat().st_mode & 0o777 == 0o600
    file = EvidenceFile(tmp_path, hash_model(), "any")
    assert not file.discarded
    assert sum(item.labelled for item in file.open_control(RoutePolicy()).classes) > 0


def test_the_support_dataset_has_rewordings_to_calibrate_with() -> None:
    assert len(read_dataset(DATASET)) > 1000
