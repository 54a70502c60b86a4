import gzip
import os
import zlib

import pytest

from evenkeel_collector.ports.decompress import (
    MAX_MEMBERS,
    BadEncodingError,
    TooLargeError,
    decompress,
)

LIMIT = 10_000


@pytest.mark.parametrize(
    ("encoding", "compress"),
    [
        ("", bytes),
        ("identity", bytes),
        ("gzip", gzip.compress),
        ("x-gzip", gzip.compress),
        ("deflate", zlib.compress),
    ],
)
@pytest.mark.parametrize("size", [0, 1, LIMIT])
def test_a_body_up_to_the_limit_comes_back(encoding: str, compress: object, size: int) -> None:
    plain = os.urandom(size)
    assert callable(compress)
    assert decompress(compress(plain), encoding, LIMIT) == plain


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        pytest.param("", b"x" * (LIMIT + 1), id="plain"),
        pytest.param("gzip", gzip.compress(b"\0" * 100_000_000, 1), id="a gzip bomb"),
        pytest.param("gzip", gzip.compress(b"x" * LIMIT) + gzip.compress(b"x"), id="two members"),
        pytest.param("deflate", zlib.compress(b"x" * (LIMIT + 1)), id="deflate"),
    ],
)
def test_a_body_over_the_limit_is_refused(encoding: str, body: bytes) -> None:
    with pytest.raises(TooLargeError, match="10000 bytes"):
        decompress(body, encoding, LIMIT)


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        pytest.param("gzip", b"not gzip", id="not gzip"),
        pytest.param("gzip", gzip.compress(b"hello world")[:-6], id="cut short"),
        pytest.param("gzip", gzip.compress(b"hello world")[:12] + b"\xff" * 20, id="corrupt"),
        pytest.param("br", b"", id="an encoding we lack"),
        pytest.param("gzip, gzip", b"", id="twice"),
    ],
)
def test_a_body_that_is_not_what_it_says_is_refused(encoding: str, body: bytes) -> None:
    with pytest.raises(BadEncodingError):
        decompress(body, encoding, LIMIT)


def test_concatenated_gzip_members_are_one_body() -> None:
    assert decompress(gzip.compress(b"a") + gzip.compress(b"b"), "gzip", LIMIT) == b"ab"


def test_a_body_of_very_many_streams_is_refused_before_it_costs_anything() -> None:
    few = b"".join(gzip.compress(bytes([byte])) for byte in range(MAX_MEMBERS))
    assert decompress(few, "gzip", LIMIT) == bytes(range(MAX_MEMBERS))
    with pytest.raises(BadEncodingError, match="32 compressed streams"):
        decompress(few + gzip.compress(b""), "gzip", LIMIT)
