"""`evenkeel doctor`: checks the installation, the ports, the store and the model."""

from __future__ import annotations

import argparse
import json
import platform
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, distribution, version
from importlib.resources import files
from importlib.util import find_spec

import httpx
from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenkeel.cli import Command
from evenkeel.errors import ConfigurationError, StoreError
from evenkeel.landlock import find_gap, why_unavailable
from evenkeel.store import Store

EXAMPLE = """\
examples:
  evenkeel doctor
  evenkeel doctor --port-offset 1000 --json
exit codes: 0 nothing is wrong, 2 something is and the table says what to do
"""

_DISTRIBUTION = "evenkeel"
# A requirement of an extra in a distribution's metadata (PEP 508): `redis<9,>=6; extra == 'cache'`.
_OF_EXTRA = re.compile(r"""\s*([\w.-]+)[^;]*;.*\bextra\s*==\s*["']([\w.-]+)["']""")
# The lowest and the highest of the ports that `--port-offset` shifts.
LOWEST_PORT, HIGHEST_PORT = 4317, 8501
# On a CPU these come built for CUDA and break the import of text models.
HARMFUL_ON_CPU = ("torchvision", "torchaudio", "torchcodec")


class Outcome(StrEnum):
    """How a check ended; only `wrong` makes the command fail."""

    OK = "ok"
    OFF = "off"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check: what was looked at, how it ended, what was seen, what to do."""

    check: str
    outcome: Outcome
    seen: str
    advice: str = ""


def check_python() -> Iterator[Finding]:
    """The interpreter."""
    is_fit = (3, 11) <= sys.version_info[:2]
    yield Finding(
        "python",
        Outcome.OK if is_fit else Outcome.WRONG,
        platform.python_version(),
        "" if is_fit else "install Python 3.11",
    )


def read_extras(name: str = _DISTRIBUTION) -> dict[str, list[str]]:
    """Return the distributions that each extra brings, by the extra's name; {} if not installed."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        return {}
    extras: dict[str, list[str]] = {
        extra: [] for extra in found.metadata.get_all("Provides-Extra") or ()
    }
    for requirement in found.requires or ():
        match = _OF_EXTRA.match(requirement)
        if match is not None:
            extras.setdefault(match[2], []).append(match[1])
    return extras


def check_extras(extras: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """The distributions of each extra, as `read_extras` returns them."""
    if not extras:
        advice = "pip install evenkeel, or `make demo` in its folder"
        yield Finding("extras", Outcome.WRONG, "evenkeel is not installed as a package", advice)
    for extra, names in sorted(extras.items()):
        missing = [name for name in names if not _version(name)]
        if missing:
            advice = f"to use it: pip install 'evenkeel[{extra}]'"
            yield Finding(extra, Outcome.OFF, f"without {', '.join(missing)}", advice)
        else:
            yield Finding(extra, Outcome.OK, ", ".join(names))


def check_cpu_trap() -> Iterator[Finding]:
    """Companions of torch built for CUDA beside a torch built for the CPU."""
    if not _version("torch").endswith("+cpu"):
        return
    harmful = [name for name in HARMFUL_ON_CPU if _version(name)]
    if harmful:
        advice = f"pip uninstall {' '.join(harmful)}"
        yield Finding("torch companions", Outcome.WRONG, ", ".join(harmful), advice)


def check_model() -> Iterator[Finding]:
    """The demo model's checkpoint."""
    if find_spec("runtime") is None:
        yield Finding("demo model", Outcome.OFF, "the runtime is not installed")
        return
    weights = files("runtime") / "demo_model" / "target" / "model.safetensors"
    if weights.is_file():
        yield Finding("demo model", Outcome.OK, str(weights))
    else:
        advice = (
            "reinstall evenkeel, or: python -m runtime.demo_model.train --output runtime/demo_model"
        )
        yield Finding("demo model", Outcome.WRONG, f"{weights} is missing", advice)


def check_confinement() -> Iterator[Finding]:
    """Whether the kernel can keep the collector from writing outside its folders."""
    reason = why_unavailable()
    if reason is None:
        seen = f"Landlock: the collector writes in its own folders only{find_gap()}"
        yield Finding("confined writes", Outcome.OK, seen)
    else:
        advice = "the query port's rules hold without it; run on Linux 5.19 or newer to have both"
        yield Finding("confined writes", Outcome.OFF, reason, advice)


def check_running(host: str, port_offset: int) -> Iterator[Finding]:
    """What answers on our ports."""
    for part, command, port, path in (
        ("collector", "collect", 4318, "/readyz"),
        ("runtime", "serve MODEL", 8000, "/health"),
        ("dashboard", "dashboard", 8501, "/_stcore/health"),
    ):
        url = f"http://{host}:{port + port_offset}{path}"
        try:
            code = httpx.get(url, timeout=2).status_code
        except httpx.TransportError:
            advice = f"start it with: evenkeel {command}"
            yield Finding(part, Outcome.OFF, f"nothing answers at {url}", advice)
            continue
        if code == httpx.codes.OK:
            yield Finding(part, Outcome.OK, url)
        else:
            advice = f"is something else on port {port + port_offset}?"
            yield Finding(part, Outcome.WRONG, f"{url} answered {code}", advice)


def check_store(host: str, port_offset: int) -> Iterator[Finding]:
    """Whether the store answers a reader."""
    url = f"http://{host}:{8123 + port_offset}"
    try:
        store = Store(url, timeout_s=5)
    except StoreError as error:
        yield Finding("store", Outcome.OFF, str(error), "the collector brings it")
        return
    try:
        num_requests = store.rows("count_requests")[0]["requests"]
        yield Finding("store", Outcome.OK, f"{num_requests} requests at {url}")
    except StoreError as error:
        yield Finding("store", Outcome.WRONG, str(error), "is this store of another version?")
    finally:
        store.close()


def show(findings: Sequence[Finding]) -> None:
    """Print the findings as a table."""
    table = Table("check", "", "seen", "what to do")
    for finding in findings:
        words = (finding.check, finding.outcome, finding.seen, finding.advice)
        # As they are: rich would take the [extra] of an advice for markup.
        table.add_row(*map(Text, words))
    Console(highlight=False).print(table)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port-offset", type=int, default=0, metavar="N")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    least, most = 1 - LOWEST_PORT, 65_535 - HIGHEST_PORT
    if not least <= args.port_offset <= most:
        raise ConfigurationError(f"--port-offset is {args.port_offset}, expected {least} to {most}")
    checks: list[Callable[[], Iterator[Finding]]] = [
        check_python,
        lambda: check_extras(read_extras()),
        check_cpu_trap,
        check_model,
        check_confinement,
        lambda: check_running(args.host, args.port_offset),
        lambda: check_store(args.host, args.port_offset),
    ]
    findings = [finding for check in checks for finding in check()]
    if args.json:
        print(json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        show(findings)
    return 2 if any(finding.outcome is Outcome.WRONG for finding in findings) else 0


DOCTOR = Command("doctor", "check the installation, the ports, the store and the model", _configure)
