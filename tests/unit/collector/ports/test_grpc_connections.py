"""One address holds at most half of the gRPC port's connections."""

import contextlib
import socket
import time
from collections.abc import Iterator

import pytest

from evenkeel_collector.ports.grpc_connections import GrpcConnections
from evenkeel_collector.telemetry.metrics import SelfMetrics
from tests.fixtures.collector_process import wait_for


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@contextlib.contextmanager
def connected(
    server: socket.socket, num: int, address: str = "127.0.0.1"
) -> Iterator[list[socket.socket]]:
    """Connect, and accept here what gRPC would; yield the clients."""
    with contextlib.ExitStack() as stack:
        clients = []
        for _ in range(num):
            clients.append(
                stack.enter_context(
                    socket.create_connection(server.getsockname(), source_address=(address, 0))
                )
            )
            stack.enter_context(server.accept()[0])
        yield clients


def is_open(client: socket.socket) -> bool:
    client.setblocking(False)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True


def closed_and_open(metrics: SelfMetrics) -> tuple[float, float]:
    labels = {"port": "grpc"}
    read = metrics.registry.get_sample_value
    return (
        read("evenkeel_collector_connections_closed_total", {**labels, "reason": "room"}) or 0.0,
        read("evenkeel_collector_connections", labels) or 0.0,
    )


def test_the_longest_silent_of_an_address_give_way(listening: socket.socket) -> None:
    metrics = SelfMetrics()
    connections = GrpcConnections(listening.getsockname()[1], 8, metrics)
    with connected(listening, 7) as many, connected(listening, 1, "127.0.0.2") as other:
        time.sleep(0.05)
        for client in (many[0], many[6], other[0]):
            client.sendall(b"x")
        time.sleep(0.05)
        connections.check()
        assert closed_and_open(metrics) == (3, 8)
        # What was closed is not counted, and not closed, again.
        connections.check()
        assert closed_and_open(metrics) == (3, 5)
        # The kernel may tell the clients a moment later.
        wait_for(lambda: sum(map(is_open, many)) == 4)
        assert [is_open(client) for client in (many[0], many[6], other[0])] == [True] * 3


def test_the_share_is_everybodys(listening: socket.socket) -> None:
    metrics = SelfMetrics()
    connections = GrpcConnections(listening.getsockname()[1], 8, metrics)
    with connected(listening, 4) as some, connected(listening, 4, "127.0.0.2") as others:
        connections.check()
        assert closed_and_open(metrics) == (0, 8)
        assert all(map(is_open, some + others))


def test_sockets_of_other_ports_are_left_alone(listening: socket.socket) -> None:
    metrics = SelfMetrics()
    connections = GrpcConnections(listening.getsockname()[1] + 1, 2, metrics)
    with connected(listening, 4) as clients:
        connections.check()
        assert closed_and_open(metrics) == (0, 0)
        assert all(map(is_open, clients))
