"""Exit codes and messages of the command line."""

import argparse
import os
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from urllib.request import proxy_bypass

import httpcore
import httpx
import pytest
from clickhouse_connect.driver.httputil import check_env_proxy

from evenkeel import cli
from evenkeel.cli import Command, main
from evenkeel.errors import CannotMeasureError, ConfigurationError
from tests.checkout import ROOT
from tests.fixtures.python_process import run_python


def command(run: object, **options: object) -> Command:
    def configure(parser: argparse.ArgumentParser) -> None:
        parser.set_defaults(run=run)

    return Command("do", "does it", configure, **options)  # type: ignore[arg-type]


def raising(error: Exception) -> Command:
    def run(args: argparse.Namespace) -> int:
        raise error

    return command(run, extra="runtime-cpu")


def test_the_code_of_the_command_is_the_exit_code() -> None:
    assert main(["do"], [command(lambda args: 3)]) == 3


def test_a_command_may_take_unknown_flags() -> None:
    seen: list[list[str]] = []

    def run(args: argparse.Namespace) -> int:
        seen.append(args.rest)
        return 0

    assert main(["do", "--their-flag", "1"], [command(run, passes_unknown_flags=True)]) == 0
    assert seen == [["--their-flag", "1"]]


def test_a_value_of_thousands_of_characters_does_not_bury_its_message(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong = ConfigurationError(f"total is {'9' * 5000}, expected fewer digits (events.csv:2)")
    assert main(["do"], [raising(wrong)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("evenkeel: total is 999")
    assert said.endswith("99, expected fewer digits (events.csv:2)\n")
    assert len(said) < 300


@pytest.mark.parametrize(
    ("chosen", "argv", "code", "line"),
    [
        pytest.param(
            raising(ConfigurationError("bad")), ["do"], 2, "bad", id="configuration errors are 2"
        ),
        pytest.param(
            raising(CannotMeasureError("gone")), ["do"], 3, "gone", id="no measurement is 3"
        ),
        pytest.param(
            raising(ModuleNotFoundError("no", name="vllm")),
            ["do"],
            2,
            "do needs the module 'vllm'; install it with: pip install 'evenkeel[runtime-cpu]', "
            "in a checkout pip install './runtime[cpu]'; "
            "with a GPU [runtime] or [gpu] instead",
            id="a missing module names the extra",
        ),
        pytest.param(
            command(lambda args: 0),
            ["do", "--nope"],
            2,
            "do: unknown argument '--nope'; see `evenkeel do --help`",
            id="an unknown flag is refused by name",
        ),
        pytest.param(
            cli._missing("serve", "pip install 'evenkeel[runtime]'"),
            ["serve", "--any"],
            2,
            "serve is not installed here: pip install 'evenkeel[runtime]'",
            id="a part that is not installed says so",
        ),
    ],
)
def test_errors_are_one_line_and_a_code(
    chosen: Command, argv: list[str], code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv, [chosen]) == code
    assert capsys.readouterr().err == f"evenkeel: {line}\n"


def test_only_the_chosen_command_is_configured() -> None:
    """Each imports its settings: `--help` of one must not pay for all."""
    configured: list[str] = []

    def make(name: str) -> Command:
        def configure(parser: argparse.ArgumentParser) -> None:
            configured.append(name)
            parser.set_defaults(run=lambda args: 0)

        return Command(name, "does it", configure)

    assert main(["do"], [make("do"), make("other")]) == 0
    assert configured == ["do"]


@pytest.mark.parametrize(
    ("words", "loads_others"),
    [
        pytest.param(["why", "--help"], False, id="a command"),
        pytest.param([], True, id="none"),
        pytest.param(["wyh"], True, id="one that is mistyped"),
    ],
)
def test_only_the_chosen_command_is_loaded(words: list[str], loads_others: bool) -> None:
    program = (
        "import sys\nfrom evenkeel.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('evenkeel.doctor.command' in sys.modules)"
    )
    done = run_python(
        "-c", program, *words, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert done.stdout.splitlines()[-1] == str(loads_others)


def test_an_internal_error_is_never_a_regression(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["do"], [raising(AttributeError("'list' object has no attribute 'get'"))]) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("evenkeel: internal error: AttributeError: 'list' object has no")


@pytest.mark.parametrize(
    ("words", "error", "line"),
    [
        (["do"], PermissionError(13, "Permission denied", "/closed/slos.yaml"),
         "/closed/slos.yaml cannot be used: Permission denied"),
        (["do"], OSError(36, "File name too long", b"x" * 9_999),
         f"{'x' * 200} cannot be used: File name too long"),
        (["do", "--name=\udcff"], UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not"),
         r"an argument is not UTF-8: '--name=\udcff'"),
    ],
)  # fmt: skip
def test_an_error_outside_is_no_internal_one(
    words: list[str], error: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words, [replace(raising(error), passes_unknown_flags=True)]) == 2
    assert capsys.readouterr().err == f"evenkeel: {line}\n"


VERDICTS = pytest.mark.parametrize("show", ["print('regressed')", "Console().print('regressed')"])


@VERDICTS
@pytest.mark.parametrize("is_buffered", [True, False])
def test_a_verdict_that_nobody_reads_is_no_verdict(show: str, is_buffered: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = print_verdict(show, writer, is_buffered)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@VERDICTS
@pytest.mark.parametrize("is_buffered", [True, False])
def test_a_verdict_that_a_full_disk_refuses_is_one_line(show: str, is_buffered: bool) -> None:
    with Path("/dev/full").open("wb") as full:
        done = print_verdict(show, full.fileno(), is_buffered)
    line = b"evenkeel: the output cannot be written: No space left on device\n"
    assert (done.returncode, done.stderr) == (3, line)


def test_what_was_printed_before_an_error_outside_is_not_lost() -> None:
    show = "print('so far'); open('/nowhere/slos.yaml')"
    reader, writer = os.pipe()
    done = print_verdict(show, writer, is_buffered=True)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b"so far\n"
    line = b"evenkeel: /nowhere/slos.yaml cannot be used: No such file or directory\n"
    assert (done.returncode, done.stderr) == (2, line)


OUTCOMES = pytest.mark.parametrize(
    ("run", "code"),
    [
        pytest.param("raise ConfigurationError('wrong')", 2, id="usage"),
        pytest.param("raise CannotMeasureError('unknown')", 3, id="not measured"),
        pytest.param("open('/nowhere/slos.yaml')", 2, id="an error outside"),
        pytest.param("raise AttributeError('ours')", 3, id="an internal error"),
        pytest.param("print('warning', file=sys.stderr)", 0, id="a warning"),
        pytest.param("Console(stderr=True).print('warning')", 0, id="a warning of rich"),
        pytest.param("Console(file=drawn_on(sys.stderr)).print('12 %')", 0, id="progress"),
        pytest.param("print('x' * 200_000, file=sys.stderr)", 0, id="a long warning"),
    ],
)


@OUTCOMES
def test_a_code_stays_if_standard_error_is_full(run: str, code: int) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run_program(f"print('out'); {run}", stderr=full.fileno())
    assert (done.returncode, done.stdout) == (code, b"out\n")


@OUTCOMES
def test_a_code_stays_if_nobody_reads_standard_error(run: str, code: int) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = run_program(f"print('out'); {run}", stderr=writer)
    os.close(writer)
    assert (done.returncode, done.stdout) == (code, b"out\n")


@OUTCOMES
def test_a_code_and_the_output_stay_if_there_is_no_standard_error(run: str, code: int) -> None:
    done = run_program(f"print('out'); {run}", shell="2>&-")
    assert (done.returncode, done.stdout) == (code, b"out\n")


def test_output_and_an_error_that_both_cannot_be_written_keep_the_code() -> None:
    with Path("/dev/full").open("wb") as full:
        run = "print('out'); raise ConfigurationError('wrong')"
        done = run_program(run, stdout=full.fileno(), stderr=full.fileno())
    assert done.returncode == 2


def test_standard_error_is_written_again_once_its_disk_has_room() -> None:
    """A collector's log goes there: one full disk must not end it."""
    run = (
        "import os; kept = os.dup(2); os.dup2(os.open('/dev/full', os.O_WRONLY), 2); "
        "print('lost', file=sys.stderr); os.dup2(kept, 2); print('written', file=sys.stderr)"
    )
    done = run_program(run)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, b"written")


def test_an_error_of_a_descriptor_is_an_internal_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["do"], [raising(OSError(9, "Bad file descriptor", 99))]) == 3
    assert "internal error: OSError" in capsys.readouterr().err


def program_that(does: str) -> str:
    return f"""if True:
        import sys
        from rich.console import Console
        from evenkeel.cli import Command, main
        from evenkeel.errors import CannotMeasureError, ConfigurationError
        from evenkeel.outside_text import drawn_on
        def run(_):
            {does}
            return 0
        do = Command("do", "", lambda parser: parser.set_defaults(run=run))
        sys.exit(main(["do"], [do]))
    """


def print_verdict(show: str, stdout: int, is_buffered: bool) -> subprocess.CompletedProcess[bytes]:
    return run_program(show, *([] if is_buffered else ["-u"]), stdout=stdout)


def run_program(
    does: str,
    *flags: str,
    stdout: int = subprocess.PIPE,
    stderr: int = subprocess.PIPE,
    shell: str = "",
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", f'exec "$@" {shell}', "sh", sys.executable, *flags, "-c", program_that(does)],
        stdout=stdout,
        stderr=stderr,
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"},
        check=False,
    )


@pytest.mark.parametrize("exempt", ["", "intern.example.com", "::1, localhost"])
def test_a_proxy_is_not_asked_for_this_machine(
    exempt: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://proxy.example.com:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("NO_PROXY", exempt)
    through: dict[str, list[bool]] = {}

    def run(args: argparse.Namespace) -> int:
        # As httpx, urllib and the driver of ClickHouse read the environment.
        for host in ("127.0.0.1", "localhost", "shop.example.com"):
            by_httpx = httpx.Client()._transport_for_url(httpx.URL(f"http://{host}:8123/"))
            through[host] = [
                isinstance(by_httpx._pool, httpcore.HTTPProxy),  # type: ignore[attr-defined]
                not proxy_bypass(host),
                check_env_proxy("http", host, 8123) is not None,
            ]
        assert not proxy_bypass("intern.example.com") or "intern" in exempt
        return 0

    assert main(["do"], [command(run)]) == 0
    direct, by_proxy = [False] * 3, [True] * 3
    assert through == {"127.0.0.1": direct, "localhost": direct, "shop.example.com": by_proxy}
    before = os.environ["no_proxy"]
    assert main(["do"], [command(run)]) == 0
    assert os.environ["no_proxy"] == before


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], [command(lambda args: 0)]) == 2
    assert "does it" in capsys.readouterr().err


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"evenkeel {version('evenkeel')}\n"


def test_a_mistyped_command_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doo"], [command(lambda args: 0)]) == 2
    assert "'doo' is not known; did you mean 'do'?" in capsys.readouterr().err
    assert main(["xyz"], [command(lambda args: 0)]) == 2
    assert "expected one of do" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "line"),
    [
        (["list", "--limt", "3"], "do list: unknown argument '--limt'; did you mean '--limit'?"),
        (
            ["list", "--url=http://h"],
            "do list: unknown argument '--url=http://h'; its flags are --data-dir, --limit; "
            "see `evenkeel do list --help`",
        ),
        (["list", "extra"], "do list: unknown argument 'extra'; see `evenkeel do list --help`"),
    ],
)
def test_an_unknown_flag_leads_to_those_there_are(
    argv: list[str], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def configure(parser: argparse.ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb")
        listing = verbs.add_parser("list")
        listing.add_argument("--data-dir")
        listing.add_argument("--limit", type=int)
        listing.set_defaults(run=lambda args: 0)

    assert main(["do", *argv], [Command("do", "does it", configure)]) == 2
    assert capsys.readouterr().err == f"evenkeel: {line}\n"
