"""The doctor's arguments: a wrong one is one line, like every other error."""

import pytest

from evenkeel.cli import main
from evenkeel.doctor import DOCTOR


@pytest.mark.parametrize("offset", ["100000", "-9000", "57036"])
def test_an_offset_beyond_the_ports_is_refused(
    offset: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--port-offset", offset], [DOCTOR]) == 2
    assert capsys.readouterr().err.startswith(f"evenkeel: --port-offset is {offset}, expected ")
