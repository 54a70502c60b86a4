"""Background responses, which control could not bound: refused, and counted in a dry run."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from evenkeel_runtime.control.config import ControlMode
from evenkeel_runtime.request.control_middleware import asks_for_background
from tests.fixtures.gate_connection import START, Connection, make_service


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"background": true}', True),
        (b'{"background": "yes"}', True),
        (b'{"background": 1}', True),
        (b'{"\\u0062ackground": true}', True),
        ('{"background": true}'.encode("utf-16"), True),
        (b'{"background": false}', False),
        (b'{"background": "no"}', False),
        (b'{"background": null}', False),
        (b'{"background": [1]}', False),
        (b'{"metadata": {"background": true}}', False),
        (b'{"input": "in the background"}', False),
        (b"background", False),
    ],
)
def test_what_vllm_takes_for_a_background_response(body: bytes, expected: bool) -> None:
    assert asks_for_background(body) is expected


async def ask(
    tmp_path: Path, bodies: Sequence[bytes], mode: ControlMode, path: str
) -> tuple[Connection, list[bytes]]:
    """Return a connection that has ended, and the bodies that the app has read from it."""
    read: list[bytes] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        read.append(await Request(scope, receive).body())
        await send(START)
        await send({"type": "http.response.body", "body": b"{}"})

    connection = Connection(make_service(tmp_path, mode=mode), app, path=path)
    connection.send_bodies(*bodies)
    await connection.ask()
    return connection, read


ASKED = b'{"background": true}'
RESPONSES = "/v1/responses"


@pytest.mark.parametrize(
    "bodies",
    [
        pytest.param([ASKED], id="at once"),
        pytest.param([b'{"back', b'ground": ', b"true}"], id="in pieces"),
    ],
)
async def test_a_background_response_is_refused_while_control_acts(
    tmp_path: Path, bodies: list[bytes]
) -> None:
    connection, read = await ask(tmp_path, bodies, ControlMode.ACT, RESPONSES)
    assert connection.status == 400
    assert json.loads(connection.answers[1]["body"])["error"]["type"] == "background"
    assert read == []
    control = connection.service.control
    assert control.counts.refused == {("chat", "background"): 1}
    assert control.gate.num_inside == 0


@pytest.mark.parametrize(
    ("mode", "path", "num_counted"),
    [
        pytest.param(ControlMode.DRY_RUN, RESPONSES, 1, id="a dry run"),
        pytest.param(ControlMode.OFF, RESPONSES, 0, id="control is off"),
        pytest.param(ControlMode.ACT, "/v1/messages", 0, id="another path"),
    ],
)
async def test_it_is_served_otherwise(
    tmp_path: Path, mode: ControlMode, path: str, num_counted: int
) -> None:
    connection, read = await ask(tmp_path, [ASKED], mode, path)
    assert (connection.status, read) == (200, [ASKED])
    assert connection.service.control.counts.would_refuse.total() == num_counted
