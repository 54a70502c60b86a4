"""Problem documents of the operators' API, without a collector behind it."""

import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from starlette.testclient import TestClient

from evenkeel.errors import UnusableFileError
from evenkeel_collector.operators.problems import answer_with_problems


class Order(BaseModel):
    by: str


@pytest.fixture(scope="module")
def client() -> TestClient:
    app = FastAPI()
    # Nothing here is counted by an intake.
    answer_with_problems(app, None)  # type: ignore[arg-type]

    @app.post("/api/act")
    def act(order: Order) -> str:
        return order.by

    @app.get("/api/kept")
    def kept() -> str:
        raise UnusableFileError("data/alerts.db cannot be used for alerts: disk is full")

    return TestClient(app)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ('{"by": "ann",}', "the body is not JSON: "),
        ("{", "the body is not JSON: Expecting property name enclosed in double quotes at char"),
        ('{"by": }', "the body is not JSON: Expecting value at character 8"),
        ("{}", "by is missing"),
    ],
)
def test_a_body_that_cannot_be_read_is_told_from_a_field(
    client: TestClient, body: str, detail: str
) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post("/api/act", content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["detail"].startswith(detail)


def test_a_full_disk_is_not_the_callers_mistake(client: TestClient) -> None:
    answer = client.get("/api/kept")
    assert (answer.status_code, answer.json()["title"]) == (503, "Service Unavailable")
    assert answer.json()["detail"].endswith("disk is full")
