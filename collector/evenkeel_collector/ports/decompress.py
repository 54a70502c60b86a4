"""Undoes the compression of a request body without ever holding more than the cap."""

from __future__ import annotations

from isal import igzip_lib, isal_zlib

GZIP_WINDOW = 31
DEFLATE_WINDOW = 15
# Files of gzip may be concatenated. What follows one is copied each time: a body of a million empty
# ones would keep everybody waiting for hours.
MAX_MEMBERS = 32


class TooLargeError(ValueError):
    """The body is larger than what one request may carry."""


class BadEncodingError(ValueError):
    """The body is not what its Content-Encoding says, or the encoding is not supported."""


def decompress(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """Return the body as it was before its Content-Encoding (identity, gzip or deflate).

    Raises:
        TooLargeError: If it is larger than `limit_bytes`; nothing beyond that is decompressed.
        BadEncodingError: If the encoding is unknown, or the body is cut or corrupt.
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
            raise BadEncodingError("body ends in the middle of its compressed stream")
        rest = stream.unused_data
    if rest:
        raise BadEncodingError(f"body is more than {MAX_MEMBERS} compressed streams")
    return plain
