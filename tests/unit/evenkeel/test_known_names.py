"""What is said about a name that is not known."""

import pytest

from evenkeel.known_names import suggestion

MANY = [f"tenant-{number}" for number in range(13)]


@pytest.mark.parametrize(
    ("name", "known", "said"),
    [
        pytest.param("acmee", ["globex", "acme"], "did you mean 'acme'?", id="a typo"),
        pytest.param("acme", ["ACME"], "did you mean 'ACME'?", id="another case"),
        pytest.param("x", ["globex", "", "acme"], "there are globex, acme", id="nothing close"),
        pytest.param("x", [], "", id="nothing known"),
        pytest.param("x", MANY, f"there are {', '.join(MANY[:10])} and 3 more", id="many"),
    ],
)
def test_suggestion(name: str, known: list[str], said: str) -> None:
    assert suggestion(name, known) == said
