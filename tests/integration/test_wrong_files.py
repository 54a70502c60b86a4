"""Whatever a command is given in place of a file, it says so in one line and exits with code 2."""

import argparse
import importlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from evenkeel.cli import build_parser, find_commands, main
from tests.checkout import ROOT
from tests.fixtures.served_model import free_port

DATASET = str(ROOT / "golden_datasets" / "support")
SIDE = f"{DATASET}/sides/full.toml"
SLOS = str(ROOT / "slos.yaml")
ANSWERS = "answers.jsonl"

WRONG_NAME = "wrong.toml"

# Each file or folder that a command reads, and a command line with FILE in its place.
JUDGE = f"eval judge --dataset {DATASET} --baseline {{}} --candidate {{}}"
RUN = f"eval run {DATASET} --baseline {{}} --candidate {{}}"
COMPARE = f"eval compare {DATASET} --baseline {{}} --candidate {{}}"
BACKTEST = "slo backtest --slos {} --name support-ttft --events {}"
COLLECT = "collect --data-dir new --http-port 0 --grpc-port 0 --query-port 0"
READ = {
    "alerts test --slos": "alerts test --slos FILE",
    "cache calibrate DATASET": "cache calibrate FILE --data-dir new",
    "collect --access": f"{COLLECT} --access FILE",
    "collect --prices": f"{COLLECT} --prices FILE",
    "collect --redaction-rules-file": f"{COLLECT} --redaction-rules-file FILE",
    "collect --slos": f"{COLLECT} --slos FILE",
    "collect --tls-certificate": f"{COLLECT} --tls-certificate FILE --tls-key key.pem",
    "collect --tls-client-ca": (
        f"{COLLECT} --tls-certificate cert.pem --tls-key key.pem --tls-client-ca FILE"
    ),
    "collect --tls-key": f"{COLLECT} --tls-certificate cert.pem --tls-key FILE",
    "dashboard --oidc-secrets": (
        "dashboard --sign-in oidc --users users.toml --oidc-secrets FILE --port PORT"
    ),
    "dashboard --slos": "dashboard --slos FILE --port PORT",
    "dashboard --users": "dashboard --sign-in oidc --users FILE --port PORT",
    "eval bisect CHANGES": "eval bisect FILE --gate shift_e2e<=+10%",
    "eval bisect --dataset": "eval bisect changes.toml --gate shift_e2e<=+10% --dataset FILE",
    "eval calibrate DATASET": f"eval calibrate FILE --side {SIDE}",
    "eval calibrate --side": f"eval calibrate {DATASET} --side FILE",
    "eval compare DATASET": "eval compare FILE --baseline a --candidate b",
    "eval compare --baseline": COMPARE.format("FILE", "b"),
    "eval compare --candidate": COMPARE.format("FILE", "FILE"),
    "eval grow DATASET": "eval grow FILE --list",
    "eval import SOURCE": "eval import jsonl FILE --into new",
    "eval judge --baseline": JUDGE.format("FILE", ANSWERS),
    "eval judge --candidate": JUDGE.format(ANSWERS, "FILE"),
    "eval judge --dataset": f"eval judge --dataset FILE --baseline {ANSWERS} --candidate {ANSWERS}",
    "eval judge --judge": JUDGE.format(ANSWERS, ANSWERS) + " --judge FILE",
    "eval judge --prices": JUDGE.format(ANSWERS, ANSWERS) + " --gate cost<=+5% --prices FILE",
    "eval live CONFIG": "eval live FILE --state state --once",
    "eval lock DATASET": "eval lock FILE --check",
    "eval plan DATASET": "eval plan FILE",
    "eval plan --calibration": f"eval plan {DATASET} --calibration FILE",
    "eval run DATASET": f"eval run FILE --baseline {SIDE} --candidate {SIDE}",
    "eval run --baseline": RUN.format("FILE", SIDE),
    "eval run --calibration": RUN.format(SIDE, SIDE) + " --calibration FILE",
    "eval run --candidate": RUN.format(SIDE, "FILE"),
    "eval run --judge": RUN.format(SIDE, SIDE) + " --judge FILE",
    "eval run --prices": RUN.format(SIDE, SIDE) + " --gate cost<=+5% --prices FILE",
    "eval run --traffic": f"eval run --traffic FILE --baseline {SIDE} --candidate {SIDE}",
    "prices check FILE": "prices check FILE",
    "prices reprice FILE": "prices reprice FILE --data-dir new",
    "prompts suggest --dataset": "prompts suggest --report run --dataset FILE",
    "serve --cache": "serve demo --data-dir new --port PORT --cache FILE",
    "serve --compression": "serve demo --data-dir new --port PORT --compression FILE",
    "serve --control-file": "serve demo --data-dir new --port PORT --control-file FILE",
    "slo backtest --events": BACKTEST.format(SLOS, "FILE"),
    "slo backtest --incidents": BACKTEST.format(SLOS, "events.csv") + " --incidents FILE",
    "slo backtest --slos": BACKTEST.format("FILE", "events.csv"),
    "slo burned --slos": "slo burned --slos FILE --name chat --from 2026-11-20T10:00Z",
    "slo check FILE": "slo check FILE",
    "slo diff NEW": f"slo diff {SLOS} FILE",
    "slo diff OLD": f"slo diff FILE {SLOS}",
    "slo export --slos": "slo export --slos FILE --prometheus",
    "slo import FILE": "slo import FILE",
    "slo report --slos": "slo report --slos FILE",
    "store restore FILE": "store restore FILE --data-dir new",
}
# Files and folders that commands write, and folders that may be empty.
NOT_READ = {
    "--answer-cache", "--cache-dir", "--data-dir", "--into", "--out", "--prompts-dir", "--report",
    "--speculation-store-file", "--state", "FOLDER",
}  # fmt: skip


def a_page(path: Path) -> None:
    path.write_text(
        "# evenkeel\n\nObservability for **LLM serving**: [docs](https://example.com)\n"
    )


def an_empty_file(path: Path) -> None:
    path.touch()


def a_folder(path: Path) -> None:
    path.mkdir()


def binary(path: Path) -> None:
    path.write_bytes(bytes(range(256)) * 16)


def a_socket(path: Path) -> None:
    """Like a file without read permission, which root may read: it cannot be opened."""
    os.mknod(path, stat.S_IFSOCK | 0o600)


def nothing(path: Path) -> None:
    del path


LOADED = (
    "evenkeel_collector.slo.formats.importing",
    "evenkeel_collector.serve.foreground",
    "evenkeel_collector.slo.report_text",
    "evenkeel_collector.store.backup",
    "evenkeel_dashboard.frame.server",
    "evenkeel_evals.commands.bisect",
    "evenkeel_evals.commands.calibrate",
    "evenkeel_evals.commands.dataset",
    "evenkeel_evals.commands.grow",
    "evenkeel_evals.commands.judge",
    "evenkeel_evals.commands.live",
    "evenkeel_evals.commands.plan",
    "evenkeel_evals.commands.run",
    "evenkeel_runtime.compression.settings_file",
    "evenkeel_runtime.response_cache.calibrate",
    "evenkeel_runtime.response_cache.setup",
    "evenkeel_runtime.serve.server",
)
WRONG = (a_page, an_empty_file, a_folder, binary, a_socket, nothing)
RIGHT = {
    ANSWERS: '{"id": "paraphrase-001", "answer": "a"}\n',
    "changes.toml": 'base = "base.toml"\n[[change]]\nname = "next"\nsystem = "Be short."\n',
    "base.toml": Path(SIDE).read_text(),
    "events.csv": "minute,total,bad\n29000000,100,1\n",
    "users.toml": '[[user]]\nemail = "ann@example.com"\ntoken_env = "TOKEN"\n',
}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a certificate and its key."""
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1", "-keyout", folder / "key.pem",
            "-out", folder / "cert.pem",
        ],
        check=True,
        capture_output=True,
    )  # fmt: skip
    return folder


@pytest.fixture
def folder(tmp_path: Path, certificate: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder with files as they should be."""
    monkeypatch.chdir(tmp_path)
    for name, text in RIGHT.items():
        (tmp_path / name).write_text(text)
    for path in certificate.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """Import what commands import when they run, once for all processes."""
    for name in LOADED:
        importlib.import_module(name)


def refusals(words: Sequence[str], folder: Path) -> dict[str, tuple[int, str]]:
    """Return the exit code and the errors of a command for each wrong file.

    In a process of its own: a command that accepts its file may start to serve.
    """
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(600)
        sys.stdout = open(os.devnull, "w")
        for make in WRONG:
            wrong = folder / make.__name__ / WRONG_NAME
            wrong.parent.mkdir()
            make(wrong)
            sys.stderr = io.StringIO()
            code = main([word.replace("FILE", str(wrong)) for word in words])
            found = json.dumps([make.__name__, code, sys.stderr.getvalue()])
            with (folder / "refusals").open("a") as file:
                file.write(f"{found}\n")
        os._exit(0)
    os.waitpid(child, 0)
    lines = map(json.loads, (folder / "refusals").read_text().splitlines())
    return {name: (code, errors) for name, code, errors in lines}


@pytest.mark.parametrize("name", READ)
def test_a_wrong_file_is_one_line(name: str, folder: Path) -> None:
    (folder / "refusals").touch()
    words = READ[name].replace("PORT", str(free_port())).split()
    found = refusals(words, folder)
    for make in WRONG:
        assert make.__name__ in found, f"{make.__name__}: it did not end"
        code, errors = found[make.__name__]
        assert code == 2, f"{make.__name__}: {errors}"
        (line,) = errors.splitlines()
        assert line.startswith("evenkeel: ")
        assert WRONG_NAME in line
        assert len(line) < 800


def test_every_file_that_a_command_reads_is_tried() -> None:
    assert set(read_by_commands(build_parser(find_commands()))) == READ.keys()


def read_by_commands(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from read_by_commands(sub)
            continue
        is_path = action.type is Path or action.metavar in ("PATH", "FILE_OR_URL")
        flag = action.option_strings[0] if action.option_strings else action.dest.upper()
        name = f"{parser.prog.removeprefix('evenkeel ')} {flag}"
        if is_path and flag not in NOT_READ and name != "store backup FILE":
            yield name
