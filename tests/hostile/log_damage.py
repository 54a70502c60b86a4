"""Damages log segments as disks, power cuts and other programs do."""

import random
from collections.abc import Callable

from evenkeel_collector.log.segment_format import HEADER, RECORD, encode_record, encode_segment
from evenkeel_collector.log.segment_name import marker_of

BLOCK_BYTES = 512
NODE = "0123456789ab"


def flip_bits(data: bytearray, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 4)):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def damage_header(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(HEADER.size)] ^= rng.randint(1, 255)


def zero_block(data: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(data)) // BLOCK_BYTES * BLOCK_BYTES
    end = min(begin + BLOCK_BYTES * rng.randint(1, 4), len(data))
    data[begin:end] = bytes(end - begin)


def zero_tail(data: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(data))
    data[begin:] = bytes(len(data) - begin)


def truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(1, len(data)) :]


def cut_out(data: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(data))
    del data[begin : begin + rng.randint(1, 700)]


def put_in(data: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(data))
    data[begin:begin] = rng.randbytes(rng.randint(1, 700))


def double_block(data: bytearray, rng: random.Random) -> None:
    begin = rng.randrange(len(data))
    block = data[begin : begin + rng.randint(1, 3000)]
    at = rng.randrange(len(data))
    data[at:at] = block


def write_block_elsewhere(data: bytearray, rng: random.Random) -> None:
    begin, at = rng.randrange(len(data)), rng.randrange(len(data))
    block = data[begin : begin + rng.randint(1, 3000)][: len(data) - at]
    data[at : at + len(block)] = block


def swap_bytes(data: bytearray, rng: random.Random) -> None:
    one, other = rng.randrange(len(data)), rng.randrange(len(data))
    data[one], data[other] = data[other], data[one]


def swap_blocks(data: bytearray, rng: random.Random) -> None:
    num_blocks = len(data) // BLOCK_BYTES
    if num_blocks < 2:
        return
    one, other = (rng.randrange(num_blocks) * BLOCK_BYTES for _ in range(2))
    first, second = data[one : one + BLOCK_BYTES], data[other : other + BLOCK_BYTES]
    data[one : one + BLOCK_BYTES], data[other : other + BLOCK_BYTES] = second, first


def change_length(data: bytearray, rng: random.Random) -> None:
    """Have a head say another length, beyond the file or into another record."""
    head = encode_record(marker_of(f"{0:020d}-{NODE}"), 0, b"x")[:3]
    places = [at for at in range(len(data)) if data[at : at + 3] == head]
    if places:
        at = rng.choice(places) + RECORD.size - 12
        length = rng.choice((0, 1, len(data), rng.randrange(len(data)), 2**32 - 1))
        data[at : at + 4] = length.to_bytes(4, "little")


DAMAGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    flip_bits,
    damage_header,
    zero_block,
    zero_tail,
    truncate,
    cut_out,
    put_in,
    double_block,
    write_block_elsewhere,
    swap_bytes,
    swap_blocks,
    change_length,
)


def damage(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes after one to three kinds of damage."""
    damaged = bytearray(data)
    for kind in rng.choices(DAMAGES, k=rng.randint(1, 3)):
        if damaged:
            kind(damaged, rng)
    return bytes(damaged)


def intact_bodies(name: str, created_ns: int, bodies: list[bytes], damaged: bytes) -> list[bytes]:
    """Return the bodies whose record is in the damaged bytes as it was written."""
    ends = [HEADER.size]
    for body in bodies:
        ends.append(ends[-1] + RECORD.size + len(body))
    data = encode_segment(name, created_ns, bodies)
    return [
        body
        for body, begin, end in zip(bodies, ends, ends[1:], strict=False)
        if data[begin:end] in damaged
    ]
