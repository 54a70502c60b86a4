"""Decompresses request bodies without ever holding more than the limit."""

from __future__ import annotations

from isal import igzip_lib, isal_zlib

GZIP_WINDOW = 31
DEFLATE_WINDOW = 15
# gzip files may be concatenated, and the rest of the body is copied for each: a body of a million
# empty ones would block the collector for hours.
MAX_MEMBERS = 32


class TooLargeError(ValueError):
    """The body exceeds the limit of one request."""


class BadEncodingError(ValueError):
    """The body does not match its Content-Encoding, or the encoding is unsupported."""


def decompress(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """Return the decompressed body (Content-Encoding identity, gzip or deflate).

    Raises:
        TooLargeError: If it is larger than `limit_bytes`; nothing beyond that is decompressed.
        BadEncodingError: If the encoding is unknown, or the body is truncated or corrupt.
    """
    if encoding in ("", "identity"):
        plain = body
    elif encoding in ("gzip", "x-gzip"):
        plain = _inflate(body, GZIP_WINDOW, limit_bytes)
    elif encoding == "deflate":
        plain = _inflate(body, DEFLATE_WINDOW, limit_bytes)
    else:
        raise BadEncodingError(
            f"Content-Encoding {encoding!r} is not supported; use gzip, deflate or identity"
        )
    if len(plain) > limit_bytes:
        raise TooLargeError(f"body is larger than {limit_bytes} bytes")
    return plain


def _inflate(body: bytes, window: int, limit_bytes: int) -> bytes:
    plain = b""
    rest = body
    for _ in range(MAX_MEMBERS):
        if not rest:
            return plain
        stream = isal_zlib.decompressobj(window)
        try:
            plain += stream.decompress(rest, limit_bytes + 1 - len(plain))
        except igzip_lib.IsalError as error:  # type: ignore[misc]
            raise BadEncodingError(f"body cannot be decompressed: {error}") from error
        if len(plain) > limit_bytes:
            raise TooLargeError(f"body is larger than {limit_bytes} bytes once decompressed")
        if not stream.eof:
            raise BadEncodingError("compressed body is truncated")
        rest = stream.unused_data
    if rest:
        raise BadEncodingError(f"body has more than {MAX_MEMBERS} compressed streams")
    return plain
