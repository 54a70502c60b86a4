"""The TLS certificate of the collector's ports."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

from evenkeel.errors import ConfigurationError, first_line


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files; with `client_ca`, clients need a certificate from that authority."""

    certificate: Path
    key: Path
    client_ca: Path | None = None


def read_tls(certificate: Path | None, key: Path | None, client_ca: Path | None) -> Tls | None:
    """Return the certificate to use, or None for plain text.

    Raises:
        ConfigurationError: If the files do not match or cannot be read.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    if certificate is None or key is None:
        raise ConfigurationError("TLS needs both --tls-certificate and --tls-key")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"cannot use {certificate} (--tls-certificate) with {key} (--tls-key): "
            f"{first_line(error)}"
        ) from error
    try:
        if client_ca is not None:
            context.load_verify_locations(client_ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigurationError(
            f"cannot use {client_ca} (--tls-client-ca): {first_line(error)}"
        ) from error
    return Tls(certificate, key, client_ca)
