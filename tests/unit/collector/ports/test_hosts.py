"""A request is answered only under a name of this server."""

import pytest

from evenkeel_collector.ports.hosts import KnownHosts

REACHED = ("192.0.2.7", 8123)


def status(*hosts: str, version: str = "1.1", bound: str = "127.0.0.1") -> int:
    scope = {
        "headers": [(b"host", host.encode("latin-1")) for host in hosts],
        "http_version": version,
        "server": REACHED,
    }
    refusal = KnownHosts(bound, ["collector", "Store.Example.org"]).refusal(scope)
    if refusal is None:
        return 200
    assert refusal.body.count(b"\n") == 1
    return refusal.status


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1", "127.0.0.1:8123", "127.1.2.3:8123", "localhost", "LOCALHOST:8123",
        "localhost.", "evenkeel.localhost:8123", "[::1]:8123", "[0:0:0:0:0:0:0:1]", "collector",
        "collector:8123", "store.example.org", "192.0.2.7:8123",
    ],
)  # fmt: skip
def test_this_server_is_answered_for(host: str) -> None:
    assert status(host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8123", "127.0.0.1.evil.example", "localhost.evil.example",
        "evillocalhost", "collector.evil.example", "example.org", "192.0.2.8", "8.8.8.8:8123",
        "0.0.0.0", "[::]", "[::ffff:8.8.8.8]", "2130706433", "0x7f000001", "", ":8123",
        "evil.example@127.0.0.1", "127.0.0.1, evil.example", "\xe9vil",
    ],
)  # fmt: skip
def test_other_hosts_are_refused(host: str) -> None:
    assert status(host) == 421


def test_the_bound_name_is_one_of_them() -> None:
    assert status("db.lan:8123", bound="db.lan") == 200
    assert status("db.lan:8123") == 421
    assert status("[2001:db8::7]:8123", bound="[2001:db8::7]") == 200


def test_host_is_needed_as_http_says() -> None:
    assert status() == 400
    assert status(version="1.0") == 200
    assert status("evil.example", version="1.0") == 421
    assert status("localhost", "evil.example") == 400
