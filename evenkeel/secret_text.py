"""Secrets are read from files, shown to nobody, and missed on no command line.

`@PATH` in place of any secret (a flag, a variable, a key of a file) reads it from the file. One
that begins with `@` itself is written with two.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from pydantic import Secret

from evenkeel.errors import ConfigurationError

_FILE_MARK = "@"
# A key, a token or an address is a line; a larger file is the wrong one.
_MAX_BYTES = 64 * 1024
# Greedy: a password may hold an unescaped "@" or "/".
_USER_INFO = re.compile(r"(?<=://).*@", re.DOTALL)


class SecretAddress(Secret[str]):
    """An address that may hold a password: shown without the user and the password."""

    def _display(self) -> str:
        return hide_password(self.get_secret_value())


def hide_password(url: str) -> str:
    """Return an address without the user and the password that it may hold."""
    return _USER_INFO.sub("", url, count=1)


def read_secret(text: str) -> str:
    """Return the secret that `text` is or, if it is `@PATH`, what the file holds.

    White space around what the file holds is left out: editors end a file with a newline.

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
        raise ConfigurationError(f"the secret's file {path} cannot be read: {reason}") from error
    if not secret or len(data) > _MAX_BYTES:
        problem = "is empty" if not secret else f"is larger than {_MAX_BYTES} bytes"
        raise ConfigurationError(f"the secret's file {path} {problem}")
    return secret


def write_secret(secret: str) -> str:
    """Return the text from which `read_secret` reads this secret."""
    return _FILE_MARK + secret if secret.startswith(_FILE_MARK) else secret


def warn_of_command_line(flag: str, text: str, *, is_address: bool, variable: str = "") -> None:
    """Print a warning if a flag holds a secret: every user of the machine can list processes.

    Args:
        flag: Such as `--clickhouse`.
        text: What it was given.
        is_address: Whether only a password in it would be secret.
        variable: The variable that takes the secret as well; "" if there is none.
    """
    names_file = text.startswith(_FILE_MARK) and not text.startswith(2 * _FILE_MARK)
    if names_file or (is_address and hide_password(text) == text):
        return
    instead = f"{flag} @FILE" + (f" or the variable {variable}" if variable else "")
    print(
        f"warning: {flag} holds a secret, which other users of this machine can read in the list "
        f"of processes; use {instead}",
        file=sys.stderr,
    )


def address_argument(text: str) -> str:
    """Return a store's address, read from `@FILE` if it is one: a `type=` for argparse."""
    warn_of_command_line("the address", text, is_address=True)
    return read_secret(text)
