"""Bodies of almost nothing, a hundredth of it once compressed, that hold very much."""


def wrap(content: bytes, *tags: int) -> bytes:
    """Return protobuf messages around a content; the innermost message's tag comes first."""
    for tag in tags:
        content = bytes([tag]) + _varint(len(content)) + content
    return content


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def bushy(num_levels: int) -> bytes:
    """Return a span whose only attribute is a list with a list and a map, each with both again."""
    value = b""
    for _ in range(num_levels):
        of_map = wrap(wrap(value, 0x12), 0x0A, 0x32)
        value = wrap(wrap(value, 0x0A) + wrap(of_map, 0x0A), 0x2A)
    return wrap(value, 0x12, 0x4A, *SPAN)


SPAN = (0x12, 0x12, 0x0A)
METRIC = (0x12, 0x12, 0x0A)
DENSE_TRACES = {
    "spans": wrap(b"\x12\0" * 500_000, 0x12, 0x0A),
    "spans by overlong tags": wrap(b"\x92\0\0" * 260_000, 0x12, 0x0A),
    "spans in 40,000 scopes": wrap(wrap(b"\x12\0" * 6, 0x12) * 40_000, 0x0A),
    "attributes": wrap(b"\x4a\0" * 5_000_000, *SPAN),
    "attributes of 1,000 spans": wrap(wrap(b"\x4a\0" * 5_000, 0x12) * 1_000, 0x12, 0x0A),
    "attributes of a resource": wrap(b"\x0a\0" * 5_000_000, 0x0A, 0x0A),
    "events": wrap(b"\x5a\0" * 5_000_000, *SPAN),
    "values": wrap(b"\x0a\0" * 5_000_000, 0x2A, 0x12, 0x4A, *SPAN),
    "values in lists": wrap(wrap(b"\x0a\0" * 1_000, 0x2A, 0x0A) * 2_500, 0x2A, 0x12, 0x4A, *SPAN),
    "values of a map": wrap(b"\x0a\0" * 5_000_000, 0x32, 0x12, 0x4A, *SPAN),
    "resources": b"\x0a\0" * 5_000_000,
    "values of short lists": wrap(b"\x0a\x02\x2a\0" * 1_000_001, 0x2A, 0x12, 0x4A, *SPAN),
    "empty lists": wrap(b"\x4a\x04\x12\x02\x2a\0" * 1_000_001, *SPAN),
}
DENSE_METRICS = {
    "points": wrap(b"\x0a\0" * 500_000, 0x2A, *METRIC),
    "histograms": wrap(b"\x0a\0" * 500_000, 0x4A, *METRIC),
    "quantiles": wrap(b"\x32\0" * 500_000, 0x0A, 0x5A, *METRIC),
    "buckets": wrap(b"\0" * 5_000_000, 0x12, 0x42, 0x0A, 0x52, *METRIC),
    "buckets of 5,000 points": wrap(
        wrap(b"\0" * 1_000, 0x12, 0x42, 0x0A) * 5_000, 0x52, *METRIC
    ),
}  # fmt: skip
DENSE_LOGS = {"records": wrap(b"\x12\0" * 500_000, 0x12, 0x0A)}
DENSE_JSON = {
    "objects": b'{"a": [' + b"{}," * 2_000_000 + b"{}]}",
    "lists": b'{"a": [' + b"[]," * 2_000_000 + b"[]]}",
    "numbers": b'{"a": [' + b"1," * 2_000_001 + b"1]}",
}
JSON_RECORDS = b'{"resourceSpans":[' + b"{}," * 250_000 + b"{}]}"
LONG_NAME = wrap(
    b"\x0a\x80\x80\x40" + b"x" * (1 << 20) + wrap(b"\x0a\0" * 1_000, 0x2A), *METRIC
)  # fmt: skip
