"""Which token each user reads with."""

from pathlib import Path

import pytest

from evenkeel.errors import ConfigurationError
from evenkeel_dashboard.frame.user_access import read_users, token_of

GOOD = '[[user]]\nemail = "Ann@example.com"\ntoken_env = "ANNS_TOKEN"\n'


def test_a_person_reads_with_their_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "users.toml"
    path.write_text(GOOD, encoding="utf-8")
    monkeypatch.setenv("ANNS_TOKEN", "secret")
    users = read_users(path)
    assert token_of("ann@EXAMPLE.com", users) == "secret"
    assert token_of("eve@example.com", users) is None
    monkeypatch.delenv("ANNS_TOKEN")
    assert token_of("ann@example.com", users) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "user is missing", id="nobody"),
        pytest.param("[[user]]\nemail = 'a@b'\ntoken = 'x'\n", "token_env", id="a token in clear"),
        pytest.param("nonsense", "is not TOML", id="no TOML"),
    ],
)
def test_a_wrong_file_is_refused_with_its_place(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "users.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=reason):
        read_users(path)


def test_oidc_without_a_file_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--users"):
        read_users(None)
