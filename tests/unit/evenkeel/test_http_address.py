"""Hosts and addresses: IPv6 is read with and without brackets, and written with them."""

import socket

import grpc
import pytest

from evenkeel.doctor.command import check_running, check_store
from evenkeel.errors import ConfigurationError
from evenkeel.http_address import bare_host, check_http_address, with_port
from evenkeel.processes import refuse_taken_ports
from evenkeel_collector.ports.server import listen
from evenkeel_collector.serve import otlp_grpc
from evenkeel_collector.serve.settings import CollectorSettings
from evenkeel_dashboard.frame.configuration import DashboardSettings
from evenkeel_runtime.serve.settings import RuntimeSettings


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


BOTH_SPELLINGS = pytest.mark.parametrize("host", ["::1", "[::1]"])


@pytest.mark.parametrize(
    ("host", "bare", "address"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1:80"),
        ("store.example", "store.example", "store.example:80"),
        ("::1", "::1", "[::1]:80"),
        ("[::1]", "::1", "[::1]:80"),
        ("::", "::", "[::]:80"),
        ("[name]", "[name]", "[name]:80"),
    ],
)
def test_only_an_ipv6_address_is_in_brackets(host: str, bare: str, address: str) -> None:
    assert bare_host(host) == bare
    assert with_port(host, 80) == address


@BOTH_SPELLINGS
@pytest.mark.parametrize("settings", [CollectorSettings, DashboardSettings, RuntimeSettings])
def test_a_part_listens_on_either_spelling(settings: type[CollectorSettings], host: str) -> None:
    assert settings(host=host).host == "::1"


@BOTH_SPELLINGS
def test_the_doctor_asks_the_same_address_for_both_spellings(host: str) -> None:
    seen = next(check_running(host, 65_000 - 4318)).seen
    assert seen == "nothing answers at http://[::1]:65000/readyz"
    assert "http://[::1]:65000:" in next(check_store(host, 65_000 - 8123)).seen


@pytest.mark.xfail(not _has_ipv6(), reason="this machine has no IPv6", run=False)
def test_ports_are_bound_on_ipv6() -> None:
    server = grpc.server(None)
    taken = listen("::1", 0, "--http-port")
    with taken, pytest.raises(ConfigurationError, match="not free on ::1"):
        refuse_taken_ports({"collector": taken.getsockname()[1]}, "::1")
    assert otlp_grpc.bind(server, "::1", 0) > 0


def test_an_address_that_lacks_the_brackets_says_so() -> None:
    with pytest.raises(ConfigurationError, match=r"IPv6 address in brackets, as in http://\[::1\]"):
        check_http_address("the store's address", "http://::1:8123", "http://127.0.0.1:8123")
