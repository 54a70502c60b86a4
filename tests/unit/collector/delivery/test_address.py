"""Which addresses are inside, and what is refused."""

import pytest

from evenkeel_collector.delivery.address import AddressRefused, find_target, is_inside


@pytest.mark.parametrize(
    ("address", "inside"),
    [
        ("93.184.216.34", False),
        ("2606:2800:220:1::1", False),
        ("127.0.0.1", True),
        ("10.1.2.3", True),
        ("192.168.1.1", True),
        ("172.16.0.1", True),
        ("169.254.169.254", True),
        ("100.64.0.1", True),
        ("0.0.0.0", True),
        ("224.0.0.1", True),
        ("::1", True),
        ("fe80::1%eth0", True),
        ("fd00::1", True),
        ("::ffff:127.0.0.1", True),
        ("64:ff9b::7f00:1", True),
        ("2002:7f00:1::", True),
        ("64:ff9b::5db8:d822", False),
        ("::127.0.0.1", True),
        ("::93.184.216.34", True),
        ("::ffff:0:a9fe:a9fe", True),
        ("64:ff9b:1::a9fe:a9fe", True),
        ("fec0::1", True),
        ("ff02::1", True),
        ("168.63.129.16", True),
        ("::ffff:168.63.129.16", True),
    ],
)
def test_what_is_inside(address: str, inside: bool) -> None:
    assert is_inside(address) is inside


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "localhost", "169.254.169.254", "0x7f.1"])
async def test_however_it_is_written_it_is_refused(host: str) -> None:
    with pytest.raises(AddressRefused) as caught:
        await find_target(f"http://{host}:80/", allow_private=False)
    assert caught.value.is_final or "does not resolve" in str(caught.value)


async def test_the_connection_goes_to_what_was_checked() -> None:
    target = await find_target("http://localhost:8080/x", allow_private=True)
    assert (target.host, target.port) == ("localhost", 8080)
    assert is_inside(target.address)
    assert target.address != "localhost"
