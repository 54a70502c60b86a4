"""The TLS certificate of the collector's ports, which is renewed while they are open."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError, first_line
from evenkeel.watched_file import file_stamp

logger = logging.getLogger(__name__)

POLL_S = 1.0
# In all forms of PEM.
_ENCRYPTED = b"ENCRYPTED"


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate and its key, PEM; with `client_ca`, clients need one from that authority.

    Attributes:
        context: The same for Python's own servers.
    """

    chain: bytes
    key: bytes
    client_ca: bytes | None
    context: ssl.SSLContext


class Tls:
    """The certificate in force; its files are read again when they change.

    Open connections keep theirs.

    Args:
        certificate: The certificate's file.
        key: The file of its private key.
        client_ca: The file of the clients' authority, if they need certificates.

    Attributes:
        current: What new connections get.

    Raises:
        ConfigurationError: If the files do not match or cannot be read.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._files = (certificate, key, client_ca)
        # Taken before the content: a change in between is then read again, not missed.
        self._stamps = _stamps(self._files)
        self.current = _read(*self._files)

    async def follow(self) -> None:
        """Check the files every second until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            self.reload()

    def reload(self) -> None:
        """Take changed files into force; those that do not match change nothing."""
        stamps = _stamps(self._files)
        if stamps == self._stamps:
            return
        self._stamps = stamps
        try:
            self.current = _read(*self._files)
        except ConfigurationError as error:
            logger.warning("certificate not reloaded, the previous one is in use: %s", error)
        else:
            logger.info("certificate reloaded path=%s", self._files[0])


def read_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    """Return the certificate to use, or None for plain text.

    Raises:
        ConfigurationError: If the files do not match or cannot be read.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise ConfigurationError("TLS needs both --tls-certificate and --tls-key")
    return Tls(certificate, key, client_ca)


def _stamps(files: Sequence[Path | None]) -> list[object]:
    return [None if file is None else file_stamp(file) for file in files]


def _read(certificate: Path, key: Path, client_ca: Path | None) -> Certificate:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        pair = certificate.read_bytes(), key.read_bytes()
        if _ENCRYPTED in pair[1]:
            raise ConfigurationError(f"{key} (--tls-key) is encrypted: give it without passphrase")
        # Without a password, OpenSSL would ask the terminal for one, and all ports would wait.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"cannot use {certificate} (--tls-certificate) with {key} (--tls-key): "
            f"{first_line(error)}"
        ) from error
    authority = None
    try:
        if client_ca is not None:
            authority = client_ca.read_bytes()
            context.load_verify_locations(client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"cannot use {client_ca} (--tls-client-ca): {first_line(error)}"
        ) from error
    return Certificate(*pair, authority, context)
