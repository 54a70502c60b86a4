"""Reads secrets from files, masks them in output, and warns about them on command lines.

`@PATH` in place of any secret (a flag, a variable, a key in a file) reads it from the file. Write
a secret that starts with `@` as `@@`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pydantic import Secret

from evenkeel.errors import ConfigurationError

_FILE_MARK = "@"
# A key, token or address is one line; a larger file is the wrong one.
_MAX_BYTES = 64 * 1024
# Greedy: a password may contain an unescaped "@" or "/". The scheme may have been forgotten.
_USER_INFO = re.compile(r"(?:(?<=://)|^(?!.*://)).*@", re.DOTALL)


class SecretAddress(Secret[str]):
    """An address that may contain a password: shown without the user and password."""

    def _display(self) -> str:
        return hide_password(self.get_secret_value())


def hide_password(url: str) -> str:
    """Return an address without its user and password."""
    return _USER_INFO.sub("", url, count=1)


def read_secret(text: str) -> str:
    """Return `text` as the secret or, if it is `@PATH`, the file's contents.

    Surrounding whitespace in the file is stripped: editors end a file with a newline.

    Raises:
        ConfigurationError: If the file is missing, empty, too large or not UTF-8.
    """
    if not text.startswith(_FILE_MARK):
        return text
    if text.startswith(2 * _FILE_MARK):
        return text.removeprefix(_FILE_MARK)
    path = Path(text.removeprefix(_FILE_MARK))
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        secret = data.decode("utf-8").strip()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise ConfigurationError(f"secret file {path} cannot be read: {reason}") from error
    if not secret or len(data) > _MAX_BYTES:
        problem = "is empty" if not secret else f"is larger than {_MAX_BYTES} bytes"
        raise ConfigurationError(f"secret file {path} {problem}")
    return secret


def make_authorization(key: str | None) -> dict[str, str]:
    """Return the header that sends a server's API key; none without a key.

    Raises:
        ConfigurationError: If the key has a character that a header cannot carry.
    """
    if key is None:
        return {}
    if not (key.isascii() and key.isprintable()):
        raise ConfigurationError(
            "the API key has a character that cannot be sent, such as a letter with an accent or a "
            "line break; expected printable ASCII: is it the right file, or a part of it?"
        )
    return {"authorization": f"Bearer {key}"}


def write_secret(secret: str) -> str:
    """Return the secret escaped so that `read_secret` returns it unchanged."""
    return _FILE_MARK + secret if secret.startswith(_FILE_MARK) else secret


def warn_of_command_line(flag: str, text: str, *, is_address: bool, variable: str = "") -> None:
    """Print a warning if a flag contains a secret: all users of the machine can list processes.

    Args:
        flag: Such as `--clickhouse`.
        text: Its value.
        is_address: Whether only a password inside it is secret.
        variable: The variable that also accepts the secret; "" if there is none.
    """
    names_file = text.startswith(_FILE_MARK) and not text.startswith(2 * _FILE_MARK)
    if names_file or (is_address and hide_password(text) == text):
        return
    instead = f"{flag} @FILE" + (f" or the variable {variable}" if variable else "")
    print(
        f"warning: {flag} contains a secret that other users of this machine can see in the "
        f"process list; use {instead}",
        file=sys.stderr,
    )


def address_argument(text: str) -> str:
    """Parse a store's address, reading it from a file if it is `@FILE`: an argparse `type=`."""
    warn_of_command_line("the address", text, is_address=True)
    return read_secret(text)
