"""The `evenkeel` command: finds the parts' subcommands and maps errors to exit codes."""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points, version
from typing import NoReturn

from evenkeel.durations import parse_duration_s
from evenkeel.errors import ConfigurationError, EvenkeelError, MissingPartError
from evenkeel.extras import how_to_install
from evenkeel.outside_text import for_terminal, safe_output, write_any_character
from evenkeel.private_files import private_umask
from evenkeel.standard_error import drop, flush_or_drop, lossy_stderr

ENTRY_POINT_GROUP = "evenkeel.commands"
EXIT_INTERNAL = 3
# Like a value that could not be measured: the verdict is not where it was wanted.
EXIT_UNWRITTEN = 3
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# 128 + SIGPIPE, as shells report it.
EXIT_NO_READER = 141
_MOST_FLAGS_LISTED = 8
# Longer than the addresses and paths that anybody means to see.
_ENDLESS_WORD = re.compile(r"\S{500,}")
# Each part provides its own commands; these are all of them.
EXTRA_OF_COMMAND = {
    "alerts": "collector",
    "cache": "cache",
    "collect": "collector",
    "dashboard": "dashboard",
    "demo": "demo",
    "eval": "evals",
    "export": "grafana",
    "prices": "collector",
    "prompts": "evals",
    "serve": "runtime-cpu",
    "simulate": "demo",
    "slo": "collector",
    "store": "collector",
}
# OpenBLAS, a dependency of numpy and scipy, starts one thread per core on load; these busy-wait
# and take cycles from the core vLLM runs on. OMP_NUM_THREADS is not ours to set: torch, in vLLM's
# engine process, depends on it and ignores this one.
BLAS_THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"
# Every client here and in our child processes heeds it: httpx, urllib, urllib3's ClickHouse, gRPC.
NO_PROXY_VARIABLE = "no_proxy"
_THIS_MACHINE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand.

    Its module must be cheap to import: settings are imported by `configure`, which is called only
    for the chosen command, and heavy modules inside the function it sets as `run`.

    Attributes:
        name: The word after `evenkeel`.
        summary: One line for `evenkeel --help`.
        configure: Adds arguments, an example epilog, and `set_defaults(run=...)`, a function from
            the parsed arguments to an exit code.
        extra: The extra that installs what `run` imports, named when an import fails.
        passes_unknown_flags: Whether unknown flags go to `args.rest` instead of being rejected.
        keeps_private: Whether its files are readable only by their owner: stored requests and
            state, but not output written for others.
    """

    name: str
    summary: str
    configure: Callable[[argparse.ArgumentParser], None]
    extra: str | None = None
    passes_unknown_flags: bool = False
    keeps_private: bool = False


def find_commands(chosen: Collection[str] = ()) -> list[Command]:
    """Return every subcommand, sorted by name; those not installed say how to install them.

    Args:
        chosen: If one of these is installed, only it is loaded and returned, which is faster.
    """
    entries = entry_points(group=ENTRY_POINT_GROUP)
    wanted = [entry for entry in entries if entry.name in chosen]
    found = {entry.name: _load(entry) for entry in wanted or entries}
    if not wanted:
        for name, extra in EXTRA_OF_COMMAND.items():
            found.setdefault(name, _missing(name, how_to_install(extra)))
    return sorted(found.values(), key=lambda command: command.name)


def _load(entry: EntryPoint) -> Command:
    """Return the command, or a stand-in that names the missing module."""
    try:
        command: Command = entry.load()
    except ModuleNotFoundError as error:
        return _missing(entry.name, f"the module {error.name!r} is missing")
    return command


def _missing(name: str, why: str) -> Command:
    def refuse(_: argparse.Namespace) -> int:
        raise MissingPartError(f"{name} is not installed here: {why}")

    def configure(parser: argparse.ArgumentParser) -> None:
        parser.set_defaults(run=refuse)

    return Command(name, f"not installed: {why}", configure, passes_unknown_flags=True)


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] | None = None) -> int:
    """Run one subcommand and return its exit code: 0 good, 1 breach, 2 usage, 3 unmeasured.

    Args:
        argv: The arguments; None uses those of the process.
        commands: The subcommands to choose from; None uses the installed ones.
    """
    os.environ.setdefault(BLAS_THREADS_VARIABLE, "1")
    _ask_this_machine_directly()
    words = sys.argv[1:] if argv is None else argv
    write_any_character(os.environ.get("PYTHONIOENCODING", ""))
    # An error that cannot be written keeps its code: Python's own is 1, a regression.
    with lossy_stderr():
        code = _exit_code(words, commands)
        flush_or_drop(sys.stdout)
        return code


def _exit_code(words: Sequence[str], commands: Sequence[Command] | None) -> int:
    """Run the command; return its exit code, or that of the error it reports."""
    try:
        with safe_output():
            code = _run(commands or find_commands(words[:1]), words)
            # Here, not at exit, where an error would set Python's own exit code. A process without
            # a terminal may have no stream at all.
            if sys.stdout is not None:
                sys.stdout.flush()
            return code
    except EvenkeelError as error:
        for line in f"evenkeel: {error}".split("\n"):
            print(for_terminal(_shorten_words(line)), file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        return _end_without_reader()
    except SystemExit as end:
        # rich ends the process with 1, which would mean a regression.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return _end_without_reader()
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        problem = _problem_outside(error, words)
        if problem is not None:
            what, code = problem
            print(for_terminal(f"evenkeel: {what}"), file=sys.stderr)
            return code
        # Never Python's own exit code of 1, which would mean a regression.
        for line in traceback.format_exc().splitlines():
            print(for_terminal(line), file=sys.stderr)
        what = for_terminal((str(error).strip().splitlines() or ["no explanation"])[0][:500])
        print(
            f"evenkeel: internal error: {type(error).__name__}: {what}; no stored data "
            "is lost, and the same command can resume; please report the lines above",
            file=sys.stderr,
        )
        return EXIT_INTERNAL


def _ask_this_machine_directly() -> None:
    """Exempt this machine's own addresses from a proxy in the environment, which has others."""
    text = os.environ.get(NO_PROXY_VARIABLE) or os.environ.get(NO_PROXY_VARIABLE.upper()) or ""
    exempt = [name.strip() for name in text.split(",") if name.strip()]
    # Alone, it stands for every address.
    if exempt != ["*"]:
        exempt += [name for name in _THIS_MACHINE if name not in exempt]
        os.environ[NO_PROXY_VARIABLE] = ",".join(exempt)


def _problem_outside(error: Exception, words: Sequence[str]) -> tuple[str, int] | None:
    """Return a line and an exit code for an error that is no fault of ours, or None.

    Commands name the flag of a file that they cannot read. Here are those that nobody expects: a
    folder that may not be entered, a name that is too long, a full disk.
    """
    if isinstance(error, OSError):
        # A number is a descriptor: no name that anybody could use.
        if error.filename is not None and not isinstance(error.filename, int):
            place = os.fsdecode(error.filename)[:200]
            return f"{place} cannot be used: {error.strerror}", ConfigurationError.exit_code
        if error.errno in _NO_ROOM:
            return f"the output cannot be written: {error.strerror}", EXIT_UNWRITTEN
    if isinstance(error, UnicodeEncodeError):
        for word in words:
            if any("\udc80" <= char <= "\udcff" for char in word):
                return f"an argument is not UTF-8: {word!r:.200}", ConfigurationError.exit_code
    return None


def _shorten_words(line: str) -> str:
    """Return the line with its endless words cut, such as a number of thousands of digits."""
    return _ENDLESS_WORD.sub(lambda word: f"{word[0][:80]}…{word[0][-20:]}", line)


def _end_without_reader() -> int:
    """Return the exit code if the reader of our output exited (`evenkeel … | head`).

    It is that of any program in a pipe, not 0 or 1: nobody has seen the verdict.
    """
    drop(sys.stdout)
    return EXIT_NO_READER


def duration_argument(text: str) -> float:
    """Return the seconds of an argument such as 90s or 30d: a `type=` for argparse."""
    try:
        return float(parse_duration_s(text))
    except ConfigurationError as error:
        # argparse puts the flag in front.
        raise argparse.ArgumentTypeError(str(error)) from error


class _Parser(argparse.ArgumentParser):
    """Reports usage errors on one line, like every other error."""

    def error(self, message: str) -> NoReturn:
        raise ConfigurationError(f"{message} (see `{self.prog} --help`)")

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            close = get_close_matches(str(value), known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"expected one of {', '.join(known)}"
            raise argparse.ArgumentError(action, f"{value!r} is not known; {hint}")


class _ShowVersion(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(
        self, parser: argparse.ArgumentParser, *_: object, option_string: str | None = None
    ) -> None:
        print(f"evenkeel {version('evenkeel')}")
        parser.exit()


def build_parser(
    commands: Sequence[Command], chosen: Collection[str] | None = None
) -> argparse.ArgumentParser:
    """Return the parser of the whole command line; parsing sets `command` and `run`.

    Args:
        commands: The commands available.
        chosen: The commands whose arguments are needed; None means all.
    """
    parser = _Parser(prog="evenkeel", description="Observability and SLOs for LLM serving.")
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in commands:
        subparser = subparsers.add_parser(
            command.name,
            help=command.summary,
            description=command.summary,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if chosen is None or command.name in chosen:
            command.configure(subparser)
    return parser


def _unknown_argument(parser: argparse.ArgumentParser, argv: Sequence[str], unknown: str) -> str:
    """Return an error that names the flag that may be meant, or the flags there are."""
    for word in argv:
        choices = next((a.choices for a in parser._actions if isinstance(a.choices, dict)), {})
        if word in choices:
            parser = choices[word]
    usage, flag = parser.prog.removeprefix("evenkeel "), unknown.partition("=")[0]
    flags = [name for name in parser._option_string_actions if name.startswith("--")]
    close = get_close_matches(flag, flags, n=1)
    if flag.startswith("--") and close:
        return f"{usage}: unknown argument {flag!r}; did you mean {close[0]!r}?"
    known = [name for name in flags if name != "--help"]
    has_few = flag.startswith("-") and 0 < len(known) <= _MOST_FLAGS_LISTED
    listed = f"its flags are {', '.join(known)}; " if has_few else ""
    return f"{usage}: unknown argument {unknown!r}; {listed}see `{parser.prog} --help`"


def _run(commands: Sequence[Command], argv: Sequence[str]) -> int:
    parser = build_parser(commands, argv[:1])
    if not argv:
        parser.print_help(sys.stderr)
        return ConfigurationError.exit_code
    args, rest = parser.parse_known_args(argv)
    command = next(c for c in commands if c.name == args.command)
    if rest and not command.passes_unknown_flags:
        raise ConfigurationError(_unknown_argument(parser, argv, rest[0]))
    args.rest, args.argv = rest, list(argv)
    try:
        with private_umask() if command.keeps_private else nullcontext():
            code = args.run(args)
    except ModuleNotFoundError as error:
        if command.extra is None or error.name is None:
            raise
        raise MissingPartError(
            f"{command.name} needs the module {error.name!r}; "
            f"install it with: {how_to_install(command.extra)}"
        ) from error
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
