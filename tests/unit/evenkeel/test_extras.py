"""Messages about a missing part name the command that installs it."""

import pytest

from evenkeel.extras import how_to_install
from tests.checkout import ROOT
from tests.queries import PARTS


@pytest.mark.parametrize(
    ("extra", "command"),
    [
        (
            "embeddings",
            "pip install 'evenkeel[embeddings]', in a checkout pip install '.[embeddings]'",
        ),
        (
            "qdrant",
            "pip install 'evenkeel-runtime[cache,qdrant]', "
            "in a checkout pip install '.[embeddings]' './runtime[cache,qdrant]'",
        ),
        (
            "runtime-cpu",
            "pip install 'evenkeel[runtime-cpu]', in a checkout pip install './runtime[cpu]'; "
            "with a GPU [runtime] or [gpu] instead",
        ),
        ("other", "pip install 'evenkeel[other]'"),
    ],
)
def test_an_extra_is_installed_from_an_index_or_a_checkout(extra: str, command: str) -> None:
    assert how_to_install(extra) == command


def test_no_module_writes_such_a_command_itself() -> None:
    found = [
        path.relative_to(ROOT).as_posix()
        for part in (*PARTS, "runtime")
        for path in (ROOT / part).rglob("*.py")
        if "pip install 'evenkeel[" in path.read_text() or " extra evenkeel[" in path.read_text()
    ]
    assert found == []
