"""Promotion needs a run that passed with exactly these texts, or a reason."""

import json
from http.server import HTTPServer
from pathlib import Path

import pytest

from evenkeel.audit import Audit, user_name
from evenkeel.cli import main
from evenkeel.errors import ConfigurationError
from evenkeel.prompts.freeze import Freeze, write_freezes
from evenkeel.prompts.registry import PromptRegistry, digest
from evenkeel_evals.ask.sides import load_side
from evenkeel_evals.commands.prompts import PROMPTS
from evenkeel_evals.report.manifest import hash_of
from tests.fixtures.http_stub import QuietHandler, serving


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "prompts"
    made.mkdir()
    (made / "support.toml").write_text('system = "Be kind."\n')
    return made


def prompts(folder: Path, *arguments: str) -> int:
    return main(["prompts", arguments[0], "--prompts-dir", str(folder), *arguments[1:]], [PROMPTS])


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide any collector folder in the checkout."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EVENKEEL_DATA_DIR", raising=False)


def report(
    folder: Path, a: str, b: str, code: int = 0, verdict: str = "no worse", run_id: str = "r1"
) -> str:
    folder.mkdir(exist_ok=True)
    run = {"run_id": run_id, "exit_code": code, "headline": "as measured", "verdict": verdict}
    texts = {"baseline": {"content_hash": hash_of(a)}, "candidate": {"content_hash": hash_of(b)}}
    side = {"model": "m", "sampling": {"temperature": 0.0}, "serve": None}
    manifest = {"run_id": "r1", "prompts": texts, "sides": {"baseline": side, "candidate": side}}
    (folder / "run.json").write_text(json.dumps(run))
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return str(folder)


class NoTokenizer(QuietHandler):
    def do_POST(self) -> None:
        self.send_error(404)


def test_who_counts_no_tokens_is_named_without_the_password_of_the_address(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(HTTPServer(("127.0.0.1", 0), NoTokenizer)) as url:
        assert prompts(folder, "list", "--url", url.replace("//", "//me:s3cret@")) == 3
    err = capsys.readouterr().err
    assert f"{url} does not count tokens: " in err and "404" in err
    assert prompts(folder, "list", "--url", "http://me:s3cret/x@h") == 2
    assert "s3cret" not in err + capsys.readouterr().err


def test_a_passing_run_promotes_and_one_command_goes_back(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prompts(folder, "promote", "support", "--force", "first version") == 0
    (folder / "support.toml").write_text('system = "Be brief."\n')
    passed = report(tmp_path / "report", "Be kind.", "Be brief.")
    assert prompts(folder, "promote", "support", "--report", passed, "--by", "ann") == 0
    assert prompts(folder, "promote", "support", "--report", passed) == 0, "it is there already"
    registry = PromptRegistry(folder)
    assert registry.resolve("support").system == "Be brief."
    assert [m.reason for m in registry.history("support")] == [
        f"forced: first version ({user_name()})",
        "passed run r1 (ann)",
    ]
    assert prompts(folder, "rollback", "support", "--reason", "complaints") == 0
    assert registry.resolve("support").system == "Be kind."
    assert prompts(folder, "rollback", "support") == 2
    capsys.readouterr()
    assert prompts(folder, "diff", "support@production", "support@draft") == 0
    assert "-Be kind.\n+Be brief." in capsys.readouterr().out
    assert prompts(folder, "list", "--json") == 0
    (listed,) = json.loads(capsys.readouterr().out)["prompts"]
    assert [(v["version"], v["labels"]) for v in listed["versions"]] == [
        (digest("Be kind."), ["production"]),
        (digest("Be brief."), ["draft"]),
    ]
    assert prompts(folder, "show", "support") == 0
    assert "complaints" in capsys.readouterr().out


def test_a_spent_budget_freezes_promotions_but_those_that_are_forced(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prompts(folder, "promote", "support", "--force", "first version") == 0
    (folder / "support.toml").write_text('system = "Be brief."\n')
    passed = report(tmp_path / "report", "Be kind.", "Be brief.")
    write_freezes(folder, [Freeze("chat-ttft", "support", 1_760_000_000)])
    assert prompts(folder, "promote", "support", "--report", passed) == 2
    assert "promotion is frozen: SLO 'chat-ttft' has spent" in capsys.readouterr().err
    assert prompts(folder, "promote", "support", "--force", "it mends the outage") == 0
    assert prompts(folder, "rollback", "support") == 0
    assert PromptRegistry(folder).names() == ["support"]
    write_freezes(folder, [])
    assert prompts(folder, "promote", "support", "--report", passed) == 0


@pytest.mark.parametrize(
    ("name", "arguments", "code", "message"),
    [
        ("a regression", {"code": 1, "verdict": "regressed"}, 1, "did not pass: as measured"),
        ("cannot tell", {"code": 3, "verdict": "inconclusive"}, 3, "inconclusive"),
        ("inconclusive was allowed", {"verdict": "inconclusive"}, 3, "inconclusive"),
        ("another candidate", {"b": "Be rude."}, 2, "other than support@"),
        ("another baseline", {"a": "Be rude."}, 2, "was not compared against support@"),
        ("files of two runs", {"run_id": "r2"}, 2, "belong to different runs"),
    ],
)
def test_other_reports_do_not_promote(
    name: str,
    arguments: dict[str, object],
    code: int,
    message: str,
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    prompts(folder, "promote", "support", "--force", "first")
    (folder / "support.toml").write_text('system = "Be brief."\n')
    given = {"a": "Be kind.", "b": "Be brief.", **arguments}
    made = report(tmp_path / "report", **given)  # type: ignore[arg-type]
    assert prompts(folder, "promote", "support", "--report", made) == code, name
    assert message in capsys.readouterr().err
    assert PromptRegistry(folder).resolve("support").system == "Be kind."


def test_no_report_and_no_reason_do_not_promote(folder: Path, tmp_path: Path) -> None:
    assert prompts(folder, "promote", "support") == 2
    assert prompts(folder, "promote", "support", "--force", " ") == 2
    assert prompts(folder, "promote", "support", "--report", str(tmp_path)) == 2
    assert not (folder / "labels").exists()


def test_a_move_is_a_line_in_the_collectors_audit(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "collector"
    there = ("--data-dir", str(data))
    assert prompts(folder, "promote", "support", "--force", "first", *there) == 2
    assert "is not a collector's folder" in capsys.readouterr().err
    assert not (folder / "labels").exists(), "what cannot be written down is not done"
    data.mkdir()
    assert prompts(folder, "promote", "support", "--force", "first", *there) == 0
    (folder / "support.toml").write_text('system = "Be brief."\n')
    passed = report(tmp_path / "report", "Be kind.", "Be brief.")
    assert prompts(folder, "promote", "support", "--report", passed, "--by", "ann", *there) == 0
    assert prompts(folder, "rollback", "support", *there) == 0
    assert prompts(folder, "rollback", "support", *there) == 2, "refused: no line"
    audit = Audit(data / "audit.db")
    entries = audit.newest(9)
    audit.close()
    me = user_name()
    assert [(e.author, e.action) for e in entries] == [
        (me, "rollback"), ("ann", "promote"), (me, "promote")
    ]  # fmt: skip
    kind, brief = digest("Be kind."), digest("Be brief.")
    assert entries[1].details == {
        "prompt": "support",
        "version": brief,
        "label": "production",
        "run_id": "r1",
        "reason": "",
        "result": {"label": "production", "is": brief, "was": kind},
    }


def test_without_a_collector_the_move_is_in_the_history_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert prompts(folder, "promote", "support", "--force", "first") == 0
    assert "in no audit log" in capsys.readouterr().err
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "collector-id").write_text("0123456789ab")
    assert prompts(folder, "rollback", "support") == 2
    (folder / "support.toml").write_text('system = "Be brief."\n')
    assert prompts(folder, "promote", "support", "--force", "second") == 0
    assert capsys.readouterr().err.count("in no audit log") == 0
    assert (tmp_path / "data" / "audit.db").exists()


def test_a_side_takes_its_prompt_from_the_registry(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "side.toml"
    path.write_text('[prompt]\nref = "support@draft"\n')
    side = load_side(path, "http://h", folder)
    assert side.prompt_label == f"support@{digest('Be kind.')}"
    assert side.system == "Be kind."
    path.write_text('[prompt]\nref = "support@draft"\nsystem = "x"\n')
    with pytest.raises(ConfigurationError, match="has ref and other keys"):
        load_side(path, "http://h", folder)
