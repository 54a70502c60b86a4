"""The doctor: every extra is looked at, and a wrong argument is one line."""

import re
import tomllib
from pathlib import Path

import pytest

from evenkeel.cli import main
from evenkeel.doctor import (
    DOCTOR,
    Finding,
    Outcome,
    check_confinement,
    check_extras,
    read_extras,
    show,
)
from evenkeel.landlock import why_unavailable

PYPROJECT = Path(__file__).parents[3] / "pyproject.toml"


def declared() -> dict[str, set[str]]:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    return {
        extra: {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in requirements}
        for extra, requirements in project["optional-dependencies"].items()
    }


def test_every_extra_is_looked_at_with_all_that_it_brings() -> None:
    found = {extra: {name.lower() for name in names} for extra, names in read_extras().items()}
    assert found == declared()
    assert [finding.check for finding in check_extras(read_extras())] == sorted(declared())


def test_what_an_extra_lacks_is_named_with_what_to_do() -> None:
    extras = {"whole": ["rich"], "half": ["rich", "no-such-package"]}
    half, whole = check_extras(extras)
    assert (whole.outcome, whole.seen, whole.advice) == (Outcome.OK, "rich", "")
    assert (half.outcome, half.seen) == (Outcome.OFF, "without no-such-package")
    assert half.advice == "to use it: pip install 'evenkeel[half]'"


def test_the_table_shows_advice_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    show([Finding("half", Outcome.OFF, "", "'evenkeel[half]'")])
    assert "'evenkeel[half]'" in capsys.readouterr().out


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
    assert finding.outcome is (Outcome.OK if reason is None else Outcome.OFF)
    assert finding.seen == reason or "its own folders only" in finding.seen
